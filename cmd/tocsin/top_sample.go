package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tocsinhq/tocsin/internal/top"
)

// maxMetrics is how many bytes of a page of metrics are read.
const maxMetrics = 16 << 20

// nodeHeader names the node that a page of metrics is of.
const nodeHeader = "Tocsin-Node"

// sample asks one node for its metrics.
func (w *watch) sample(ctx context.Context, p pageOfNode) top.Sample {
	s := top.Sample{Node: cmp.Or(p.node, p.address), Group: p.group, Address: p.address}
	if p.address == "" {
		s.Err = errors.New("it publishes no address of a status page")
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, max(w.flags.interval, time.Second))
	defer cancel()
	var found families
	header, err := w.asker.Get(ctx, p.address, "/metrics", func(body io.Reader) (err error) {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		found, err = parser.TextToMetricFamilies(io.LimitReader(body, maxMetrics))
		return err
	})
	switch id := header.Get(nodeHeader); {
	case err != nil:
		s.Err = err
	case p.node != "" && id != "" && id != p.node:
		s.Err = fmt.Errorf("another node answers there: correct node.listen in its config, or use --status (%s)", id)
	case p.node == "" && id != "":
		s.Node = id
	}
	if s.Err == nil {
		found.into(&s)
	}
	return s
}

// families are the metrics of a node, by name.
type families map[string]*dto.MetricFamily

// into reads what is shown.
func (f families) into(s *top.Sample) {
	s.At, s.Types, s.Servers = time.Now(), map[string]top.TypeSample{}, map[string]top.ServerSample{}
	f.each("tocsin_node_mode", func(m *dto.Metric) {
		if valueOf(m) == 1 {
			s.Mode = labelOf(m, "mode")
		}
	})
	s.Tables, s.Wanted = int(f.one("tocsin_assign_tables_owned")), int(f.one("tocsin_assign_tables_wanted"))
	if s.Mode == "rows" {
		s.Tables = int(f.one("tocsin_presence_tables_first"))
		s.Wanted = s.Tables
	}
	s.Open, s.Unsettled = int(f.one("tocsin_dispatcher_open")), int(f.one("tocsin_dispatcher_unsettled"))
	s.Oldest = secondsOf(f.one("tocsin_dispatcher_unsettled_age_seconds"))
	f.types(s)
	f.servers(s)
	s.Groups = map[string]int{}
	f.each("tocsin_node_group_biz_types", func(m *dto.Metric) {
		if labelOf(m, "own") == "true" {
			s.Group = cmp.Or(s.Group, labelOf(m, "group"))
		} else {
			s.Groups[labelOf(m, "group")] = int(valueOf(m))
		}
	})
}

// types reads the metrics of biz types.
func (f families) types(s *top.Sample) {
	set := seriesOf(f, "biz_type", s.Types)
	set("tocsin_dispatcher_attempts_total", func(t *top.TypeSample, m *dto.Metric) {
		switch labelOf(m, "verb") {
		case "complete":
			t.Done = valueOf(m)
		case "retry":
			t.Retried = valueOf(m)
		case "snooze":
			t.Snoozed = valueOf(m)
		case "bury":
			t.Dead = valueOf(m)
		}
	})
	set("tocsin_dispatcher_lateness_seconds", func(t *top.TypeSample, m *dto.Metric) { t.Late = bucketsOf(m) })
	set("tocsin_dispatcher_lane_queued", func(t *top.TypeSample, m *dto.Metric) { t.Queued = int(valueOf(m)) })
	set("tocsin_dispatcher_lane_running", func(t *top.TypeSample, m *dto.Metric) { t.Running = int(valueOf(m)) })
	set("tocsin_dispatcher_lane_limit", func(t *top.TypeSample, m *dto.Metric) { t.Limit = int(valueOf(m)) })
	set("tocsin_dispatcher_lane_state", func(t *top.TypeSample, m *dto.Metric) { t.State = int(valueOf(m)) })
	set("tocsin_backlog_overdue", func(t *top.TypeSample, m *dto.Metric) { t.Measured, t.Overdue = true, valueOf(m) })
	set("tocsin_backlog_oldest_overdue_seconds", func(t *top.TypeSample, m *dto.Metric) { t.Age = max(t.Age, secondsOf(valueOf(m))) })
	set("tocsin_backlog_drain_seconds", func(t *top.TypeSample, m *dto.Metric) { t.Drain = valueOf(m) })
}

// servers reads the metrics of MySQL servers.
func (f families) servers(s *top.Sample) {
	set := seriesOf(f, "server", s.Servers)
	set("tocsin_node_server_up", func(t *top.ServerSample, m *dto.Metric) { t.Away = valueOf(m) == 0 })
	set("tocsin_node_server_waiting_seconds", func(t *top.ServerSample, m *dto.Metric) { t.Waiting = secondsOf(valueOf(m)) })
	set("tocsin_backlog_overdue_age_seconds", func(t *top.ServerSample, m *dto.Metric) { t.Figures = secondsOf(valueOf(m)) })
}

// seriesOf returns what changes, for each series of a metric, the sample that a label of it names.
func seriesOf[T any](f families, label string, samples map[string]T) func(name string, change func(*T, *dto.Metric)) {
	return func(name string, change func(*T, *dto.Metric)) {
		f.each(name, func(m *dto.Metric) {
			sample := samples[labelOf(m, label)]
			change(&sample, m)
			samples[labelOf(m, label)] = sample
		})
	}
}

// each calls read for each series of a metric.
func (f families) each(name string, read func(*dto.Metric)) {
	for _, m := range f[name].GetMetric() {
		read(m)
	}
}

// one returns the value of a metric without labels; 0 if it is not exported.
func (f families) one(name string) (value float64) {
	f.each(name, func(m *dto.Metric) { value = valueOf(m) })
	return value
}

func valueOf(m *dto.Metric) float64 { return m.GetCounter().GetValue() + m.GetGauge().GetValue() }

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func secondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// bucketsOf returns the classic buckets of a histogram.
func bucketsOf(m *dto.Metric) (all []top.Bucket) {
	for _, b := range m.GetHistogram().GetBucket() {
		within := top.Never
		if !math.IsInf(b.GetUpperBound(), 1) {
			within = secondsOf(b.GetUpperBound())
		}
		all = append(all, top.Bucket{Within: within, Count: float64(b.GetCumulativeCount())})
	}
	slices.SortFunc(all, func(a, b top.Bucket) int { return cmp.Compare(a.Within, b.Within) })
	return all
}
