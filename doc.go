// Package tocsin adds tasks that must be acted on at a given time, and looks
// them up, cancels and reschedules them, in ordinary MySQL tables.
//
// A task is one row: act at its action time on behalf of a biz_id, an order
// number or a user number, say. The row's place follows from the biz_id alone
// (see Layout), so a task can be added in the caller's own transaction
// (Client.AddTx) and exists exactly if that transaction committed. Nodes
// (package node, or the command tocsin serve) deliver it.
//
//	            +--------- reschedule, retry, snooze ---------+
//	            v                                             |
//	add --> pending --- claim ---> claimed --- outcome ------>+
//	            |                     |                       |
//	            | cancel              | recover               v
//	            v                     v                 done, dead
//	        cancelled              pending
//
// The package is the authority for where a row lives, for the form of a job_id
// and for the writes that users make. On failure each call says what was
// stored: an error of Add means that the task is not there, or, where the
// server could not be asked again, wraps ErrUnknownOutcome.
package tocsin
