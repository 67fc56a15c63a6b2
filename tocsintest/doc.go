// Package tocsintest is for the tests of programs that use Tocsin.
//
// Start gives a test a MariaDB of its own with the tables of a small cluster
// and the biz types it names: for tests that add tasks, in a transaction or not,
// and look at what is stored. With TOCSIN_TEST_SERVER=mysql in the environment the
// server is a MySQL, with mariadb-11.8 a MariaDB 11.8. Deliver hands a task to a handler without any
// server and says what a node would make of its answer. Package node/nodetest runs
// nodes and their handlers on such a cluster.
//
// On failure Start ends the test with one line, which says how to install
// mariadbd where that is what is missing. What it started ends with the test,
// and with the test's process however that ends.
package tocsintest
