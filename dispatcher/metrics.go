package dispatcher

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/store"
)

// verbLabels are the values of the label "verb", by verb.
var verbLabels = [...]string{tocsin.Complete: "complete", tocsin.Retry: "retry", tocsin.Defer: "snooze", tocsin.GiveUp: "bury"}

// latenessBuckets go from a millisecond to an hour.
var latenessBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60, 600, 3600}

type metrics struct {
	loaded       prometheus.Counter
	early        prometheus.Counter
	droppedGone  prometheus.Counter
	droppedLater prometheus.Counter
	droppedTable prometheus.Counter
	droppedClaim prometheus.Counter
	claimed      prometheus.Counter
	readBack     prometheus.Counter
	givenBack    prometheus.Counter
	waited       prometheus.Counter
	overlapped   prometheus.Counter
	aside        prometheus.Counter
	settledBy    [store.Fates]prometheus.Counter
	errors       *prometheus.CounterVec
	ended        *prometheus.CounterVec
	timeouts     *prometheus.CounterVec
	lateness     *prometheus.HistogramVec
	took         *prometheus.HistogramVec
}

// kindMetrics are those of one biz type, looked up once.
type kindMetrics struct {
	ended    [len(verbLabels)]prometheus.Counter
	timeouts prometheus.Counter
	lateness prometheus.Observer
	took     prometheus.Observer
}

func newMetrics(reg prometheus.Registerer, stats func() Stats) *metrics {
	f := promauto.With(reg)
	count := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "tocsin_dispatcher_" + name + "_total", Help: help})
	}
	dropped := counterVec(f, "dropped", "Queued ids that were not delivered, by why their row dropped out.", "cause")
	m := &metrics{
		loaded:       count("loaded", "Rows loaded that were still pending."),
		early:        count("early", "Rows loaded that were not yet due by the server's clock."),
		droppedGone:  dropped.WithLabelValues("not_pending"),
		droppedLater: dropped.WithLabelValues("rescheduled"),
		droppedTable: dropped.WithLabelValues("table_given_up"),
		droppedClaim: dropped.WithLabelValues("claim_refused"),
		claimed:      count("claimed", "Rows claimed before their delivery."),
		readBack:     count("claims_read_back", "Rows whose claim got no answer and was found to stand."),
		givenBack:    count("given_back", "Loaded rows that were not started."),
		waited:       count("waited", "Attempts put off since an earlier delivery of their task had not returned."),
		overlapped:   count("overlapped", "Attempts that started beside an earlier delivery of their task, after a wait of one time-out."),
		aside:        count("set_aside", "Outcomes that the database refused, each time they were set aside."),
		errors:       counterVec(f, "errors", "Statements that failed.", "statement", "class"),
		ended:        counterVec(f, "attempts", "Attempts that ended, by outcome.", "biz_type", "verb"),
		timeouts:     counterVec(f, "timeouts", "Attempts settled before their target returned.", "biz_type"),
		lateness:     histogramVec(f, "lateness_seconds", "Delivery start minus action time, by the server's clock."),
		took:         histogramVec(f, "delivery_seconds", "How long deliveries took."),
	}
	settled := counterVec(f, "settled", "Outcomes stored, by what became of them.", "fate")
	for i := range m.settledBy {
		m.settledBy[i] = settled.WithLabelValues(store.Fate(i).String())
	}
	gauges(f, stats)
	return m
}

func counterVec(f promauto.Factory, name, help string, labels ...string) *prometheus.CounterVec {
	return f.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_dispatcher_" + name + "_total", Help: help}, labels)
}

func histogramVec(f promauto.Factory, name, help string) *prometheus.HistogramVec {
	return f.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "tocsin_dispatcher_" + name,
		Help:    help,
		Buckets: latenessBuckets,
	}, []string{"biz_type"})
}

func gauges(f promauto.Factory, stats func() Stats) {
	gauge := func(name, help string, value func(Stats) int) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: "tocsin_dispatcher_" + name, Help: help},
			func() float64 { return float64(value(stats())) })
	}
	gauge("payload_bytes", "Bytes of payloads in memory, of rows that are being read, wait, or are in delivery.",
		func(s Stats) int { return int(s.PayloadBytes) })
	gauge("payload_bytes_limit", "Bytes of payloads that may be in memory.", func(s Stats) int { return int(s.PayloadLimit) })
	gauge("queued", "Ids in the due queues.", func(s Stats) int { return s.Queued })
	gauge("queue_capacity", "Ids that the due queues may hold.", func(s Stats) int { return s.Capacity })
	gauge("rows_loaded", "Rows loading or ready to start.", func(s Stats) int { return s.Loaded })
	gauge("open", "Rows in delivery or waiting to be settled.", func(s Stats) int { return s.Open })
	gauge("unsettled", "Outcomes waiting to be settled.", func(s Stats) int { return s.Unsettled })
	gauge("overrun", "Tasks with a delivery over its time-out whose target has not returned.", func(s Stats) int { return s.Overrun })
	gauge("aside", "Outcomes that the database refused and that are tried again.", func(s Stats) int { return s.Aside })
}

func (m *metrics) of(bizType string) *kindMetrics {
	k := &kindMetrics{
		timeouts: m.timeouts.WithLabelValues(bizType),
		lateness: m.lateness.WithLabelValues(bizType),
		took:     m.took.WithLabelValues(bizType),
	}
	for verb, label := range verbLabels {
		k.ended[verb] = m.ended.WithLabelValues(bizType, label)
	}
	return k
}

var classLabels = map[mysql.Class]string{
	mysql.Canceled:  "canceled",
	mysql.Contended: "contended",
	mysql.Duplicate: "duplicate",
	mysql.Missing:   "missing",
	mysql.Denied:    "denied",
	mysql.Demoted:   "demoted",
	mysql.Lost:      "lost",
}

func (m *metrics) failed(statement string, err error) {
	class, ok := classLabels[mysql.ClassOf(err)]
	if !ok {
		class = "other"
	}
	m.errors.WithLabelValues(statement, class).Inc()
}

func (m *metrics) settled(all []store.Fate) {
	var n [store.Fates]int
	for _, f := range all {
		n[f]++
	}
	for i, count := range n {
		if count > 0 {
			m.settledBy[i].Add(float64(count))
		}
	}
}
