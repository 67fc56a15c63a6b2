package assign

import (
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// newIdleSession registers a node whose rounds the test plays. Nothing renews its lease.
func newIdleSession(t *testing.T, c *crowd) (*session, *desk) {
	t.Helper()
	d := c.node(slow)
	s, err := d.open(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	s.hands = newHands(t.Context(), d)
	t.Cleanup(func() { s.hands.close(); s.revoke(t.Context()) })
	return s, d
}

// look reads the keys into the session's mirror and gives them.
func look(t *testing.T, s *session) view {
	t.Helper()
	v, err := s.mirror.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.mirror.set(v)
	return v
}

func valueOf(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func TestAKeyWhoseDeleteMayBeUnderWayIsNotStartedOn(t *testing.T) {
	t.Parallel()
	s, _ := newIdleSession(t, newCrowd(t))
	if _, err := s.writer.take(t.Context(), []int{3, 4}); err != nil {
		t.Fatal(err)
	}
	v := look(t, s)
	s.doomed[3] = v.tables[3].created
	away, start, _ := s.divide(v, Plan(v.members(), v.owners()))
	if want := map[int]int64{3: v.tables[3].created}; !maps.Equal(away, want) {
		t.Errorf("gives back %v", away)
	}
	if want := map[int]int64{4: v.tables[4].created}; !maps.Equal(start, want) {
		t.Errorf("starts on %v", start)
	}
}

func TestNothingIsPlannedOnAViewBeforeOurOwnWrite(t *testing.T) {
	t.Parallel()
	s, d := newIdleSession(t, newCrowd(t))
	old := look(t, s)
	if err := s.round(t.Context()); err != nil { // creates the keys; nothing is held before they are seen
		t.Fatal(err)
	}
	if s.wrote <= old.rev || len(d.held) != 0 {
		t.Errorf("wrote %d at view %d, holds %d", s.wrote, old.rev, len(d.held))
	}
	if err := s.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if plans := valueOf(t, s.metrics.plans); plans != 1 {
		t.Errorf("%v plans", plans)
	}
	look(t, s)
	if err := s.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.hands.work.Wait(); len(d.held) != 32 {
		t.Errorf("holds %d", len(d.held))
	}
}

func TestALateRenewalPausesPlanning(t *testing.T) {
	t.Parallel()
	s, _ := newIdleSession(t, newCrowd(t))
	ttl := s.lease.ttl
	for name, c := range map[string]struct {
		age  time.Duration // since the start of the last renewal
		late bool
	}{
		"in time": {ttl / 3, false},
		"late":    {ttl * 6 / 10, true},
	} {
		outage := false
		s.lease.outage = func() { outage = true }
		s.trust.renew(time.Now().Add(-c.age), ttl)
		if err := s.lease.renew(t.Context()); err != nil || outage != c.late {
			t.Errorf("%s: outage %v, %v", name, outage, err)
		}
	}
}
