package chaos

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// TestOneTeamsFloodHoldsUpNoOther: of one biz type 200,000 tasks are due, and its handler hangs; then it has a rate, is of low
// priority, and is paused. The tasks of another come due meanwhile.
func TestOneTeamsFloodHoldsUpNoOther(t *testing.T) {
	onlyLong(t)
	for name, noEtcd := range map[string]bool{"etcd": false, "rows": true} {
		t.Run(name, func(t *testing.T) {
			o := small
			o.Layout.Tables, o.NoEtcd = 16, noEtcd
			s := beginAlone(t, o)
			all := func(int) bool { return true }
			calm := s.lateness(s.steady(20*time.Second), all)
			flood := s.addNow(strict, 200_000, Work{Millis: 60_000})
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
		some := make([]tocsin.NewTask, steadyRate/10)
		for i := range some {
			some[i] = plain.New(1+rand.Uint64N(1e6), Work{}, tocsin.In(time.Second+rand.N(100*time.Millisecond)))
		}
		if _, err := s.client.AddMany(s.t.Context(), some); err != nil {
			s.t.Fatal(err)
		}
		<-tick.C
	}
	in.to = time.Now().Add(2 * time.Second) // the last of them are due by then
	s.pause(time.Until(in.to) + time.Second)
	return in
}
