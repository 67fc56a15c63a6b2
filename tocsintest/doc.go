// Package tocsintest is for the tests of programs that use Tocsin.
//
// Start gives a test the tables of a small cluster with the biz types it names, and a business database, on a MariaDB that all
// tests of the process share: for tests that add tasks, in a transaction or not, and look at what is stored. WithOutbox puts the
// business database on a server of its own, as it looks to the program. RequireAdded looks into a transaction that is not
// committed. With TOCSIN_TEST_SERVER=mysql in the environment the server is a MySQL, with mariadb-11.8 a MariaDB 11.8. Deliver
// hands a task to a handler without any server and returns what a node would make of its answer. Package node/nodetest runs
// nodes and their handlers on such a cluster, and package contrib/tocsinpg/pgtest has business databases in PostgreSQL.
//
// On failure Start ends the test with one line, which says how to install mariadbd if that is missing. The databases go when
// the test ends; Main stops the server after the last test, and without Main it ends with the test's process.
package tocsintest
