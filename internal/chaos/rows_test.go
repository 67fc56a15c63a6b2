package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// claims adds up how many claims all processes made, by their logs.
func (s *scenario) claims() (got, vain int) {
	s.t.Helper()
	paths, err := filepath.Glob(filepath.Join(s.opts.Dir, "*.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			s.t.Fatal(err)
		}
		most, inVain := 0, 0 // after its end a node has no counters
		for line := range strings.Lines(string(text)) {
			var of, in int
			if n, _ := fmt.Sscanf(line, claimsForm, &of, &in); n == 2 {
				most, inVain = max(most, of), max(inVain, in)
			}
		}
		got, vain = got+most, vain+inVain
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
			step := steps[i/3%len(steps)]
			step.Node = i % 3
			if !long() {
				step = steps[i%len(steps)]
				step.Node = i % 3
			}
			if err := s.inAClaim(ctx, i, step); err != nil {
				return err
			}
			s.pause(pick(500*time.Millisecond, 2*time.Second))
		}
		return nil
	})
	report := s.verdict()
	got, vain := s.claims()
	t.Logf("lost %d, second deliveries %d of %d, lateness outside faults %s, inside %s, claims in vain %d of %d",
		report.Lost(), report.Seconds(), report.Deliveries, report.Calm, report.Troubled, vain, got+vain)
	if got == 0 || got < report.Deliveries/2 {
		t.Errorf("%d claims for %d deliveries: rows were delivered without one", got, report.Deliveries)
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
	err := s.Do(ctx, step)
	if other := <-locked; err == nil {
		err = other
	}
	return err
}
