// Package lastrun exports when a recurring work, such as a sweep, last ran and how it ended. A resident process exports it
// to its registry, and a command that cron starts writes it into a file for node_exporter's textfile collector, or sends it
// to a Pushgateway: the same names everywhere.
package lastrun

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Run is the last run of one kind of work. It is for one goroutine.
type Run struct {
	success                 string // name of the metric succeeded
	failed                  bool
	at, succeeded, took, ok prometheus.Gauge
}

// New registers the metrics of tocsin_SUBSYSTEM_last_... with r, which may be nil.
func New(r prometheus.Registerer, subsystem string) *Run {
	f := promauto.With(r)
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: subsystem, Name: "last_" + name, Help: help})
	}
	return &Run{
		success:   "tocsin_" + subsystem + "_last_success_timestamp_seconds",
		at:        gauge("run_timestamp_seconds", "When the last run ended, in Unix time; 0: none has."),
		succeeded: gauge("success_timestamp_seconds", "When the last run ended that did all its work; 0: none has."),
		took:      gauge("duration_seconds", "How long the last run took."),
		ok:        gauge("ok", "1 if the last run did all its work: its exit code was 0."),
	}
}

// End notes the end of a run.
func (r *Run) End(at time.Time, took time.Duration, ok bool) {
	seconds := float64(at.UnixMilli()) / 1000
	r.at.Set(seconds)
	r.took.Set(took.Seconds())
	r.ok.Set(0)
	if r.failed = !ok; ok {
		r.ok.Set(1)
		r.succeeded.Set(seconds)
	}
}

// Write writes what from gathers, the run's own metrics among it, into DIR/NAME.prom, whole or not at all. If the last run failed, the time of the
// last success is taken from the file that it replaces.
func (r *Run) Write(dir, name string, from prometheus.Gatherer) error {
	path := filepath.Join(dir, name+".prom")
	if r.failed {
		before, err := lastValue(path, r.success)
		if err != nil {
			return err
		}
		r.succeeded.Set(before)
	}
	return prometheus.WriteToTextfile(path, from)
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
