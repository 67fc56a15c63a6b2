package chaos

import (
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
