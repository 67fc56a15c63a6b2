package chaos

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// As installed: the defaults of a node, and the production layout. And short ones; in calmTimes no lease is meant to run out.
var (
	asShipped  = Timing{Lease: leaseOnEtcd(), Scan: 5 * time.Second, Grace: time.Minute, Drain: 40 * time.Second}
	quickTimes = Timing{Lease: 2 * time.Second, Scan: time.Second, Grace: 12 * time.Second}
	calmTimes  = Timing{Lease: 10 * time.Second, Scan: time.Second, Grace: 12 * time.Second}
)

// clustered is a cluster of one server for runs about its nodes.
func clustered(nodes int) Options {
	return Options{
		Servers: 1, Nodes: nodes, Timing: pick(quickTimes, asShipped),
		Layout: pick(tocsin.Layout{Databases: 2, Tables: 16, Prefix: "chaos"}, tocsin.Layout{Databases: 8, Tables: 1024, Prefix: "chaos"}),
	}
}

// steady is a load without changes or failures, far enough ahead that lateness is
// that of the nodes and not of the insert.
func steady(short, full int) Load {
	return Load{Rate: pick(short, full), Near: time.Second, Far: pick(3*time.Second, 6*time.Second), Work: 5, Types: []string{"plain", "hook"}}
}

// join starts nodes in empty seats.
func (s *scenario) join(seats ...int) {
	s.t.Helper()
	for _, i := range seats {
		end := s.log.begin(Step{Fault: JoinNode, Node: i})
		if err := s.sit(s.seats[i]); err != nil {
			s.t.Error(err)
		}
		end()
	}
}

// leave asks nodes to leave, at once, and waits.
func (s *scenario) leave(seats ...int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	ended := make(chan error, len(seats))
	for _, i := range seats {
		end := s.log.begin(Step{Fault: TermNode, Node: i})
		go func() { ended <- s.seats[i].leave(ctx); end() }()
	}
	for range seats {
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	}
}

// rebalanced adds what a run of rebalances showed, and fails for what must not be. How many tables move depends on how far apart
// the nodes' steps are, so only the long form judges that.
func (s *scenario) rebalanced(f *figures, h *history, r *Report, all []rebalance) {
	s.t.Helper()
	var spans []span
	for _, one := range all {
		s.t.Log(one)
		spans = append(spans, one.span)
		if long() && one.Takes > one.Least {
			s.t.Errorf("%s: %d takes, %d would do:%s", one.What, one.Takes, one.Least, h.during(one.span))
		}
	}
	firsts := s.firsts()
	f.late("rebalancing", latenessOf(firsts, func(d first) bool { return d.dueIn(spans...) }))
	f.late("else", latenessOf(firsts, func(d first) bool { return !d.dueIn(spans...) }))
	f.add("worst_ms", s.worst(firsts).Milliseconds())
	f.add("deliveries", r.Deliveries)
	f.add("dropped_adds", s.shed())
	f.add("lost", r.Lost())
	f.add("second_deliveries", r.Seconds())
	f.add("two_owners", h.twoOwners(s.t))
	f.add("unclaimed", s.unclaimed(h))
	f.add("rebalances", all)
	f.print(s.t)
	if r.Seconds() > 0 {
		s.t.Errorf("%d second deliveries: %v", r.Seconds(), r.Counts[lineAgain])
	}
}

// shed is how many tasks the producer left out, as it could not keep up the rate.
func (s *scenario) shed() int { return int(s.log.lastID) - len(s.log.entries) }

// worst gives the largest lateness and shows the tasks that were more than a second
// late.
func (s *scenario) worst(all []first) time.Duration {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b first) int { return int(b.late() - a.late()) })
	if len(sorted) == 0 {
		return 0
	}
	for _, d := range sorted[:min(5, len(sorted))] {
		if d.late() > time.Second {
			s.t.Logf("%s late: table %d, due %s, %s", d.late().Round(time.Millisecond), d.JobID.Table(), d.due.UTC().Format(clockForm), d.delivery)
		}
	}
	return sorted[0].late()
}

