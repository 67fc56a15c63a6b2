// Package purger removes rows that are of no more use: finished tasks, and runs of
// the history, past the retention of their biz type, and old rings of the doorbell. It is the
// authority for how long a finished task is kept: by its biz type's policy, 30
// days unless that says otherwise. It never removes a pending or claimed task,
// and dead ones only if asked.
//
//	every table --peek finished--> batches by primary key --purge--> gone
//	                                  ^ fewer rows after a lock time-out, one at last;
//	                                  | more again after batches that went well
//
// A batch is one short transaction on one table, and a pause as long as the
// batch took follows it, so that scans and settling are never held up. What a
// batch deletes is what still is as it was found: the DELETE repeats the
// condition. Tasks of a type that no policy names are left.
//
// On failure: a row that stays locked is left for the next purge, and counted; a
// table that cannot be read or written costs itself only; a server that does not
// answer costs its own tables only, and is named in Result.Failed. A purge may be
// cut off at any point, and several may run at once.
package purger
