// Package store holds the statements of a node and is the authority for what each of
// them reads and writes, under which condition, and which databases a node can use.
//
//	scanner -----> Peek, Bells, Recover      ids of rows nearly due
//	               Due                       whole rows of a backlog
//	dispatcher --> Load, Claim, ReadBack     rows by primary key
//	               ClaimRows                 rows under a session
//	               ReleaseDoubtful           rows of claims that got no answer
//	               Settle                    outcomes
//	               Prolong                   claims of handlers that are over their time-out
//	               Recheck                   what was cancelled or rescheduled during its delivery
//	session -----> BeatSessions, Sessions    who may claim
//	               OwnClaims                 what a process has claimed
//	assign ------> Own, Owners               who took a table last
//	upkeep ------> Peek, Recover             overdue rows of any table
//	               Purge, PurgeBells         rows that finished long ago
//	               Audit, Lacking            rows and tables with faults
//	Health ------> Survey                    clocks, and which databases may be used
//	operator ----> Check, Counts, Facts, Find, Look, Redrive, Dead, RedriveDead, Bury
//
// Every write carries its own condition, so a race has one winner: zero rows affected
// is a Fate with a name, not an error. All instants are Unix milliseconds by the
// clock of the server that holds the row; Now estimates that clock from below, so
// that nothing starts early.
//
// A database must not be used if its layout row differs from the config or can't be
// read: every statement to it is refused with an *Unusable before it is sent. Layout
// rows are read over each new connection, since another server may stand behind the
// address, and again by Survey and Measure.
//
// On failure: a statement that reads or takes rows of many tables at once repeats a
// failed group table by table, so that a missing or locked table hides no other; the
// errors name it. Prolong, Recover, ReleaseDoubtful and RedriveDead also leave out rows that other
// transactions hold. Deadlocks are repeated for half a second. Settle is one transaction
// that is rolled back on any error. After a lost connection only the caller can
// decide whether to ask again. Every write here may be repeated, except RecordRuns,
// which might store runs twice, and Reserve, which refuses a revision that is stored.
package store
