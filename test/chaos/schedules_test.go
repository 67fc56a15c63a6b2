package chaos

import (
	"context"
	"testing"
	"time"
)

// shortTimers are the faults of the short form: each kind once. The node is frozen past its lease.
var shortTimers = []Step{
	{At: 2 * time.Second, Length: 2 * time.Second, Fault: KillNode, Node: 0},
	{At: 8 * time.Second, Length: 6 * time.Second, Fault: FreezeNode, Node: 1},
	{At: 16 * time.Second, Length: time.Second, Fault: KillServer, Server: 1},
	{At: 22 * time.Second, Length: 6 * time.Second, Fault: StopEtcd},
	{At: 36 * time.Second, Length: 2 * time.Second, Fault: TermNode, Node: 2},
}

// TestSchedulesUnderFaults: schedules are made, edited, deactivated, activated and deleted, and their runs made by hand, backfilled
// and cancelled, while nodes, servers and etcd die, and a purger deletes what has ended a second ago. There is each policy for overlaps, and
// some are paused after failures.
func TestSchedulesUnderFaults(t *testing.T) {
	o := Options{Servers: 2, Nodes: 3, Sweeper: true, Runs: true}
	steps := shortTimers
	cfg := Config{Seed: 1, Length: 45 * time.Second, Out: t.Output(), Timers: TimerLoad{Schedules: 80, Changes: 8}}
	if long() {
		cfg.Length, cfg.Timers = 5*time.Minute, TimerLoad{Schedules: 2000, Changes: 8, Measure: 30 * time.Second}
		steps = NewSchedule(1, cfg.Length, o)
		t.Log("\n" + Text(steps))
	}
	s := begin(t, o)
	cfg.Options = s.opts
	r, err := s.run(t.Context(), cfg, steps)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", r)
	if len(r.Breaches) > 0 {
		t.Errorf("%d promises broken", len(r.Breaches))
	}
	for _, kind := range []string{createTimer, editTimer, activateTimer, deactivateTimer, deleteTimer, runTimer, backfillTimer, cancelRun} {
		if r.Counts[lineChanges][kind+" "+string(acknowledged)] == 0 {
			t.Errorf("no %s was acknowledged", kind)
		}
	}
	for line, things := range map[string][]string{
		lineRuns:      {"purged", "backfilled"},
		lineCancelled: {"by a change", "by hand", "skipped", "replaced"},
		linePaused:    {"after as many failed runs as asked for"},
	} {
		for _, what := range things {
			if r.Counts[line][what] == 0 {
				t.Errorf("%s: none %s", line, what)
			}
		}
	}
	if fires := r.Counts[lineFires]["in all"]; fires < 45*20/2 || len(r.Times[timeTroubled]) == 0 || len(r.Times[timeWaits]) == 0 {
		t.Errorf("too little happened: %d fire times, %d late runs inside faults, %d that waited", fires, len(r.Times[timeTroubled]), len(r.Times[timeWaits]))
	}
}

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
	if err := s.Selling(t.Context(), load, func(ctx context.Context) error { return s.Play(ctx, steps) }); err != nil {
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
