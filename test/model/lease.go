package model

import "fmt"

// This model has one row of a biz type whose tasks workers ask for. A lease is a claim with a token of its own kind
// and an end; no session stands behind it.
//
//	node:   claims the row for a worker that waits; expires a lease whose end has passed
//	worker: completes, fails, releases or extends under its lease; is frozen, or killed
//
// Its promises: a lease that has not ended is never taken from its worker; what is written under an old lease changes no later one; a success counts once;
// a released row has the time that it had; every row ends.
// A tick is half of a lease.

// Bounds of a play.
const (
	leaseTicks = 2
	leaseTries = 3
	leaseHands = 2 // workers
)

// leasedRow is the task's row.
type leasedRow struct {
	status   status
	own      int8 // action time of the task: 0: due; 1: due in the next tick
	end      int8 // of the lease; -1: passed
	token    uint8
	attempts uint8
}

// leaseHand is what a worker has.
type leaseHand struct {
	token   uint8 // 0: nothing
	own     int8  // of the row as it was claimed
	sent    bool  // the claim's answer is under way
	frozen  bool
	settled bool // its answer is under way, and it will send the same again
	fails   bool
}

// leases is one state of the world.
type leases struct {
	row     leasedRow
	hands   [leaseHands]leaseHand
	expires uint8 // the lease that a node has found to have ended
	faults  uint8
	renamed uint8
}

// LeaseGuard is a rule of leases. Each can be switched off to show what it prevents.
type LeaseGuard uint8

// The guards.
const (
	LeaseEndInWrite LeaseGuard = iota // the write that expires a lease asks whether its end has passed
	LeaseFailToken                    // a failure is stored by the token
	LeaseExtendMine                   // only the lease at hand is extended
	LeaseNewToken                     // each lease has a token of its own
	LeaseOwnTime                      // a release writes the row's own time
	LeaseExpires                      // a lease that ran out is expired, by whichever node looks
	leaseGuards
)

var leaseGuardNames = [leaseGuards]string{
	"the write asks whether the end has passed", "a failure is stored by the token", "only the lease at hand is extended", "each lease has its own token",
	"a release writes the row's own time", "leases are expired by any node",
}

// leaseWorld makes the steps.
type leaseWorld struct {
	off [leaseGuards]bool
	steps[leases]
}

func (w *leaseWorld) start() leases { return leases{faults: 2, row: leasedRow{own: 0}} }

// sort renames tokens in the order in which they appear.
func (w *leaseWorld) sort(s *leases) {
	var n naming
	for i := range s.hands {
		n.name(&s.hands[i].token)
	}
	n.name(&s.row.token, &s.expires)
	s.renamed = n.last
}

func (w *leaseWorld) moves(s *leases) []step[leases] {
	w.out = w.out[:0]
	r := &s.row
	if r.status.final() {
		return nil
	}
	w.emit(s, nobody, "time passes", true, func(t *leases) string {
		t.row.own = max(t.row.own-1, 0)
		t.row.end = max(t.row.end-1, -1)
		for i := range t.hands {
			t.hands[i].own = max(t.hands[i].own-1, 0)
		}
		return ""
	})
	if r.status == claimed && r.end < 0 && s.expires == 0 && !w.off[LeaseExpires] {
		w.emit(s, nobody, "a node finds a lease that has ended", true, func(t *leases) string { t.expires = t.row.token; return "" })
	}
	if s.expires != 0 {
		w.emit(s, nobody, "a node expires the lease", true, func(t *leases) string { return w.expire(t) })
	}
	for i := range s.hands {
		w.hand(s, i)
	}
	return w.out
}

// expire ends a lease that ran out.
func (w *leaseWorld) expire(t *leases) string {
	r := &t.row
	found := t.expires
	t.expires = 0
	if r.status != claimed || r.token != found || r.end >= 0 && !w.off[LeaseEndInWrite] {
		return ""
	}
	if r.end >= 0 {
		return "a lease is expired that has not ended"
	}
	r.attempts++
	r.free(leaseTries)
	return ""
}

// free makes the row due again, or dead after so many attempts.
func (r *leasedRow) free(tries uint8) {
	r.token, r.end, r.own = 0, 0, 0
	if r.status = pending; r.attempts >= tries {
		r.status = dead
	}
}

