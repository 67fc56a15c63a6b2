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
			s.addNow(plain, 10_000, Work{})
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

// addNow adds tasks of a biz type that are due at once, and returns which.
func (s *scenario) addNow(of tocsin.BizType[Work], n int, work Work) map[tocsin.JobID]bool {
	s.t.Helper()
	all := make(map[tocsin.JobID]bool, n)
	for range n / 1000 {
		var some []tocsin.NewTask
		for range 1000 {
			some = append(some, of.New(1+rand.Uint64N(1e6), work, tocsin.In(0)))
		}
		added, err := s.client.AddMany(s.t.Context(), some)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, a := range added {
			all[a.JobID] = true
		}
	}
	return all
}

// begun counts the deliveries of some tasks so far.
func (s *scenario) begun(of map[tocsin.JobID]bool) (n int) {
	s.t.Helper()
	for _, d := range s.all() {
		if of[d.JobID] {
			n++
		}
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
