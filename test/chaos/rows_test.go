package chaos

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

// claims adds up how many claims all processes made, by their logs.
func (s *scenario) claims() (got, vain float64) {
	s.t.Helper()
	logs, err := filepath.Glob(filepath.Join(s.opts.Dir, "*.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, log := range logs {
		counts := countersIn(log)
		got, vain = got+counts[claimsTold], vain+counts[vainTold]
	}
	return got, vain
}

// TestWithoutEtcdNodesAreKilledAndFrozen: three nodes claim every row. One after the other is killed, or frozen for less
// and for more than its claims last, also while its claims wait for a lock. Tasks are cancelled and rescheduled meanwhile, claimed ones too.
func TestWithoutEtcdNodesAreKilledAndFrozen(t *testing.T) {
	s := begin(t, Options{Servers: 1, Nodes: 3, NoEtcd: true, Layout: small.Layout})
	steps := []Step{
		{Fault: KillNode, Length: pick(500*time.Millisecond, time.Second)},
		{Fault: FreezeNode, Length: pick(2*time.Second, 3*time.Second)},
		{Fault: FreezeNode, Length: pick(time.Second, 20*time.Second)},
	}
	length := pick(7*time.Second, 5*time.Minute)
	rate := pick(100, 300)
	s.under(Load{Rate: rate, Near: time.Second, Far: 3 * time.Second, Changes: 0.12, Work: 5, Types: []string{"plain", "hook"}}, func(ctx context.Context) error {
		for i, end := 0, time.Now().Add(length); time.Now().Before(end); i++ {
			step := steps[i/pick(1, 3)%len(steps)]
			step.Node = i % 3
			if err := s.inAClaim(ctx, i, step); err != nil {
				return err
			}
			s.pause(pick(500*time.Millisecond, 2*time.Second))
		}
		return nil
	})
	report := s.verdict()
	got, vain := s.claims()
	t.Logf("lost %d, second deliveries %d of %d, lateness outside faults %s, inside %s, claims in vain %.0f of %.0f",
		report.Lost(), report.Seconds(), report.Deliveries, report.Times[timeCalm], report.Times[timeTroubled], vain, got+vain)
	if got == 0 || got < float64(report.Deliveries)/2 {
		t.Errorf("%.0f claims for %d deliveries: rows were delivered without one", got, report.Deliveries)
	}
}

// inAClaim plays a step; every other one while the claims of one table wait for a lock.
func (s *scenario) inAClaim(ctx context.Context, i int, step Step) error {
	if i%2 == 0 {
		return s.Do(ctx, step)
	}
	locked := make(chan error, 1)
	go func() {
		locked <- s.Do(ctx, Step{Fault: LockTable, Length: time.Second, Table: i % s.opts.Layout.Total()})
	}()
	s.pause(500 * time.Millisecond)
	return errors.Join(s.Do(ctx, step), <-locked)
}
