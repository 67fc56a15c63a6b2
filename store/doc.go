// Package store holds the statements of a node and is the authority for what
// each of them reads and writes, and under which condition.
//
//	scanner -----> Peek, Bells, Recover      ids of rows nearly due
//	dispatcher --> Load, Claim, Settle       rows by primary key, outcomes
//	assign ------> Own, Owners               who took a table last
//	operator ----> Check, Counts, Facts, Redrive
//
// Every write carries its own condition, so a race has one winner: zero rows
// affected is a Fate with a name, not an error. All instants are Unix
// milliseconds by the clock of the server that holds the row; Now estimates
// that clock from below, so that nothing starts early.
//
// On failure: what reads or takes rows of many tables at once repeats a failed
// group table by table, so that a missing or locked table hides no other; the
// errors name it. Deadlocks are repeated for half a second. Settle is one
// transaction that is rolled back on any error. After a lost connection only
// the caller can tell whether to ask again; every write here may be repeated.
package store
