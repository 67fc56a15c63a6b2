// Package auditor looks for tasks that are not as they should be. It is the
// authority for what is right about a row that can be seen from the row itself,
// and changes nothing.
//
//	schedules   --in the server--> rows by biz type and faults --> Report
//	every table --in the server--> rows by biz type and faults --> Report
//	the history --in the server--> rows by biz type and faults --> Report
//	biz_ids of the business ------> those that have no task    --> Missing
//
// Live rows (pending, claimed) are all read, finished ones that were settled
// within Config.Settled: so an audit in each such time reads every row at least
// once in its final state, and costs what happened since, not what is stored. The
// same holds for runs of the history; schedules, which are few, are all read. The
// servers check and count; what travels is a line for each table, biz type and
// kind of fault, with a few job_ids. A statement reads a bounded range of an
// index and locks nothing, and a pause as long as it took follows it. The Report
// says what it cost.
//
// On failure: a table that cannot be read costs itself only; a server that does
// not answer costs its own tables only, and is named in Report.Failed. The
// findings are good for the others.
package auditor
