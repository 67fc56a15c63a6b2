// Package devserver runs private servers for development, tests and benchmarks, each in a process of its own: MariaDB or MySQL,
// etcd, PostgreSQL, RabbitMQ, Prometheus and Alertmanager, Redis and beanstalkd. They listen on the loopback interface only and have no
// passwords; etcd may be made to want TLS. A kind of server is a spec: its program and options, how its data is made, and the
// line of its log by which it is ready.
//
// MariaDB and etcd (3.4 or newer) are found in PATH and in the sbin folders an ordinary user's PATH lacks, a MySQL and a
// MariaDB 11.8 where scripts/install-server.sh puts them; root is not needed. In this package, MariaDB in names and
// comments means either, unless MySQL is named beside it. A server's folder holds
//
//	lock          held by whoever runs the folder, and inherited by the server
//	data/         the data directory; it appears by a rename, so it is never half made
//	mariadb.sock  the socket, unless the path would be too long for one
//	error.log     the server's log, unless the caller takes it
//
// On failure:
//   - The server cannot start: the call returns one line with the last error of its log, and leaves no process.
//   - The server dies: its log says why. Nothing restarts it. Committed rows are in the folder, also
//     when Durable is false; only a crash of the machine loses them then.
//   - The parent dies, even by kill -9: the kernel kills the server (Linux; elsewhere it stays until killed by hand).
//     A temporary folder stays behind and is removed by the next start on this machine by the same user.
//   - The server does not end when asked: Stop kills it after StopTimeout.
//
// Unix only. It builds elsewhere, but no server starts there.
package devserver
