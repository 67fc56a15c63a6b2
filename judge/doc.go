// Package judge is the authority for which runs of schedules are delivered. A Judge wraps the target of each biz type, in
// nodes and in sweeps, and decides about a run when its delivery begins:
//
//	run --> is its revision the schedule's?   no: cancelled, if it was in a delivery when its schedule changed
//	    --> later than start_within?          missed: skip, once (the latest), all (the latest of them)
//	    --> is an earlier run open?           overlap: allow, skip, queue, replace
//	    --> target
//
// It decides from rows alone, so it does not matter which process delivers, or how many do. Nobody needs to remember
// anything, and two judges need no lock: whether a run is missed follows from its schedule's fire times, and of two runs
// that are due together only the later one asks about the earlier one.
//
// Tasks that are no runs pass untouched. A run in time whose schedule allows overlaps costs no statement if one of the same
// schedule was judged within a minute: a schedule of one revision never changes, unless a fail-over loses an edit and another
// one gets its revision. A retry is delivered unless its revision is no longer the schedule's.
//
// If the schedule, or its open runs, can't be read, the run is put off for a second or two and no attempt is counted.
//
// A schedule may be paused after failed runs in a row: a run has failed when its task becomes dead. The outcomes are counted in
// the schedule's row, after they are stored, by Run.
//
// Runs that are not delivered end as cancelled, with the reason as their last error. One exception is left: an operator's
// redrive of an old dead run is not seen as an open run by others.
package judge
