// Package mysql opens Tocsin's connections to MySQL and MariaDB and is the one
// authority for what a server's error means.
//
// Every connection it opens has the same session, whatever the server's
// defaults are: UTC, READ COMMITTED, strict mode, lock waits of one second.
// Statements are interpolated in the client, so that one packet may carry many
// of them (see ExecMulti), unless the caller prepares them.
//
// On failure: a driver error becomes a Class by its number, never by its text;
// Retry repeats what the class says is worth repeating, with back-off.
package mysql
