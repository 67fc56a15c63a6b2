package chaos

import (
	"context"
	"testing"
	"time"
)

// shortOutboxes are the faults of the short form: each kind once, and a relay that is frozen until another is active.
var shortOutboxes = []Step{
	{At: 500 * time.Millisecond, Length: 6 * time.Second, Fault: TwoRelays},
	{At: time.Second, Length: pastLock, Fault: FreezeActive, Shop: 0},
	{At: 2 * time.Second, Length: 500 * time.Millisecond, Fault: KillShop, Shop: 1},
	{At: 5 * time.Second, Length: time.Second, Fault: KillServer, Server: 0},
	{At: 9 * time.Second, Length: time.Second, Fault: KillActive, Shop: 1},
}

// TestOutboxesUnderFaults: services add, cancel and reschedule in their transactions on business servers while relays are
// killed, frozen past their lock and active at the same time, and servers of both sides die.
func TestOutboxesUnderFaults(t *testing.T) {
	o := small
	o.Shops = 2
	o = pick(o, Options{Servers: 2, Nodes: 3, Shops: 3, Sweeper: true})
	steps, load := shortOutboxes, OrderLoad{Rate: 40, Far: 4 * time.Second}
	if long() {
		steps, load = NewSchedule(1, 5*time.Minute, o), OrderLoad{Rate: 300}
		t.Log("\n" + Text(steps))
	}
	s := begin(t, o)
	frozen := s.active(t.Context(), 0)
	if err := s.Selling(t.Context(), 1, load, func(ctx context.Context) error { return s.Play(ctx, steps) }); err != nil {
		t.Fatal(err)
	}
	if !long() && s.active(t.Context(), 0) == frozen {
		t.Errorf("the relay in %s was frozen, and no other has taken the lock", frozen.name)
	}
	r := s.verdict()
	for _, kind := range []string{opAdd, opCancel, opReschedule} {
		if r.Counts[lineCommitted][kind] == 0 {
			t.Errorf("no %s was committed", kind)
		}
	}
	if r.Counts[lineTransactions][string(rolledBack)] == 0 || len(r.Times[timeMoved+besideFaults]) == 0 {
		t.Error("nothing was rolled back, or moved during a fault")
	}
}
