// Package generator is the authority for when the runs of schedules are made: well ahead of their times, by the node that
// owns the schedule's table. A pass asks each server for the schedules whose next fire time is less than schedule.Step
// ahead, the earliest first, and makes the next runs of each in a transaction of its own:
//
//	pass: Due --a thousand schedules--> Make, some at once --> Due ... until none is left --> wait for Step/4
//
// Any number of generators may work on one schedule: a Make locks its row, and finds nothing to do if another one was
// faster. So a generator needs no lease, and losing a table in the middle of a pass costs one useless query.
//
// Each server has passes of its own, so one that does not answer hides no other. Passes of many schedules are spread over a
// minute, unless runs are near.
//
// On failure a schedule is left out of the rest of the pass, and the next pass follows soon. Runs are made at least ten
// minutes ahead, so a shorter failure delays no run; a longer one is reported as behind.
package generator
