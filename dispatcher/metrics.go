package dispatcher

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// verbLabels are the values of the label "verb", by verb.
var verbLabels = [...]string{tocsin.Completed: "complete", tocsin.Retried: "retry", tocsin.Snoozed: "snooze", tocsin.Buried: "bury", tocsin.Skipped: "skip"}

// The classic buckets are few, since each is a series for each biz type. Lateness goes from a millisecond, which is normal,
// to an hour. Native histograms, which Prometheus stores as one series, have the fine ones.
var (
	latenessBuckets = []float64{.001, .01, .1, 1, 10, 60, 600, 3600}
	tookBuckets     = []float64{.1, 1, 10}
)

// nativeFactor is by how much a bucket of a native histogram is wider than the one before.
const nativeFactor = 1.1

type metrics struct {
	loaded       prometheus.Counter
	early        prometheus.Counter
	droppedGone  prometheus.Counter
	droppedLater prometheus.Counter
	droppedTable prometheus.Counter
	droppedClaim prometheus.Counter
	droppedNewer prometheus.Counter
	droppedTurn  prometheus.Counter
	claimed      prometheus.Counter
	readBack     prometheus.Counter
	givenBack    prometheus.Counter
	waited       prometheus.Counter
	overlapped   prometheus.Counter
	aside        prometheus.Counter
	settledBy    [store.Fates]prometheus.Counter
	second       [seconds]prometheus.Counter
	errors       *prometheus.CounterVec
	ended        *prometheus.CounterVec
	failures     *prometheus.CounterVec
	timeouts     *prometheus.CounterVec
	breaks       *prometheus.CounterVec
	notReached   *prometheus.CounterVec
	toldLater    *prometheus.CounterVec
	throttle     *prometheus.GaugeVec
	lateness     *prometheus.HistogramVec
	took         *prometheus.HistogramVec
}

// kindMetrics are those of one biz type, looked up once. Counters of what a type may never do are made when it does.
type kindMetrics struct {
	name     string
	all      *metrics
	ended    [len(verbLabels)]lazyCounter
	failed   [causes]lazyCounter
	timeouts lazyCounter
	lateness prometheus.Observer
	took     prometheus.Observer

	wentAway   lazyCounter
	gotBusy    lazyCounter
	notReached lazyCounter
	toldLater  lazyCounter
}

// lazyCounter is a counter of a vector that is made at its first use. The zero value is ready.
type lazyCounter struct {
	made atomic.Pointer[prometheus.Counter]
}

// of returns the counter with these labels, which must be the same each time.
func (l *lazyCounter) of(vec *prometheus.CounterVec, labels ...string) prometheus.Counter {
	if made := l.made.Load(); made != nil {
		return *made
	}
	counter := vec.WithLabelValues(labels...)
	l.made.Store(&counter)
	return counter
}

func (k *kindMetrics) end(verb tocsin.Verb) {
	if made := k.ended[verb].made.Load(); made != nil { // the labels of a call would be an allocation
		(*made).Inc()
		return
	}
	k.ended[verb].of(k.all.ended, k.name, verbLabels[verb]).Inc()
}

func (k *kindMetrics) fail(why cause) {
	k.failed[why].of(k.all.failures, k.name, causeLabels[why]).Inc()
}

func (k *kindMetrics) open(state State) {
	breaks := &k.wentAway
	if state == Busy {
		breaks = &k.gotBusy
	}
	breaks.of(k.all.breaks, k.name, string(state)).Inc()
}

func (k *kindMetrics) missed(tasks int) {
	k.notReached.of(k.all.notReached, k.name).Add(float64(tasks))
}

func (k *kindMetrics) later() { k.toldLater.of(k.all.toldLater, k.name).Inc() }

// throttle shows the rate to which deliveries have slowed down; 0: they have not.
func (k *kindMetrics) throttle(rate float64) {
	if rate > 0 {
		k.all.throttle.WithLabelValues(k.name).Set(rate)
	} else {
		k.all.throttle.DeleteLabelValues(k.name)
	}
}

