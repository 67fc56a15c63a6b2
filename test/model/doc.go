// Package model is the write table of a task's row as data, and an exhaustive search over everything that can happen
// to one row. It is the authority for why each condition of each write is there: its tests weaken every condition
// and show the shortest history that then breaks a promise.
//
//	user ------- cancel, reschedule --+
//	operator --- redrive -------------+       +--> every write is atomic, under its condition in table.go
//	nodes ------ load, claim, settle -+--> row
//	sweepers --- claim, settle -------+       +--> after every step the checks of audit.go
//	anybody ---- recover, purge ------+
//	time, kill -9, SIGSTOP, lost acknowledgements, a database that is away: at any moment
//
// A node is an owner, a former owner, or in claim mode, as it comes; or, where nobody owns tables, a claimer. Time is counted in ticks of about 5 s, relative to
// now, so that the graph of states is finite; any number of steps happen within a tick, in any order. A
// process that lives is prompt: it sends at once, ends a delivery at the time-out and settles a tick later at most.
// An actor that is not prompt is frozen, or its database is away: these are faults, of which a cast allows a few. Actors of one role are
// alike, so histories that differ only in which of them did what are searched once.
//
// What is left out: several rows, the queue in memory (an owner finds every pending row that is due), the text of
// errors, and clocks that run backwards. The time of a retry counts from when it is written.
//
// Five smaller models stand beside it: fence.go has the owners of a table, outbox.go an outbox and its relays, overlap.go the
// runs of a schedule, payloads.go payloads in two versions, intake.go what a node reads and remembers of the rows that are due.
//
// Four more have the protocol that replaces owners, in which every delivery is claimed under a session: claim.go has one row,
// suspects.go rows that kill their process, perkey.go rows of one key, lease.go the leases of workers.
//
// The package runs in tests only. A search that exceeds its bound, and a promise that is broken, are its two failures;
// the second comes with a trace.
package model
