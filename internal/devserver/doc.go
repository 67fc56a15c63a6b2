// Package devserver runs private servers for development, tests and benchmarks: a MariaDB or MySQL, an etcd, a Prometheus, each
// in a process of its own. They listen on the loopback interface only and have no passwords; etcd may be made to want TLS.
//
// MariaDB and etcd (3.4 or newer) are found in PATH and in the sbin folders an ordinary user's PATH lacks, a MySQL and a
// MariaDB 11.8 where scripts/install-server.sh puts them; root is not needed. In this package, MariaDB in names and
// comments means either, unless MySQL is named beside it. The server's folder holds
//
//	lock          held by whoever runs the folder, and inherited by the server
//	data/         the data directory; it appears by a rename, so it is never half made
//	mariadb.sock  the socket, unless the path would be too long for one
//	error.log     the server's log, unless the caller takes it
//
// The folder of an etcd holds lock, data/ and etcd.log.
//
// On failure:
//   - The server cannot start: StartMariaDB and StartEtcd return one line with the last error of its log, and leave no
//     process.
//   - The server dies: Done is closed, and MariaDB's Err says how. Nothing restarts it. Committed rows are in the folder, also
//     when Durable is false; only a crash of the machine loses them then.
//   - The parent dies, even by kill -9: the kernel kills the server (Linux; elsewhere it stays until killed by hand).
//     A temporary folder stays behind and is removed by the next start on this machine by the same user.
//   - The server does not end when asked: Stop kills it after StopTimeout.
//
// Unix only. It builds elsewhere, but no server starts there.
package devserver