func (k *kindMetrics) timeOut() { k.timeouts.of(k.all.timeouts, k.name).Inc() }

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
		droppedNewer: dropped.WithLabelValues("newer_payload"),
		droppedTurn:  dropped.WithLabelValues("not_its_turn"),
		claimed:      count("claimed", "Rows claimed before their delivery."),
		readBack:     count("claims_read_back", "Rows whose claim got no answer and was found to stand."),
		givenBack:    count("given_back", "Loaded rows that were not started."),
		waited:       count("waited", "Attempts put off since an earlier delivery of their task had not returned."),
		overlapped:   count("overlapped", "Attempts that started beside an earlier delivery of their task, after a wait of one time-out."),
		aside:        count("set_aside", "Outcomes that the database refused, each time they were set aside."),
		errors:       counterVec(f, "errors", "Statements that failed.", "statement", "class"),
		ended:        counterVec(f, "attempts", "Attempts that ended, by outcome.", "biz_type", "verb"),
		failures:     counterVec(f, "failures", "Attempts that failed, and were retried or made their task dead, by cause.", "biz_type", "cause"),
		timeouts:     counterVec(f, "timeouts", "Attempts settled before their target returned.", "biz_type"),
		breaks:       counterVec(f, "breaks", "How often deliveries of a biz type ceased, by why: away, its target could not be reached; busy, it said later.", "biz_type", "state"),
		notReached:   counterVec(f, "not_reached", "Tasks whose delivery could not reach its target, each time: not counted as attempts.", "biz_type"),
		toldLater:    counterVec(f, "told_later", "Tasks whose target answered that it takes them later, each time: not counted as attempts.", "biz_type"),
		throttle: f.NewGaugeVec(prometheus.GaugeOpts{Name: "tocsin_dispatcher_lane_throttle",
			Help: "Deliveries a second to which the node has slowed down, since the target of the biz type has said later. Only of types that are throttled."}, []string{"biz_type"}),
		lateness: histogramVec(f, "lateness_seconds", "Delivery start minus action time, by the server's clock.", latenessBuckets),
		took:     histogramVec(f, "delivery_seconds", "How long deliveries took.", tookBuckets),
	}
	settled := counterVec(f, "settled", "Outcomes stored, by what became of them.", "fate")
	for i := range m.settledBy {
		m.settledBy[i] = settled.WithLabelValues(store.Fate(i).String())
	}
	again := counterVec(f, "second_deliveries",
		"Deliveries made, or to be made, once more without a failed attempt, by cause: cut_off by the end of the node, overlapped with one that ignores its context, elsewhere as another process settled or claimed the task, crashed for tasks with a claim that ran out before, resent as a kept connection broke under a callback that may have arrived.",
		"cause")
	for i, label := range secondLabels {
		m.second[i] = again.WithLabelValues(label)
	}
	gauges(f, stats)
	return m
}

func counterVec(f promauto.Factory, name, help string, labels ...string) *prometheus.CounterVec {
	return f.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_dispatcher_" + name + "_total", Help: help}, labels)
}

func histogramVec(f promauto.Factory, name, help string, buckets []float64) *prometheus.HistogramVec {
	return f.NewHistogramVec(prometheus.HistogramOpts{
		Name: "tocsin_dispatcher_" + name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: nativeFactor,
		NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
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

// of makes the metrics of a biz type. Those of its common outcomes exist from the beginning, so that their rates do too.
func (m *metrics) of(bizType string) *kindMetrics {
	k := &kindMetrics{name: bizType, all: m, lateness: m.lateness.WithLabelValues(bizType), took: m.took.WithLabelValues(bizType)}
	for _, verb := range []tocsin.Verb{tocsin.Completed, tocsin.Retried, tocsin.Buried} {
		k.ended[verb].of(m.ended, bizType, verbLabels[verb])
	}
	return k
}

func (m *metrics) failed(statement string, err error) {
	m.errors.WithLabelValues(statement, mysql.ClassOf(err).String()).Inc()
}

func (m *metrics) settled(batch []result, fates []store.Fate) {
	var n [store.Fates]int
	for i, f := range fates {
		n[f]++
		if r := batch[i]; !r.undone && !r.after && (f == store.Settled || f == store.ClaimLost) {
			m.second[secondElsewhere].Inc()
		}
	}
	for i, count := range n {
		if count > 0 {
			m.settledBy[i].Add(float64(count))
		}
	}
}
