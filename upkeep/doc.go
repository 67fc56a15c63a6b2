// Package upkeep is the work that goes over all tables of a cluster and belongs to no owner of tables. All servers are
// walked at the same time, 64 tables together, and a pause follows each statement.
//
//	purge     finished tasks, runs and rings of the doorbell --> gone
//	audit     rows of tasks, schedules and runs --in the server--> counted by biz type and fault
//	backlog   what is overdue, pending, claimed and dead --> metrics
//	alarms    tasks that became dead, runs that were missed --> a task that reports them
//
// It is the authority for how long finished rows are kept, for what can be seen to be wrong from a row itself, and for when
// an alarm is due and what it reports. Any number of processes may do all of this at the same time.
//
// On failure: a table that can't be read or written costs itself only; a server that does not answer costs its own tables
// only, and is named in the result, which is good for the others. Each kind of work may be cut off at any point.
//
// LastRun exports how the last run of recurring work ended, under the same names for a resident process and for a
// command that cron starts.
package upkeep
