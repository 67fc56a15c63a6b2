package chaos

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// TestARateWhileNodesComeAndGo: of a backlog, one node, then four and then two deliver a hundred tasks a second together.
func TestARateWhileNodesComeAndGo(t *testing.T) {
	onlyLong(t)
	for name, noEtcd := range map[string]bool{"etcd": false, "rows": true} {
		t.Run(name, func(t *testing.T) {
			o := small
			o.Layout.Tables, o.Nodes, o.Idle, o.NoEtcd = 16, 4, 3, noEtcd
			s := beginAlone(t, o)
			rated := policies("http://127.0.0.1/")[0]
			rated.Rate = 100
			if _, err := biztype.Apply(t.Context(), s.tables(s.harness), []biztype.Policy{rated}); err != nil {
				t.Fatal(err)
			}
			s.pause(3 * time.Second) // until the nodes have heard of it
			s.addMany(10_000, func() tocsin.NewTask { return plain.New(1+rand.Uint64N(1e6), Work{}, tocsin.In(0)) })
			s.pause(3 * time.Second)
			one := s.during(15 * time.Second)
			s.join(1, 2, 3)
			joining := s.during(5 * time.Second)
			four := s.during(15 * time.Second)
			s.leave(0, 1)
			leaving := s.during(5 * time.Second)
			two := s.during(15 * time.Second)
			t.Logf("the first seconds of four nodes: %.1f a second, of two: %.1f", s.rate(joining), s.rate(leaving))
			for what, of := range map[string]span{"one node": one, "four nodes": four, "two nodes": two} {
				if rate := s.rate(of); math.Abs(rate-100) > 5 {
					t.Errorf("%s: %.1f a second", what, rate)
				} else {
					t.Logf("%s: %.1f a second", what, rate)
				}
			}
		})
	}
}

// begun counts the deliveries of some tasks so far.
func (s *scenario) begun(of map[tocsin.JobID]uint64) (n int) {
	s.t.Helper()
	by := s.byTask()
	for id := range of {
		n += len(by[id])
	}
	return n
}

// during lets some time pass.
func (s *scenario) during(d time.Duration) span {
	from := time.Now()
	s.pause(d)
	return span{from, time.Now()}
}

// rate is how many deliveries began in a span, a second.
func (s *scenario) rate(in span) float64 {
	s.t.Helper()
	n := 0
	for _, d := range s.all() {
		if d.At.After(in.from) && d.At.Before(in.to) {
			n++
		}
	}
	return float64(n) / in.to.Sub(in.from).Seconds()
}

// TestOneTeamsFloodHoldsUpNoOther: of one biz type 200,000 tasks are due, and its handler hangs; then it has a rate, is of low
// priority, and is paused. The tasks of another come due meanwhile.
func TestOneTeamsFloodHoldsUpNoOther(t *testing.T) {
	onlyLong(t)
	for name, noEtcd := range map[string]bool{"etcd": false, "rows": true} {
		t.Run(name, func(t *testing.T) {
			o := small
			o.Layout.Tables, o.NoEtcd = 16, noEtcd
			s := beginAlone(t, o)
			all := func(delivery) bool { return true }
			calm := s.lateness(s.steady(20*time.Second), all)
			flood := s.addMany(200_000, func() tocsin.NewTask {
				return strict.New(1+rand.Uint64N(1e6), Work{Millis: 60_000}, tocsin.In(0))
			})
			for _, is := range []struct {
				what  string
				as    func(*biztype.Policy)
				least int // rows of the flood that are started meanwhile
			}{
				{"a type hangs", func(*biztype.Policy) {}, 8},
				{"it has a rate", func(p *biztype.Policy) { p.Rate = 5 }, 1},
				{"it is of low priority", func(p *biztype.Policy) { p.Priority = tocsin.Low }, 8},
				{"it is paused", func(p *biztype.Policy) { p.Paused = true }, 0},
			} {
				flooding := policies("http://127.0.0.1/")[1]
				is.as(&flooding)
				if _, err := biztype.Apply(t.Context(), s.tables(s.harness), []biztype.Policy{flooding}); err != nil {
					t.Fatal(err)
				}
				s.pause(5 * time.Second) // until the nodes have heard of it, and the deliveries in hand are over
				before := s.begun(flood)
				during := s.steady(20 * time.Second)
				s.compare(is.what, calm, s.lateness(during, all))
				if began := s.begun(flood) - before; began < is.least || is.least == 0 && began > 0 {
					t.Errorf("%s: %d of its own deliveries began", is.what, began)
				}
			}
		})
	}
}

// steadyRate is how many tasks a second steady adds.
const steadyRate = 200

// steady adds tasks that are due a second later, for a while, and returns the time in which they are due.
func (s *scenario) steady(d time.Duration) span {
	s.t.Helper()
	in := span{from: time.Now().Add(time.Second)}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range d / (100 * time.Millisecond) {
		s.addMany(steadyRate/10, func() tocsin.NewTask {
			return plain.New(1+rand.Uint64N(1e6), Work{}, tocsin.In(time.Second+rand.N(100*time.Millisecond)))
		})
		<-tick.C
	}
	in.to = time.Now().Add(2 * time.Second) // the last of them are due by then
	s.pause(time.Until(in.to) + time.Second)
	return in
}
