package upkeep

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/push"
	dto "github.com/prometheus/client_model/go"
	"github.com/robfig/cron/v3"

	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

const (
	pushWithin = 10 * time.Second
	maxPage    = 64 << 20 // bytes of a Pushgateway's page that are read
)

// Figure is a number in the result of a run, and how metrics show it.
type Figure struct {
	Name   string
	Last   string // help of the gauge last_NAME, of the last run; "": there is none
	Total  string // help of the counter NAME_total, over all runs of a process; "": there is none
	Value  int
	Labels []string                                // of a figure with several values
	Values func(set func(n int, labels ...string)) // instead of Value, with Labels
}

// each calls set for each value of the figure.
func (f Figure) each(set func(n int, labels ...string)) {
	if f.Values == nil {
		set(f.Value)
		return
	}
	f.Values(set)
}

// Ended is a run of one kind of work that has ended. That of a zero result has all figures.
type Ended struct {
	Subsystem string // of the metrics' names, such as "purger"
	Took      time.Duration
	OK        bool // it did all its work
	Figures   []Figure
}

// Metrics returns the metrics of a single run, which are those of the last run of a resident process.
func (e Ended) Metrics(labels prometheus.Labels) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	newLastRun(prometheus.WrapRegistererWith(labels, registry), e).end(time.Now(), e)
	return registry
}

// WriteTextfile writes metrics into a directory of node_exporter's textfile collector. Without a success of their own they keep
// the time of the last one.
//
// The file DIR/NAME.prom is replaced whole or not at all.
func WriteTextfile(dir, name string, from prometheus.Gatherer) error {
	path := filepath.Join(dir, name+".prom")
	return prometheus.WriteToTextfile(path, keeping(from, func(metric string) (float64, error) { return lastValue(path, metric) }))
}

// keeping sets the time of the last success to that of the metrics which these replace, as before returns it, if they have none.
func keeping(from prometheus.Gatherer, before func(metric string) (float64, error)) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := from.Gather()
		for _, f := range families {
			if !strings.HasSuffix(f.GetName(), "_last_success_timestamp_seconds") {
				continue
			}
			if gauge := f.GetMetric()[0].GetGauge(); gauge.GetValue() == 0 {
				success, failed := before(f.GetName())
				gauge.Value, err = &success, errors.Join(err, failed)
			}
		}
		return families, err
	})
}

// lastRun exports when a recurring work, such as a sweep, last ran and how it ended. It is for one goroutine.
type lastRun struct {
	at, succeeded, took, ok prometheus.Gauge

	figures map[string]*prometheus.GaugeVec
}

// newLastRun registers the metrics tocsin_SUBSYSTEM_last_... of runs such as one with r, which may be nil.
func newLastRun(r prometheus.Registerer, one Ended) *lastRun {
	f := promauto.With(r)
	opts := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: one.Subsystem, Name: "last_" + name, Help: help}
	}
	l := &lastRun{
		at:        f.NewGauge(opts("run_timestamp_seconds", "When the last run ended, in Unix time; 0: none has.")),
		succeeded: f.NewGauge(opts("success_timestamp_seconds", "When the last run ended that did all its work; 0: none has.")),
		took:      f.NewGauge(opts("duration_seconds", "How long the last run took.")),
		ok:        f.NewGauge(opts("ok", "1 if the last run did all its work: its exit code was 0.")),
		figures:   map[string]*prometheus.GaugeVec{},
	}
	for _, figure := range one.Figures {
		if figure.Last == "" {
			continue
		}
		gauge := f.NewGaugeVec(opts(figure.Name, figure.Last), figure.Labels)
		if l.figures[figure.Name] = gauge; figure.Labels == nil {
			gauge.WithLabelValues() // 0 before the first run
		}
	}
	return l
}

// end notes the end of a run.
func (l *lastRun) end(at time.Time, e Ended) {
	seconds := float64(at.UnixMilli()) / 1000
	l.at.Set(seconds)
	l.took.Set(e.Took.Seconds())
	l.ok.Set(0)
	if e.OK {
		l.ok.Set(1)
		l.succeeded.Set(seconds)
	}
	for _, figure := range e.Figures {
		if gauge := l.figures[figure.Name]; gauge != nil && figure.Last != "" {
			if figure.Labels != nil {
				gauge.Reset()
			}
			figure.each(func(n int, labels ...string) { gauge.WithLabelValues(labels...).Set(float64(n)) })
		}
	}
}

// recurring are the metrics of recurring work in a resident process: of its last run, and over all runs.
type recurring struct {
	last    *lastRun
	totals  map[string]*prometheus.CounterVec // by the name of the figure
	runs    *prometheus.CounterVec
	seconds prometheus.Histogram
}

