package auditor

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin/internal/lastrun"
)

// last is what the last audit found.
type last struct {
	*lastrun.Run
	tables, rows, statements, failed prometheus.Gauge

	faults *prometheus.GaugeVec
}

func newLast(r prometheus.Registerer) *last {
	f := promauto.With(r)
	opts := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "auditor", Name: "last_" + name, Help: help}
	}
	return &last{
		Run:        lastrun.New(r, "auditor"),
		tables:     f.NewGauge(opts("tables", "Tables that the last audit read without an error.")),
		rows:       f.NewGauge(opts("rows", "Rows that the last audit read.")),
		statements: f.NewGauge(opts("statements", "Statements that the last audit sent.")),
		failed:     f.NewGauge(opts("failed_servers", "Servers that the last audit could not read in full.")),
		faults:     f.NewGaugeVec(opts("faults", "Rows with a fault that the last audit found, by fault; faults that it did not find are left out."), []string{"fault"}),
	}
}

// WriteTextfile writes the metrics of an audit into a directory of node_exporter's textfile collector. err is the error of
// the audit.
func WriteTextfile(dir, name string, labels prometheus.Labels, r Report, err error) error {
	l, registry := lastOf(labels, r, err)
	return l.Write(dir, name, registry)
}

// Push sends the metrics of WriteTextfile to the Pushgateway at url, as the job name.
func Push(ctx context.Context, url, name string, labels prometheus.Labels, r Report, err error) error {
	l, registry := lastOf(labels, r, err)
	return l.Push(ctx, url, name, registry)
}

func lastOf(labels prometheus.Labels, r Report, err error) (*last, *prometheus.Registry) {
	registry := prometheus.NewRegistry()
	l := newLast(prometheus.WrapRegistererWith(labels, registry))
	l.End(time.Now(), r.Cost.Took, err == nil && len(r.Findings) == 0)
	l.tables.Set(float64(r.Tables))
	l.rows.Set(float64(r.Cost.Rows))
	l.statements.Set(float64(r.Cost.Statements))
	l.failed.Set(float64(len(r.Failed)))
	for fault, rows := range r.Faults {
		l.faults.WithLabelValues(fault).Set(float64(rows))
	}
	return l, registry
}

// lastOutbox is what the last audit of outboxes found.
type lastOutbox struct {
	*lastrun.Run
	outboxes, moved, purged, waiting, failed prometheus.Gauge

	faults *prometheus.GaugeVec
}

func newLastOutbox(r prometheus.Registerer) *lastOutbox {
	f := promauto.With(r)
	opts := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "auditor_outbox", Name: "last_" + name, Help: help}
	}
	return &lastOutbox{
		Run:      lastrun.New(r, "auditor_outbox"),
		outboxes: f.NewGauge(opts("outboxes", "Outboxes that the last audit of outboxes read without an error.")),
		moved:    f.NewGauge(opts("moved", "Tasks moved from outboxes that the last audit of outboxes looked for.")),
		purged:   f.NewGauge(opts("purged", "Tasks that the last audit of outboxes did not find, and that may have been purged.")),
		waiting:  f.NewGauge(opts("waiting", "Rows that the last audit of outboxes read in outboxes.")),
		failed:   f.NewGauge(opts("failed", "Servers and outboxes that the last audit of outboxes could not read in full.")),
		faults:   f.NewGaugeVec(opts("faults", "Rows with a fault that the last audit of outboxes found, by fault; faults that it did not find are left out."), []string{"fault"}),
	}
}

// WriteOutboxTextfile is WriteTextfile for an audit of outboxes.
func WriteOutboxTextfile(dir, name string, labels prometheus.Labels, r OutboxReport, err error) error {
	l, registry := lastOutboxOf(labels, r, err)
	return l.Write(dir, name, registry)
}

// PushOutbox is Push for an audit of outboxes.
func PushOutbox(ctx context.Context, url, name string, labels prometheus.Labels, r OutboxReport, err error) error {
	l, registry := lastOutboxOf(labels, r, err)
	return l.Push(ctx, url, name, registry)
}

func lastOutboxOf(labels prometheus.Labels, r OutboxReport, err error) (*lastOutbox, *prometheus.Registry) {
	registry := prometheus.NewRegistry()
	l := newLastOutbox(prometheus.WrapRegistererWith(labels, registry))
	l.End(time.Now(), r.Cost.Took, err == nil && len(r.Findings) == 0)
	l.outboxes.Set(float64(r.Outboxes))
	l.moved.Set(float64(r.Moved))
	l.purged.Set(float64(r.Purged))
	l.waiting.Set(float64(r.Waiting))
	l.failed.Set(float64(len(r.Failed)))
	for fault, rows := range r.Faults {
		l.faults.WithLabelValues(fault).Set(float64(rows))
	}
	return l, registry
}
