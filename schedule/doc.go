// Package schedule is for tasks that repeat. A schedule has fire times, and for each of them it makes a task, its run.
//
//	Definition --Apply--> row of the table schedule --Make--> runs, pending tasks of one biz_id
//
//	inactive --Activate--> active --no fire time is left--> ended
//	   ^---- Deactivate ----/  \--failed runs in a row--> paused --Activate--> active
//
// A schedule is stored in the database of its runs, so every change is one transaction there. Its row is the authority:
// fire times up to made_until are made or passed over, whatever became of the runs. The dedup_keys of runs are no
// authority, since a cancel frees the key and a purge deletes the row.
//
// Whoever owns the schedule's table makes its runs, up to 20 minutes ahead (see maker). It locks the row, inserts the runs
// and moves made_until in one transaction, so of two makers one finds nothing to do. A change of a schedule raises its
// revision, and decides about the runs of both: see transition.
//
// All times are by the database's clock. Package firetimes knows when a cron expression fires.
//
// On failure: nothing is half done. A call whose answer got lost reads back what was stored. Runs are made well ahead, so
// a database or a maker may be away for minutes before a fire time is late; missed ones are made up for by the schedule's
// policy, never more than its bound.
package schedule
