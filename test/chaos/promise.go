package chaos

// The promises about every task.
const (
	promiseStored    = "an acknowledged add is stored"
	promiseRefused   = "a refused add is not stored"
	promiseSameID    = "an add is stored once, under the id it was given"
	promiseOneRow    = "one row a task"
	promiseEnds      = "a task ends"
	promiseDelivered = "what is done was delivered"
	promiseKnown     = "what is delivered was stored"
	promiseOwnID     = "each delivery carries the id and a version of its task"
	promiseEarly     = "never early"
	promiseAttempts  = "an attempt is counted for each failure, and for no crash"
	promiseLastTry   = "a task is buried after its last attempt or fifth crash only"
	promiseOneEnd    = "a final state stays"
	promiseUser      = "nobody cancels but the user"
	promiseCancelled = "a cancelled task stays cancelled"
	promiseNotBegun  = "a cancelled task is not delivered"
	promiseVersion   = "a rescheduled task has a new version"
	promiseCause     = "a second delivery has a cause"
	promiseStrict    = "a strict task is delivered by nobody else while its claim lasts"
	promiseClosed    = "a wrong database takes no write"
)

// The promises about tasks that workers ask for.
const (
	promiseLeased  = "what a worker has was leased in the row"
	promiseLease   = "a lease is nobody else's, and is not taken back within 5 s after its end"
	promiseHanded  = "while a worker waits, a due task is handed over within 6 s, and within 6 s after the end of a lease that ran out"
	promiseBuried  = "a task that workers ask for is dead only if one of them said so"
	promiseSuccess = "a success is never undone"
)

// The promises of outboxes.
const (
	promiseMoved      = "what is committed is moved"
	promiseInOrder    = "of one biz_id rows are moved in their order"
	promiseRolledBack = "nothing is moved of a transaction that was rolled back"
	promiseOnce       = "an add of an outbox is stored once"
	promiseCancel     = "a cancel is not lost"
	promiseReschedule = "reschedules take hold in their order"
	promiseEmpty      = "no row is left in an outbox"
	promiseDurable    = "a business server keeps what it acknowledged" // else the harness is wrong
)

// The promises of schedules.
const (
	promiseFire     = "a fire time has a task"
	promiseOneTask  = "a fire time has one task"
	promiseOneRun   = "a fire time is not done for two revisions"
	promiseCut      = "at a change each fire time is of one revision"
	promiseNoFire   = "a run is for a fire time of its revision"
	promiseIdle     = "a schedule that is not active makes no run"
	promiseDead     = "no run of a dead revision is begun"
	promiseAsked    = "a revision is as somebody asked for it"
	promiseChange   = "an acknowledged change is stored"
	promiseAnchor   = "@every counts from the activation"
	promiseHand     = "a run by hand is one that somebody asked for"
	promiseOffset   = "a run is due at its fire time, later by a constant below the jitter"
	promiseMissed   = "only a run that is late is missed"
	promiseTold     = "a delivery is told its schedule, fire time and payload"
	promisePurge    = "only what has ended is deleted"
	promiseClaim    = "what has to be claimed begins within 5 s of its claim"
	promiseBackfill = "a backfill makes a run for each fire time of its span"
	promiseTurn     = "no run begins while an earlier one of its schedule is open, unless overlap is allow"
	promiseAlone    = "two runs of a schedule that skips or queues are not in delivery at once"
	promiseSkipped  = "a run is skipped beside an open one only: one, or two of a queue"
	promiseReplaced = "a run is replaced by a later one only, which is delivered"
	promiseWaits    = "a run that waits begins when the earlier ones have ended"
	promisePause    = "a schedule is paused after as many failed runs in a row as pause_after says"
)
