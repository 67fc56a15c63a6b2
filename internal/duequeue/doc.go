// Package duequeue is the authority for the order in which one lane's due tasks
// are started, and for which job_ids a node already knows.
//
// A queue holds ids, never payloads, and knows each job_id at most once, from
// the peek that found it until its outcome is stored:
//
//	          Offer               Pop
//	(MySQL) --------> queued ------------> in flight --- Done ---> (forgotten)
//	                    ^                      |  ^
//	                    +------ Requeue -------+  +--- Take, of a row read whole
//
// What was read whole may be older than what is known: between Begin and End a
// queue remembers what ended, and Take queues that instead, to be looked at again.
//
// It is pure: no goroutine, no clock and no lock. Who calls it passes the time
// in and guards it with a mutex of its own.
//
// On failure: a queue that is full refuses, and so loses nothing, since the row
// is still in MySQL. An entry that is earlier than the latest queued one is
// always let in and the latest is refused in its place: a burst of tasks that
// are due in ten seconds must not hold up the one that is due now.
package duequeue
