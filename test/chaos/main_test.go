package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// TestMain checks for goroutines that are left, but for one that a toxiproxy link
// leaves now and then when it is broken while it passes data on.
func TestMain(m *testing.M) {
	RunRole()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}

// long reports whether the long forms of the scenarios are wanted: make faults.
func long() bool { return os.Getenv("TOCSIN_FAULTS") != "" }

// pick gives a figure of a scenario in its short or its long form.
func pick[T any](short, full T) T {
	if long() {
		return full
	}
	return short
}

// onlyLong skips a scenario that has no short form.
func onlyLong(t *testing.T) {
	t.Helper()
	if !long() {
		t.Skip("takes minutes: make faults")
	}
}

// scenario is a cluster under test and what was asked of it.
type scenario struct {
	*Site
	t *testing.T
}

// manyAtOnce is the time-out of callbacks in short scenarios, which run beside each other, and of all deliveries where many are
// due at once: none of these is about time-outs. Those of schedules' runs keep theirs, since nodes are frozen for longer than that.
const manyAtOnce = 20 * time.Second

// begin starts a cluster. Short scenarios mostly wait, so they run side by side; the
// figures of long ones are not to be those of another.
func begin(t *testing.T, o Options) *scenario {
	t.Helper()
	if !long() {
		t.Parallel()
	}
	return beginAlone(t, o)
}

// beginAlone starts a cluster of a scenario that no other runs beside.
func beginAlone(t *testing.T, o Options) *scenario {
	t.Helper()
	o.Dir = t.TempDir()
	if o.Timing == (Timing{}) {
		o.Timing = quickTimes
	}
	if !long() && !o.Runs {
		o.HookTimeout = manyAtOnce
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	site, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(site.Logs(3000))
		}
		if err := site.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &scenario{site, t}
}

// small is one server and two nodes.
var small = Options{Servers: 1, Nodes: 2, Layout: tocsin.Layout{Databases: 2, Tables: 4, Prefix: "chaos"}}

// under runs do beside a load.
func (s *scenario) under(load Load, do func(context.Context) error) {
	s.t.Helper()
	if err := s.Under(s.t.Context(), load, do); err != nil {
		s.t.Fatal(err)
	}
}

// fill adds n tasks that are due over a span from a time on, of the types in turn; none: plain, strict and hook.
func (s *scenario) fill(n int, from time.Time, over time.Duration, work func(int) Work, types ...string) (all []draft) {
	s.t.Helper()
	if types == nil {
		types = []string{"plain", "strict", "hook"}
	}
	for i := range n {
		all = append(all, s.log.newTask(types[i%len(types)], from.Add(rand.N(over+1)), work(i)))
	}
	for some := range slices.Chunk(all, 1000) {
		s.addAll(s.t.Context(), some)
	}
	return all
}

// addMany adds n tasks without an entry in the log, and returns the biz_id of each.
func (s *scenario) addMany(n int, task func() tocsin.NewTask) map[tocsin.JobID]uint64 {
	s.t.Helper()
	of := make(map[tocsin.JobID]uint64, n)
	for len(of) < n {
		some := make([]tocsin.NewTask, min(n-len(of), 1000))
		for i := range some {
			some[i] = task()
		}
		added, err := s.client.AddMany(context.WithoutCancel(s.t.Context()), some)
		if err != nil {
			s.t.Fatal(err)
		}
		for i, a := range added {
			of[a.JobID] = some[i].BizID()
		}
	}
	return of
}

// brief is work that takes no time.
func brief(int) Work { return Work{} }

func (s *scenario) balance(nodes int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if err := s.AwaitBalance(ctx, nodes); err != nil {
		s.t.Fatal(err)
	}
}

// verdict prints the figures and fails for every broken promise.
func (s *scenario) verdict() *Report {
	s.t.Helper()
	report, err := s.Site.verdict(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("\n%s", report)
	if len(report.Breaches) > 0 {
		s.t.Errorf("%d promises broken", len(report.Breaches))
	}
	return report
}

// byTask reads the deliveries so far, by task.
func (s *scenario) byTask() map[tocsin.JobID][]delivery {
	s.t.Helper()
	records, err := readJournals(s.opts.Dir)
	if err != nil {
		s.t.Fatal(err)
	}
	return deliveries(records)
}

// all reads the deliveries so far, in order of their begin.
func (s *scenario) all() (all []delivery) {
	s.t.Helper()
	for _, of := range s.byTask() {
		all = append(all, of...)
	}
	slices.SortFunc(all, func(a, b delivery) int { return a.At.Compare(b.At) })
	return all
}

// pause lets the cluster go on for a while: the load, or an outage, is the event.
func (s *scenario) pause(d time.Duration) { _ = loop.Wait(s.t.Context(), d) }

// playUnder plays steps under a load, one after the other, with a rest before the first and after each.
func (s *scenario) playUnder(load Load, before, after time.Duration, steps ...Step) {
	s.t.Helper()
	s.under(load, func(ctx context.Context) error {
		s.pause(before)
		for _, step := range steps {
			if err := s.Do(ctx, step); err != nil {
				return err
			}
			s.pause(after)
		}
		return nil
	})
}

// Logs gives the last bytes of every process's log, for a failure's report.
func (s *Site) Logs(most int) string {
	paths, _ := filepath.Glob(filepath.Join(s.opts.Dir, "*.log"))
	all := ""
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err == nil && len(text) > 0 {
			all += filepath.Base(path) + ":\n" + string(text[max(0, len(text)-most):]) + "\n"
		}
	}
	return all
}

// leave ends the process with SIGTERM and leaves the seat empty.
func (at *seat) leave(ctx context.Context) error {
	err := at.term(ctx)
	at.kill()
	return err
}
