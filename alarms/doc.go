// Package alarms tells people of what only they can mend: tasks of a biz type that became dead, and schedules that missed
// runs. It is the authority for when an alarm is due, and for what it tells. An alarm is an ordinary task, so its delivery is
// retried.
//
//	settled as dead --> Died ----+                         +--> latest alarm --> dead tasks since --> add
//	                             +--> waiting --> raise ---+
//	look at all tables, 1m ------+  (5 s)                  +--> too early: again when its time has come
//
// Alarms of one biz type and kind are a chain: the dedup_key of each holds the time up to which the one before it has
// counted. So processes that notice the same deaths add one alarm, whichever is first, and they need not know of each other. An
// alarm is added at the earliest AtMostEvery after the one before, and counts all deaths since, whoever noticed them. The
// tables say what died, so an alarm that a process did not come to add is added by the next one that looks.
//
// Nothing waits for this package. Died and Missed note a few words under a lock; one goroutine, Run, does the rest. What is
// noted is bounded: one entry for each biz type and kind.
//
// On failure: a table that can't be read is left out of the count and named in the alarm, and counted by the next one. If the
// alarm can't be added, it is tried again every ten seconds. A process that ends forgets the missed runs that it has noted.
package alarms
