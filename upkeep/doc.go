// Package upkeep is the work that goes over all tables of a cluster and belongs to no owner of tables, and what is done beside
// each delivery. All servers are walked at the same time, 64 tables together.
//
//	sweeper   tasks that are overdue and still pending --> an intake, which claims and delivers them
//	purge     finished tasks, runs and rings of the doorbell --> gone
//	audit     rows of tasks, schedules and runs --in the server--> counted by biz type and fault
//	backlog   what is overdue, pending, claimed and dead --> metrics
//	alarms    tasks that became dead, runs that were missed --> a task that reports them
//	recorder  attempts that have ended --> rows of the history
//
// It is the authority for how long a task must be overdue before anyone but its owner looks at it (the grace time), how long
// finished rows are kept, what can be seen to be wrong from a row itself, when an alarm is due and what it reports, and
// what recording the attempts may cost. Any number of processes may do all of this at the same time.
//
// On failure: a table that can't be read or written costs itself only; a server that does not answer costs its own tables
// only, and is named in the result, which is good for the others; the next run tries again. Each kind of work may be cut off at
// any point. A pause follows each page of an audit and of the backlog, each batch that a purge removes, and each batch of a
// recorder whose queue is not half full.
//
// The metrics of the last run of recurring work have the same names for a resident process and for a command that cron starts.
package upkeep
