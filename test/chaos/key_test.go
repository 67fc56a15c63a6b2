package chaos

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// TestTasksOfAKeyInTurn: nodes are killed, frozen, drained and started again while tasks of some biz_ids, of which one may be in
// delivery at a time, are overdue and come due. None begins before the one before it has ended, or its claim has run out.
func TestTasksOfAKeyInTurn(t *testing.T) {
	for name, noEtcd := range map[string]bool{"etcd": false, "rows": true} {
		t.Run(name, func(t *testing.T) {
			o := small
			o.Nodes, o.Sweeper, o.NoEtcd = 3, true, noEtcd
			s := begin(t, o)
			keys := s.addMany(pick(2000, 10_000), func() tocsin.NewTask { // some are overdue, some due within seconds
				return keyed.New(1+rand.Uint64N(pick[uint64](40, 100)), Work{Millis: rand.IntN(100), Fail: rand.IntN(20) / 19}, tocsin.In(rand.N(10*time.Second)))
			})
			began := time.Now()
			for i := range pick(3, 12) {
				for _, step := range []Step{{Fault: KillNode, Length: time.Second}, {Fault: FreezeNode, Length: 3 * time.Second}} {
					step.Node = (i + int(step.Length/time.Second)) % 3
					if err := s.Do(t.Context(), step); err != nil {
						t.Fatal(err)
					}
				}
				s.leave(i % 3)
				s.join(i % 3)
			}
			if err := s.Drain(t.Context(), patience); err != nil {
				t.Fatal(err)
			}
			s.inTurn(keys)
			t.Logf("%d tasks in %s", len(keys), time.Since(began).Round(time.Millisecond))
		})
	}
}

// inTurn checks that all tasks ended, and that the deliveries of no key met.
func (s *scenario) inTurn(keys map[tocsin.JobID]uint64) {
	s.t.Helper()
	last := map[uint64]delivery{}
	done := map[tocsin.JobID]bool{}
	unended := 0
	for _, d := range s.all() {
		key, ours := keys[d.JobID]
		if !ours {
			continue
		}
		done[d.JobID] = done[d.JobID] || d.OK
		before, some := last[key]
		last[key] = d
		switch {
		case !some:
		case before.End.IsZero() && d.At.Before(before.At.Add(deliveryTimeout)):
			s.t.Errorf("biz_id %d: job %s began %s after %s, whose process was killed and whose claim goes on", key, d, d.At.Sub(before.At), before)
		case before.End.IsZero():
			unended++
		case d.At.Before(before.End):
			s.t.Errorf("biz_id %d: job %s: %s\nbegan before the end of %s: %s", key, d.JobID, d, before.JobID, before)
		}
	}
	if len(done) != len(keys) {
		s.t.Errorf("%d of %d tasks were delivered", len(done), len(keys))
	}
	for id, ok := range done {
		if !ok {
			s.t.Errorf("job %s has no delivery that ended well", id)
		}
	}
	s.t.Logf("%d deliveries were cut off by a kill", unended)
}
