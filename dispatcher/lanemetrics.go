package dispatcher

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
)

// laneMetrics exports what is in hand of each biz type. It is read when it is scraped, so deliveries pay nothing for it.
type laneMetrics struct {
	d *Dispatcher

	queued, running, slots, state, settling, yield *prometheus.Desc
}

// LaneStates are the states of a lane, by their values in lane_state.
var LaneStates = []State{Open, Limited, Paused, Lacking, Away, Busy}

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
		state:    desc("lane_state", "0 open, 1 waiting for its rate, 2 paused, 3 lacking: this node has no handler or secret for the type, 4 away: its target can't be reached, 5 busy: its target has said later.", "biz_type"),
		yield:    desc("yield_rate", "Tasks a second that lower priorities may load while tasks of this one begin; 0: none begins.", "priority"),
		settling: desc("unsettled_age_seconds", "How long the oldest outcome has waited to be settled; 0 if none waits."),
	})
}

// Describe sends what Collect will send.
func (m *laneMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{m.queued, m.running, m.slots, m.state, m.settling, m.yield} {
		to <- desc
	}
}

// Collect reads the lanes.
func (m *laneMetrics) Collect(to chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	lanes, oldest := m.d.lanes()
	gauge(m.settling, max(time.Since(oldest).Seconds(), 0))
	for c, p := range []tocsin.Priority{tocsin.High, tocsin.Normal} {
		gauge(m.yield, m.d.yields.to(class(c), time.Now()), string(p))
	}
	for _, l := range lanes {
		gauge(m.queued, float64(l.Queued), l.BizType)
		gauge(m.running, float64(l.Running), l.BizType)
		gauge(m.slots, float64(l.Limit), l.BizType)
		gauge(m.state, float64(slices.Index(LaneStates, l.State)), l.BizType)
	}
}
