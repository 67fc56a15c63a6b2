// Package alarms alerts people to problems that only they can solve: dead tasks of a biz type, and schedules that missed
// runs. It is the authority for when an alarm is due and what it reports. An alarm is an ordinary task, so its delivery
// is retried.
//
//	settled as dead --> Died ----+                         +--> latest alarm --> dead tasks since --> add
//	                             +--> waiting --> raise ---+
//	look at all tables, 1m ------+  (5 s)                  +--> too early: again when its time has come
//
// Alarms of one biz type and kind are a chain: the dedup_key of each holds the time up to which the one before it has
// counted. So processes that notice the same deaths add one alarm, whichever is first, and they need not know of each
// other. An alarm is added no sooner than AtMostEvery after the one before, and counts all deaths since, whichever
// process noticed them. The deaths are in the tables, so if a process ends before it adds an alarm, the next process that
// looks adds it.
//
// Nothing waits for this package. Died and Missed only note the event under a lock; one goroutine, Run, does the rest.
// Memory is bounded: one entry for each biz type and kind.
//
// On failure: a table that can't be read is left out of the count, named in the alarm, and counted by the next alarm. If
// the alarm can't be added, it is tried again every ten seconds. A process that ends forgets the missed runs that it has
// noted.
package alarms