// hand adds the steps of a worker, and of the node that serves it.
func (w *leaseWorld) hand(s *leases, i int) {
	h := &s.hands[i]
	switch {
	case h.frozen:
		w.emit(s, i, "is continued", s.hands[1-i].frozen, func(t *leases) string { t.hands[i].frozen = false; return "" })
		return
	case h.token == 0 && s.row.status == pending && s.row.own <= 0:
		w.emit(s, i, "is served the row", true, func(t *leases) string {
			t.renamed++
			token := t.renamed
			if w.off[LeaseNewToken] {
				token = 1
			}
			t.hands[i] = leaseHand{token: token, own: t.row.own, sent: true}
			t.row.status, t.row.token, t.row.end = claimed, token, leaseTicks
			return ""
		})
	case h.sent:
		w.emit(s, i, "gets its answer", true, func(t *leases) string { t.hands[i].sent = false; return "" })
		w.emit(s, i, "goes before it is answered, and the row goes back", true, func(t *leases) string { return w.release(t, i) })
	case h.token != 0:
		w.work(s, i)
	}
	if s.faults == 0 || h.token == 0 {
		return
	}
	w.emit(s, i, "is stopped", false, func(t *leases) string { t.faults--; t.hands[i].frozen = true; return "" })
	w.emit(s, i, "dies, or its answer is lost", false, func(t *leases) string { t.faults--; t.hands[i] = leaseHand{}; return "" })
}

// work adds what a worker does under its lease.
func (w *leaseWorld) work(s *leases, i int) {
	for _, fails := range []bool{false, true} {
		if s.hands[i].settled && s.hands[i].fails != fails {
			continue
		}
		what := "completes"
		if fails {
			what = "fails"
		}
		w.emit(s, i, what, true, func(t *leases) string { return w.settle(t, i, fails) })
		if s.faults > 0 {
			w.emit(s, i, what+", and the answer is lost", false, func(t *leases) string {
				t.faults--
				h := t.hands[i]
				h.settled, h.fails = true, fails
				bad := w.settle(t, i, fails)
				t.hands[i] = h
				return bad
			})
		}
	}
	w.emit(s, i, "extends its lease", false, func(t *leases) string {
		h, r := &t.hands[i], &t.row
		if r.status != claimed || r.token != h.token && !w.off[LeaseExtendMine] {
			t.hands[i] = leaseHand{}
			return ""
		}
		if r.token != h.token {
			return "a worker extends the lease of another"
		}
		r.end = leaseTicks
		return ""
	})
}

// settle stores a worker's outcome.
func (w *leaseWorld) settle(t *leases, i int, fails bool) string {
	h, r := t.hands[i], &t.row
	t.hands[i] = leaseHand{}
	if !fails {
		r.status, r.token = done, 0
		return ""
	}
	if r.status != claimed || r.token != h.token && !w.off[LeaseFailToken] {
		return ""
	}
	if r.token != h.token || w.off[LeaseNewToken] && t.hands[1-i].token == h.token && !t.hands[1-i].settled {
		return "a failure under an old lease ends a later one"
	}
	r.attempts++
	r.free(leaseTries)
	r.own = 1
	return ""
}

// release gives back a row that no worker got.
func (w *leaseWorld) release(t *leases, i int) string {
	h, r := t.hands[i], &t.row
	t.hands[i] = leaseHand{}
	if r.status != claimed || r.token != h.token {
		return ""
	}
	end := r.end
	r.status, r.token, r.end = pending, 0, 0
	if r.own = h.own; w.off[LeaseOwnTime] {
		r.own = end
	}
	if r.own != h.own {
		return "a released row has another time"
	}
	return ""
}

// settled reports whether the row is final.
func (w *leaseWorld) settled(s *leases) bool { return s.row.status.final() }

func (w *leaseWorld) stuck(s *leases) string {
	return fmt.Sprintf("LOST: the row stays %s for ever", s.row.status)
}

func (w *leaseWorld) first(s *leases) string { return "the task: " + s.row.status.String() }

func (w *leaseWorld) line(mv *step[leases]) string {
	r := &mv.to.row
	return fmt.Sprintf("%-60s %s, lease %d ends at %+d, attempts %d", named("worker", mv.who)+mv.what, r.status, r.token, r.end, r.attempts)
}

// String names the play.
func (w *leaseWorld) String() string { return "leases of workers" }
