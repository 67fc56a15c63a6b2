// Package outbox is the authority for one outbox: a table in a business database. Services add, cancel and reschedule
// tasks by inserting rows there, in their own transactions (docs/sql.md). Row says what a row means.
//
//	Outbox --Session--> Lead: one relay at a time   Read: rows by ranges of ids   SetAside: a row that can't be moved
//	                    Delete: rows that were moved   Present, Writers, Settled: what is still to come
//	       --List, Retry, Drop--> operators
//
// It sends the statements and interprets their results. Package ddl makes the table; package relay decides what is read,
// moved and deleted. A Driver has the statements for servers other than MySQL and MariaDB. All statements run at READ
// COMMITTED and on the primary: at REPEATABLE READ they would block the inserts of services. Rows are deleted by their
// ids, never by a range, which would wait for rows of open transactions and then delete them unseen.
//
// A session that sends nothing for WaitTimeout is ended by the server, so a relay that hangs holds neither the lock nor a
// row for longer.
package outbox
