// Package daemon runs private servers for a measurement: PostgreSQL, Redis and
// beanstalkd, each in a process and a temporary folder of its own, listening on
// the loopback interface only, without passwords. MariaDB and etcd are those of
// internal/devserver.
//
// A program is found in PATH and where Debian puts it. As root, PostgreSQL, which
// refuses to be root's, runs as the user postgres or, without one, nobody.
//
// On failure: a server that is not installed is a Missing error of one line; one
// that does not come up is an error with the end of its log, and leaves nothing.
// When this process dies, even by kill -9, Linux kills the servers; their folders
// then stay behind in the temporary folder. Unix only.
package daemon
