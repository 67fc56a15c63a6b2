package session

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// value returns what a counter has counted.
func value(c prometheus.Counter) float64 {
	var m dto.Metric
	_ = c.Write(&m)
	return m.GetCounter().GetValue()
}

func TestAServerThatTakesNoWritesEndsNobody(t *testing.T) {
	c := newCluster(t)
	some := []*process{c.start("a"), c.start("b"), c.start("c")}
	ids := []string{some[0].id(0), some[1].id(0), some[2].id(0)}
	unlock := c.locked("FLUSH TABLES WITH READ LOCK")
	time.Sleep(8 * time.Second)
	for i, p := range some {
		if p.Trusts(0, ids[i]) {
			t.Error("a session is trusted that can't beat")
		}
	}
	unlock()
	for i, p := range some {
		if err := p.Opened(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if p.id(0) != ids[i] {
			t.Errorf("session %s, was %s", p.id(0), ids[i])
		}
	}
	if n := ended(some...); n != 0 {
		t.Errorf("%d sessions were ended", n)
	}
}
