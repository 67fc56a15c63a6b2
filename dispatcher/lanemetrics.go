package dispatcher

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// laneMetrics exports what is in hand of each biz type. It is read when it is scraped, so deliveries pay nothing for it.
type laneMetrics struct {
	d *Dispatcher

	queued, running, slots, state, settling *prometheus.Desc
}

// The values of lane_state.
const (
	laneOpen = iota
	laneLimited
	lanePaused
	laneLacking
)

func (d *Dispatcher) exportLanes(r prometheus.Registerer) {
	if r == nil {
		return
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("tocsin_dispatcher_"+name, help, labels, nil)
	}
	r.MustRegister(&laneMetrics{
		d:        d,
		queued:   desc("lane_queued", "Ids in the due queues.", "biz_type"),
		running:  desc("lane_running", "Slots in use: deliveries under way.", "biz_type"),
		slots:    desc("lane_limit", "Slots that the node has: the policy's concurrency.", "biz_type"),
		state:    desc("lane_state", "0 open, 1 waiting for its rate, 2 paused, 3 lacking: this node has no handler or secret for the type.", "biz_type"),
		settling: desc("unsettled_age_seconds", "How long the oldest outcome has waited to be settled; 0 if none waits."),
	})
}

// Describe sends what Collect will send.
func (m *laneMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{m.queued, m.running, m.slots, m.state, m.settling} {
		to <- desc
	}
}

// Collect reads the lanes.
func (m *laneMetrics) Collect(to chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	queued := make(map[*kind]int)
	oldest := time.Now()
	for _, s := range m.d.servers {
		oldest = s.countLanes(queued, oldest)
	}
	gauge(m.settling, max(time.Since(oldest).Seconds(), 0))
	for _, k := range m.d.allKinds() {
		name, running, slots, state := k.occupancy()
		gauge(m.queued, float64(queued[k]), name)
		gauge(m.running, float64(running), name)
		gauge(m.slots, float64(slots), name)
		gauge(m.state, float64(state), name)
	}
}

// countLanes adds the queued ids of each biz type, and returns the earlier of oldest and the time since which an outcome
// of the server waits to be settled.
func (s *server) countLanes(queued map[*kind]int, oldest time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.order {
		queued[l.kind] += l.queue.Len()
	}
	for _, t := range s.open {
		if t.reported && t.reportedAt.Before(oldest) {
			oldest = t.reportedAt
		}
	}
	return oldest
}

// occupancy returns how many of the kind's slots are in use, and what keeps more from it.
func (k *kind) occupancy() (name string, running, slots, state int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.rule.Load()
	switch {
	case r.lacked:
		state = laneLacking
	case r.paused:
		state = lanePaused
	case k.timer != nil:
		state = laneLimited
	default:
		state = laneOpen
	}
	return r.policy.Name, k.running, r.policy.Concurrency, state
}
