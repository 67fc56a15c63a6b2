package chaos

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// TestKilledNodesLoseNothing: kill -9 in the middle of a burst, round after round.
func TestKilledNodesLoseNothing(t *testing.T) {
	rounds, burst := pick(2, 30), pick(600, 2000)
	s := begin(t, Options{Nodes: 3, Servers: pick(1, 2), Sweeper: true})
	s.under(Load{Rate: pick(100, 300), Changes: 0.12, Fails: true, Far: 2 * time.Second}, func(ctx context.Context) error {
		for round := range rounds {
			due := time.Now().Add(time.Second)
			s.fill(burst, due, 100*time.Millisecond, func(int) Work { return Work{Millis: rand.IntN(100)} })
			s.pause(time.Until(due.Add(150 * time.Millisecond)))
			if err := s.Do(ctx, Step{Fault: KillNode, Node: round % 3, Length: 300 * time.Millisecond}); err != nil {
				return err
			}
		}
		return nil
	})
	r := s.verdict()
	if dead := r.Counts[lineFinal]["dead"]; dead > 0 {
		t.Errorf("%d tasks were buried: a crash consumed attempts, or five crashes hit one", dead)
	}
	s.secondsWereInHand(r)
}

// secondsWereInHand checks that only what a node had in delivery when it was killed
// or frozen was delivered again.
func (s *scenario) secondsWereInHand(r *Report) {
	s.t.Helper()
	inHand := 0
	for _, i := range s.log.incidents {
		inHand += s.inHandOf(s.seats[i.Node].name, i.from)
	}
	s.t.Logf("%d second deliveries, %d were in delivery at the faults", r.Seconds(), inHand)
	if r.Seconds() > inHand {
		s.t.Errorf("%d second deliveries, and only %d were in delivery at the faults", r.Seconds(), inHand)
	}
}

// settleLag is how long an outcome may wait to be stored, on a machine that has other
// things to do as well.
const settleLag = 2 * time.Second

// faultLag is how long a process may go on after a fault was noted. It is shorter than any fault.
const faultLag = 250 * time.Millisecond

// inHandOf counts the deliveries of a seat that had begun, and were not stored yet,
// at a fault.
func (s *scenario) inHandOf(seat string, at time.Time) (n int) {
	for _, d := range s.all() {
		if seatOf(d.Node) == seat && d.At.Before(at.Add(faultLag)) && (d.End.IsZero() || d.End.Add(settleLag).After(at)) {
			n++
		}
	}
	return n
}

// TestEverythingAtOneInstant: nothing is delivered twice, however many are due.
func TestEverythingAtOneInstant(t *testing.T) {
	tasks := pick(4000, 100_000)
	s := begin(t, Options{
		Servers: 2, Nodes: 2, Timing: Timing{Lease: 10 * time.Second, Scan: 5 * time.Second, Grace: time.Minute}, Timeout: pick(manyAtOnce, 0),
	})
	due := time.Now().Add(time.Duration(tasks/5000+2) * time.Second)
	s.fill(tasks, due, 0, brief)
	if time.Now().After(due) {
		t.Logf("the last insert was %s after the instant", time.Since(due).Round(time.Millisecond))
	}
	r := s.verdict()
	all := s.all()
	took := all[len(all)-1].At.Sub(all[0].At)
	t.Logf("%d tasks drained in %s, %.0f a second", tasks, took.Round(time.Millisecond), float64(tasks)/took.Seconds())
	if len(all) < tasks || r.Seconds() != 0 { // more are retries of callbacks that a busy machine answered too late
		t.Errorf("%d deliveries of %d tasks, %d of them second ones", len(all), tasks, r.Seconds())
	}
}

// TestBacklogIsDrainedOldestFirst: everything was down, and a sweeper runs beside the
// nodes when they come back. It runs alone: a node that is slow to take its tables drains
// those that it has by then. So in the short form all types are paused until each node has its
// tables. The backlog of the long form is older than the sweeper's grace time, so that the
// sweeper takes a share; that of the short form is not.
func TestBacklogIsDrainedOldestFirst(t *testing.T) {
	tasks := pick(4000, 50_000)
	o := small
	o.Sweeper, o.Timing, o.Timeout = true, quickTimes, pick(manyAtOnce, 0)
	o.Timing.Grace = pick(5*time.Minute, o.Timing.Grace)
	s := beginAlone(t, o)
	for _, at := range append(s.seats, s.sweeper) {
		at.kill()
	}
	over := pick(3*time.Second, 30*time.Second)
	from := time.Now().Add(time.Second)
	s.fill(tasks, from, over, brief)
	s.pause(time.Until(from.Add(over)))
	s.pauseTypes(t.Context(), !long())
	if err := s.startNodes(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.pauseTypes(t.Context(), false)
	r := s.verdict()
	if r.Seconds() != 0 {
		t.Errorf("%d second deliveries", r.Seconds())
	}
	all := s.all()
	t.Logf("drained in %s", all[len(all)-1].At.Sub(all[0].At).Round(time.Millisecond))
	away, tasks := 0.0, 0
	for lane, of := range s.lanes(all) {
		t.Logf("%s: the mean task of %d was delivered %.0f%% of the backlog away from its place", lane, len(of), disorder(of)*100)
		away, tasks = away+disorder(of)*float64(len(of)), tasks+len(of)
	}
	if tasks == 0 || away/float64(tasks) > 0.2 {
		t.Errorf("the mean of %d tasks was delivered %.0f%% of the backlog away from its place", tasks, away/float64(max(tasks, 1))*100)
	}
}

// lanes parts deliveries by node and biz type: order is kept within a lane alone.
// Lanes of a few say nothing.
func (s *scenario) lanes(all []delivery) map[string][]delivery {
	types := map[tocsin.JobID]string{}
	for _, e := range s.log.entries {
		types[e.JobID] = e.Type
	}
	parts := map[string][]delivery{}
	for _, d := range all {
		lane := d.Node + " " + types[d.JobID]
		parts[lane] = append(parts[lane], d)
	}
	maps.DeleteFunc(parts, func(_ string, of []delivery) bool { return len(of) < 100 })
	return parts
}

// disorder is how far a delivery stands from its place in order of due time, on
// average, as a share of all: 0 in order, 1/3 by chance.
func disorder(all []delivery) float64 {
	place := slices.Clone(all)
	slices.SortFunc(place, func(a, b delivery) int { return a.Due.Compare(b.Due) })
	should := map[uint64]int{}
	for i, d := range place {
		should[uint64(d.JobID)] = i
	}
	sum := 0
	for i, d := range all {
		sum += max(i-should[uint64(d.JobID)], should[uint64(d.JobID)]-i)
	}
	return float64(sum) / float64(len(all)) / float64(len(all))
}
