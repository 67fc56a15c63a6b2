// Package dispatcher delivers tasks: it loads the rows whose time has come, hands them to their targets, and settles
// the outcomes.
//
// It is the authority for what runs in this process: how many deliveries of a biz type at once, which rows may start,
// and which outcome an attempt has.
//
//	Offer --> due queue --> load --> ready --> deliver --> settle --> done
//	          one a lane     |         ^          |           |
//	                         +- claim -+          |           +--> queue again
//	                         |         |          +-- time-out: settled as
//	Reserve, Take: rows -----+---------+              failed, slot stays taken
//
// There are two ways from the queue to ready. With Config.Sessions every row is claimed under a session of this process (claims.go):
//
//	Offer -----+
//	           +--> due queue --> claim, one packet --> held until due, or ready
//	Fetched ---+                    |  refused: a run, or a suspect --> special claim
//	                                +--> release
//
// A row is claimed at most 20 ms before it is due, and one of a strict biz type, of one with PerKey or of a pull type once it is due. A row that can't
// start is released as it was. Room bounds the ids of a backlog that a lane has queued. An outcome is written under the claim's token.
//
// Without Config.Sessions a row starts because this process owns its table, or by a claim with a deadline (load.go, claim.go). A backlog takes a
// shorter way then: Reserve makes room in a lane, the caller reads that many whole rows, and Take starts them without queue and load. This way
// goes once clusters with etcd have sessions.
//
// A lane is one biz type on one server, with its own due queue. The lanes of a biz type share its slots and its rate.
// So a server that is down stops only its own lanes, and a slow target only its own biz type.
//
// A sweep uses a Dispatcher of its own with ClaimAll: it delivers only rows that it has claimed, and needs no
// ownership. With MayClaim it waits until nodes have settled what they delivered while a server refused writes.
//
// A row's way through the package, and which lock guards it:
//
//	queued, loading    lane.queue, lane.held    server.mu
//	held until due     server.early             server.mu
//	ready              lane.ready               kind.mu
//	open               server.open              server.mu  (in delivery or waiting to be settled)
//
// A row's payload counts against Config.PayloadBytes from before it is read until its target has returned. Each biz
// type may use only a share, so that room for another type remains.
//
// A kind.mu may be taken under a server.mu, never the other way round.
//
// What happens on failure:
//
//	load fails, connection lost   the batch waits and is loaded again; ids stay queued
//	load fails for one table      that table's rows wait a second, the others go on
//	a claim gets no answer        its rows are released until its connection is gone (unanswered.go); a claim with a deadline is read back
//	a session is not trusted      what is held is released, and nothing is claimed in its database
//	a session was ended           what has not begun is released; the contexts of deliveries end, and their failures count no more
//	a row has ended processes     few such rows are in hand at once (suspects.go); without sessions, one
//	target says "later"           no attempt is counted for a day (later.go); it gets deliveries at the rate that it takes, and rests
//	                              if it takes none (throttle.go)
//	handler panics                a failed attempt with the panic's text
//	a batch fails as a whole      its tasks are retried one by one; batches of retries return once these succeed
//	handler hangs                 a failed attempt at the time-out; its slot is taken until it returns, and its task's
//	                              next attempt waits for that, at most one more time-out
//	settle fails                  outcomes wait and are sent again; the server's lanes load no more when too many wait
//	settle fails for one row      the row is set aside and retried at growing intervals
//	settle meets a lock           the rows that others hold are set aside, and stored once nobody holds them, by half of the settlers
//	the row changed meanwhile     a fate, counted by its cause; a delivery that takes longer than a second is told: its context
//	                              ends when its task was cancelled or rescheduled, of a batch all tasks
//	the row's payload is newer    left alone for a program that reads it: see Newer
//	the process dies              nothing is settled: the rows are pending, or their claims run out
package dispatcher