// TestClusterGrowsAndShrinks: 1 -> 5 -> 3 -> 1 nodes under load.
func TestClusterGrowsAndShrinks(t *testing.T) {
	o := clustered(pick(3, 5))
	o.Servers, o.Idle, o.Timing = 2, o.Nodes-1, pick(calmTimes, asShipped)
	s := begin(t, o)
	h := s.watch()
	rest := pick(time.Second, 8*time.Second)
	var all []rebalance
	s.under(steady(100, 2000), func(context.Context) error {
		s.pause(rest)
		all = append(all, h.measure(t, fmt.Sprintf("1 -> %d", o.Nodes), o.Nodes, func() { s.join(s.from(1)...) }, rest))
		mid := pick(2, 3)
		all = append(all, h.measure(t, fmt.Sprintf("%d -> %d", o.Nodes, mid), mid, func() { s.leave(s.from(mid)...) }, rest))
		all = append(all, h.measure(t, fmt.Sprintf("%d -> 1", mid), 1, func() { s.leave(s.from(1)[:mid-1]...) }, rest))
		return nil
	})
	r := s.verdict()
	s.rebalanced(&figures{run: "grow and shrink"}, h, r, all)
}

// from gives the numbers of all seats from one on.
func (s *scenario) from(first int) (seats []int) {
	for i := first; i < len(s.seats); i++ {
		seats = append(seats, i)
	}
	return seats
}

// TestClusterRollingRestart: every node in turn, as a deploy does it.
func TestClusterRollingRestart(t *testing.T) {
	nodes := pick(3, 4)
	o := clustered(nodes)
	o.Timing = pick(calmTimes, asShipped)
	s := begin(t, o)
	h := s.watch()
	rest := pick(200*time.Millisecond, 3*time.Second)
	var all []rebalance
	s.under(steady(100, 300), func(context.Context) error {
		s.pause(rest + time.Second)
		for i := range s.seats {
			name := s.seats[i].name
			all = append(all, h.measure(t, name+" leaves", nodes-1, func() { s.leave(i) }, rest))
			all = append(all, h.measure(t, name+" is back", nodes, func() { s.join(i) }, rest))
		}
		return nil
	})
	r := s.verdict()
	s.rebalanced(&figures{run: "rolling restart"}, h, r, all)
	if worst := s.worst(s.firsts()); long() && worst > time.Second {
		t.Errorf("a task was %s late", worst)
	}
}

// TestClusterNodeDies: kill -9. The others have its tables when its lease has run
// out.
func TestClusterNodeDies(t *testing.T) {
	s := begin(t, clustered(pick(3, 4)))
	h := s.watch()
	s.logPeeks()
	var begun time.Time
	var hers map[int]bool
	var died rebalance
	s.under(steady(100, 300), func(context.Context) error {
		s.pause(pick(time.Second, 5*time.Second))
		hers = h.ownedBy(s.seats[0])
		died = h.measure(t, "kill -9", len(s.seats)-1, func() {
			begun = time.Now()
			s.log.begin(Step{Fault: KillNode, Node: 0})()
			s.seats[0].kill()
		}, pick(time.Second, 8*time.Second))
		return nil
	})
	peeks := s.peeks(h, hers, begun)
	r := s.verdict()
	waits, gaps := s.unpeeked(h, peeks, hers, begun)
	f := &figures{run: "kill -9"}
	f.add("tables", len(hers))
	f.seconds("first_peeked", waits.Quantile(0))
	f.seconds("all_peeked", waits.Quantile(1))
	f.seconds("unpeeked_without_a_key", gaps.Quantile(1))
	f.seconds("keys_moved", time.Duration(died.Seconds*float64(time.Second)))
	s.ofTables(f, hers, span{begun, begun.Add(waits.Quantile(1))})
	s.close(f, h, r)
	if bound := s.opts.Timing.Lease + 3*time.Second; long() && waits.Quantile(1) > bound {
		t.Errorf("some table was peeked again after %s only", waits.Quantile(1))
	}
	s.secondsWereInHand(r)
}

