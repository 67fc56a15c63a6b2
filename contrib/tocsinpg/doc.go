// Package tocsinpg reaches outboxes in PostgreSQL databases (docs/go.md). It is a module of its own, so that services that
// use MySQL alone do not require pgx.
//
//	In      adds, cancels and reschedules tasks in a transaction of pgx; database/sql needs only tocsin.Outbox.PostgreSQL
//	Driver  lets a relay, in node.Config or elsewhere, read an outbox
//
// PlanOutbox, ApplyOutbox and VerifyOutbox are for the table of an outbox what those of package ddl are for one in MySQL or MariaDB.
//
// A relay needs PostgreSQL 14.1 or newer, the primary, and a connection to the server itself: behind a pooler that lends its
// connections out per transaction, the lock of a relay would stay with a connection of the pooler. It reads one snapshot per
// statement, at READ COMMITTED, and locks no row that a service writes.
//
// Ids come from a sequence, so they have gaps and transactions commit out of their order. No lock tells to whom an id of a
// gap belongs. But who writes into a table holds a lock on the table until its transaction ends, prepared or not. A gap is
// settled when all transactions have ended that held this lock after a higher id was read: their ids were drawn before it.
package tocsinpg