// newRecurring registers the metrics of runs such as one with r, which may be nil. noun is what a run is called, results lists its
// possible results.
func newRecurring(r prometheus.Registerer, one Ended, noun, results string, buckets ...float64) *recurring {
	f := promauto.With(r)
	m := &recurring{last: newLastRun(r, one), totals: map[string]*prometheus.CounterVec{},
		runs: f.NewCounterVec(prometheus.CounterOpts{Namespace: "tocsin", Subsystem: one.Subsystem, Name: strings.ToLower(noun) + "s_total",
			Help: noun + "s ended, by result: " + results + "."}, []string{"result"}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{Namespace: "tocsin", Subsystem: one.Subsystem, Name: strings.ToLower(noun) + "_seconds",
			Help: "Duration of a " + strings.ToLower(noun) + ".", Buckets: buckets}),
	}
	for _, figure := range one.Figures {
		if figure.Total == "" {
			continue
		}
		opts := prometheus.CounterOpts{Namespace: "tocsin", Subsystem: one.Subsystem, Name: figure.Name + "_total", Help: figure.Total}
		counter := f.NewCounterVec(opts, figure.Labels)
		if m.totals[figure.Name] = counter; figure.Labels == nil {
			counter.WithLabelValues()
		}
	}
	return m
}

// ended counts a run by its result.
func (m *recurring) ended(result string, took time.Duration) {
	m.runs.WithLabelValues(result).Inc()
	m.seconds.Observe(took.Seconds())
}

// add exports the figures of a run.
func (m *recurring) add(e Ended) {
	m.last.end(time.Now(), e)
	for _, figure := range e.Figures {
		if counter := m.totals[figure.Name]; counter != nil && figure.Total != "" {
			figure.each(func(n int, labels ...string) { counter.WithLabelValues(labels...).Add(float64(n)) })
		}
	}
}

// lastValue returns the value of a metric in a file, 0 if there is none.
func lastValue(path, name string) (value float64, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return valueIn(file, name, "")
}

// valueIn returns the value of the metric's last series that has a label, such as `job="sweep"`; 0 if there is none.
func valueIn(text io.Reader, name, label string) (value float64, err error) {
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if ok && (strings.HasPrefix(rest, " ") || strings.HasPrefix(rest, "{")) && strings.Contains(rest, label) {
			value, _ = strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64) // a text that is not ours has none
		}
	}
	return value, lines.Err()
}

// Push sends metrics to the Pushgateway at url, in place of what was pushed there before as job name. Without a success of their
// own they keep the time of the last one. It takes at most 20 s, and ends early with ctx.
func Push(ctx context.Context, url, name string, from prometheus.Gatherer) error {
	kept := keeping(from, func(metric string) (float64, error) { return pushed(ctx, url, metric, name) })
	ctx, cancel := context.WithTimeout(ctx, 2*pushWithin)
	defer cancel()
	if err := push.New(url, name).Gatherer(kept).PushContext(ctx); err != nil {
		return fmt.Errorf("push metrics: %w", err)
	}
	return nil
}

// pushed returns the value of a metric that was pushed before as a job; 0 if there is none.
func pushed(ctx context.Context, url, metric, job string) (value float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pushWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("read pushed metrics: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("read pushed metrics: %s answers %s", url, resp.Status)
	}
	return valueIn(io.LimitReader(resp.Body, maxPage), metric, fmt.Sprintf("job=%q", job))
}

// Times are when recurring work is done. Next returns the next time after another, as that of cron.Schedule does: the zero
// time if there is none within five years.
type Times interface{ Next(time.Time) time.Time }

// ParseTimes reads a cron expression of five fields, or one like @every 1m, as a schedule's is read; but its times are those of the machine's
// zone, or of one that stands before it, as in CRON_TZ=Asia/Shanghai 0 4 * * *. Its error says what to write. An expression that
// never fires, such as one of the 30th of February, is refused.
func ParseTimes(expression string) (Times, error) {
	when := expression
	if strings.HasPrefix(when, "TZ=") || strings.HasPrefix(when, "CRON_TZ=") {
		_, when, _ = strings.Cut(when, " ")
	}
	if _, err := firetimes.ValuesOf(when); err != nil {
		return nil, err
	}
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, fmt.Errorf("cron expression %q: %w", expression, err)
	}
	if s.Next(time.Now()).IsZero() {
		return nil, fmt.Errorf("cron expression %q never fires within five years", expression)
	}
	return s, nil
}

// Each calls work at each of the times until ctx ends. After the last one it waits for the end of ctx. Work that runs past the
// next time delays it: work never overlaps, and missed times are not made up for.
func Each(ctx context.Context, times Times, work func(context.Context)) {
	for {
		at := times.Next(time.Now())
		if at.IsZero() {
			<-ctx.Done()
			return
		}
		if loop.WaitUntil(ctx, at) != nil {
			return
		}
		work(ctx)
	}
}