// ofTables adds the lateness of tasks of some tables and of the others in a span.
func (s *scenario) ofTables(f *figures, tables map[int]bool, in span) {
	firsts := s.firsts()
	f.late("its_tasks", latenessOf(firsts, func(d first) bool { return d.dueIn(in) && tables[d.JobID.Table()] }))
	f.late("others", latenessOf(firsts, func(d first) bool { return d.dueIn(in) && !tables[d.JobID.Table()] }))
}

// close adds what every run ends with, and prints.
func (s *scenario) close(f *figures, h *history, r *Report) {
	s.t.Helper()
	f.add("deliveries", r.Deliveries)
	f.add("dropped_adds", s.shed())
	f.add("lost", r.Lost())
	f.add("second_deliveries", r.Seconds())
	f.add("two_owners", h.twoOwners(s.t))
	f.add("unclaimed", s.unclaimed(h))
	f.print(s.t)
}

// TestClusterNodeLeaves: SIGTERM while a callback is in hand that takes long. The
// tables do not wait for it.
func TestClusterNodeLeaves(t *testing.T) {
	took := pick(6*time.Second, 30*time.Second)
	o := clustered(pick(3, 4))
	o.Timing = pick(calmTimes, asShipped)
	o.Timing.Drain = took + 5*time.Second
	s := begin(t, o)
	h := s.watch()
	s.logPeeks()
	var begun, gone time.Time
	var hers map[int]bool
	var left rebalance
	s.under(steady(100, 300), func(context.Context) error {
		s.pause(pick(time.Second, 5*time.Second))
		seat := s.inCallback(took)
		hers = h.ownedBy(s.seats[seat])
		ended := make(chan struct{})
		left = h.measure(t, "SIGTERM", len(s.seats)-1, func() {
			begun = time.Now()
			go func() { s.leave(seat); gone = time.Now(); close(ended) }()
		}, pick(time.Second, 3*time.Second))
		<-ended
		return nil
	})
	peeks := s.peeks(h, hers, begun)
	r := s.verdict()
	waits, gaps := s.unpeeked(h, peeks, hers, begun)
	f := &figures{run: "SIGTERM"}
	f.add("tables", len(hers))
	f.seconds("callback", took)
	f.seconds("all_peeked", waits.Quantile(1))
	f.seconds("unpeeked_without_a_key", gaps.Quantile(1))
	f.seconds("keys_moved", time.Duration(left.Seconds*float64(time.Second)))
	f.seconds("process_ended", gone.Sub(begun))
	s.ofTables(f, hers, span{begun, begun.Add(waits.Quantile(1))})
	s.close(f, h, r)
	if long() && (waits.Quantile(1) > time.Second || gaps.Quantile(1) > time.Second) {
		t.Errorf("a table was peeked %s after the signal only, one %s after its key had gone", waits.Quantile(1), gaps.Quantile(1))
	}
	if r.Seconds() > 0 || r.Lost() > 0 {
		t.Errorf("%d second deliveries, %d lost", r.Seconds(), r.Lost())
	}
}

// inCallback adds a task whose callback takes so long, and gives the seat that is
// in it.
func (s *scenario) inCallback(takes time.Duration) int {
	s.t.Helper()
	d := s.log.newTask("slow", time.Now(), Work{Millis: int(takes.Milliseconds())})
	s.addAll(s.t.Context(), []draft{d})
	for end := time.Now().Add(patience); time.Now().Before(end); s.pause(100 * time.Millisecond) {
		if of := s.byTask()[d.entry.JobID]; len(of) > 0 {
			return slices.IndexFunc(s.seats, func(at *seat) bool { return at.name == seatOf(of[0].Node) })
		}
	}
	s.t.Fatal("the callback was never begun")
	return 0
}
