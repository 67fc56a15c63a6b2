// Package contest gives the same work to several systems that keep tasks and
// deliver them, and is the authority for how that work is measured: what is
// inserted, when a clock starts and stops, what counts as settled.
//
//	round 1:  a  b  c      each on servers started for it
//	round 2:  b  c  a      the order turns, so that nobody always follows the same one
//	round 3:  c  a  b
//
// A system's turn in a round is
//
//	lateness   for each rate: tasks added all the time, due 6 to 9 whole seconds later
//	insert     tasks due in an hour, in batches of up to 1,000; they stay
//	drain      tasks that are all due, inserted while nothing is delivered, to a handler that does nothing
//
// Every delivery is noted under the task's number. A turn fails, and gives no
// figure, unless every task was delivered, the system says that no outcome is on
// its way, and a count of its own store, taken after the clock has stopped,
// agrees. Second deliveries are counted, not hidden.
//
// On failure: the run ends with the first error; the system at hand is closed.
package contest
