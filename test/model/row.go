package model

import "fmt"

// status is a row's, with the numbers of the table; purged is a row that is gone.
type status uint8

const (
	pending status = iota
	claimed
	done
	cancelled
	dead
	purged
)

var statusNames = [...]string{"pending", "claimed", "done", "cancelled", "dead", "purged"}

func (s status) String() string { return statusNames[s] }

func (s status) final() bool { return s >= done }

// The bounds of the protocol, in ticks and counts, as small as they can be without making two of them the same.
const (
	timeout     = 1 // of a delivery
	margin      = 1 // a claim lasts the time-out and this, and must start within this
	hold        = timeout + margin
	recoverLate = 1 // a claim is recovered so long after its deadline
	settleLate  = 1 // a process that lives needs so long at most to write an outcome
	stale       = 1 // a row loaded without a claim must start within this
	claimAfter  = 1 // an owner claims first what is overdue by this
	grace       = claimAfter + timeout + margin + stale
	retention   = 1
	maxAttempts = 2
	maxCrashes  = 2
)

// past is the action time of a loaded row that no later write can produce again: writes set now or later. The one
// exception, a sweeper that gives back what it has not begun, is covered by actor.again.
const past = -1

// row is the part of the row that conditions read or writes set. Times are relative to now; all times long past are
// equal. Only the checks know turn.
type row struct {
	status   status
	action   int8 // action_time
	due      int8 // what was asked for last, as due_time; 0: it has come
	attempts uint8
	crashes  uint8
	version  uint8

	turn     turn
	claimant uint8 // index+1 of the actor in claimed_by; 0: none, or one that was killed
}

// turn is what was started since the row last became pending by an outcome or by the user.
type turn struct {
	started bool
	excused bool // who started it was killed, frozen or cut off before its outcome was stored
}

// tick lets time pass.
func (r *row) tick() {
	r.due = max(r.due-1, 0)
	r.action = max(r.action-1, r.oldest())
}

// oldest is the earliest action time that any condition tells from earlier ones.
func (r *row) oldest() int8 {
	switch r.status {
	case pending:
		return -grace
	case claimed:
		return -recoverLate
	case purged:
		return 0
	}
	return -retention
}

// visible reports whether a user sees the same row.
func (r *row) visible(other *row) bool {
	a, b := *r, *other
	a.turn, b.turn, a.claimant, b.claimant = turn{}, turn{}, 0, 0
	return a == b
}

func (r *row) String() string {
	return fmt.Sprintf("%s at %+d, version %d, attempts %d, crashes %d", r.status, r.action, r.version, r.attempts, r.crashes)
}
