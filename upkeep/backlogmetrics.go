package upkeep

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/biztype"
)

// backlogGauges are the metrics tocsin_backlog_... by name.
var backlogGauges = map[string]struct {
	help   string
	labels []string
}{
	"leads":                  {"1 if this node measures the backlog of its group's biz types, else 0: the owner of table 0 does or, without etcd, the node that looks first at the first table of the lowest database whose nodes can be read.", nil},
	"oldest_overdue_seconds": {"For how long the oldest task has been due that is still pending; 0 if none has been for a second, or the type is paused. By the server's clock, when it was measured.", []string{"biz_type", "database"}},
	"overdue":                {"Pending tasks that have been due for a second, tasks in delivery included; 0 for a paused type. A lower bound while tables are capped.", []string{"biz_type"}},
	"drain_seconds":          {"Until nothing is overdue, at the pace between the last two measurements; +Inf if it does not become less, NaN if it is not known.", []string{"biz_type"}},
	"capped_tables":          {"Tables with more overdue tasks than were counted.", []string{"database"}},
	"unread_tables":          {"Tables whose overdue tasks could not be read.", []string{"database"}},
	"overdue_age_seconds":    {"How old the overdue figures of the server are.", []string{"server"}},
	"pending":                {"Tasks that are pending, due or not.", []string{"biz_type", "database"}},
	"claimed":                {"Tasks that are claimed.", []string{"biz_type"}},
	"dead":                   {"Tasks that are dead and not purged.", []string{"biz_type"}},
	"count_age_seconds":      {"How old the numbers of pending, claimed and dead tasks of the server are.", []string{"server"}},
}

// backlogMetrics exports the figures of the last walks when it is scraped.
type backlogMetrics struct {
	b     *Backlog
	descs map[string]*prometheus.Desc
}

func newBacklogMetrics(b *Backlog) *backlogMetrics {
	m := &backlogMetrics{b: b, descs: map[string]*prometheus.Desc{}}
	for name, gauge := range backlogGauges {
		m.descs[name] = prometheus.NewDesc("tocsin_backlog_"+name, gauge.help, gauge.labels, nil)
	}
	return m
}

// Describe sends what Collect may send.
func (m *backlogMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range m.descs {
		to <- desc
	}
}

// Collect sends the figures; none while another node measures, or before the first walk has ended.
func (m *backlogMetrics) Collect(to chan<- prometheus.Metric) {
	send := func(name string, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(m.descs[name], prometheus.GaugeValue, value, labels...)
	}
	if !m.b.cfg.Leads() {
		send("leads", 0)
		return
	}
	send("leads", 1)
	policies := m.b.cfg.Policies()
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	m.b.sendOverdue(send, policies)
	m.b.sendCounts(send, policies)
}

// sender sends a gauge.
type sender func(name string, value float64, labels ...string)

func (b *Backlog) sendOverdue(send sender, policies []biztype.Policy) {
	measured := false
	for server, o := range b.overdue {
		if o.at.IsZero() {
			continue
		}
		measured = true
		send("overdue_age_seconds", time.Since(o.at).Seconds(), b.cfg.Store.Servers()[server])
		for _, database := range b.cfg.Store.DatabasesOf(server) {
			name := b.cfg.Store.Layout().Database(database)
			send("capped_tables", float64(o.capped[database]), name)
			send("unread_tables", float64(o.failed[database]), name)
			for _, p := range policies {
				send("oldest_overdue_seconds", unless(p.Paused, o.oldest[spot{p.Number, database}].Seconds()), p.Name, name)
			}
		}
	}
	if !measured {
		return
	}
	for _, p := range policies {
		rows, drain := b.total(p.Number)
		send("overdue", unless(p.Paused, float64(rows)), p.Name)
		send("drain_seconds", unless(p.Paused, drain), p.Name)
	}
}

// unless returns 0 if it holds, else the value.
func unless(holds bool, value float64) float64 {
	if holds {
		return 0
	}
	return value
}

// total adds up the servers: how many tasks are overdue, and in how many seconds none is. Servers drain side by side.
// Called under mu.
func (b *Backlog) total(typeCode uint64) (rows int, drain float64) {
	for _, o := range b.overdue {
		left, known := o.shrink[typeCode]
		rows += o.rows[typeCode]
		switch {
		case o.rows[typeCode] == 0:
		case known && left < 0:
			drain = math.Inf(1)
		case !known && !math.IsInf(drain, 1):
			drain = math.NaN()
		case known:
			drain = math.Max(drain, left.Seconds())
		}
	}
	return rows, drain
}

func (b *Backlog) sendCounts(send sender, policies []biztype.Policy) {
	claimed, dead, counted := make(map[uint64]int), make(map[uint64]int), false
	for server, c := range b.counts {
		if c.at.IsZero() {
			continue
		}
		counted = true
		send("count_age_seconds", time.Since(c.at).Seconds(), b.cfg.Store.Servers()[server])
		for _, p := range policies {
			for _, database := range b.cfg.Store.DatabasesOf(server) {
				send("pending", float64(c.pending[spot{p.Number, database}]), p.Name, b.cfg.Store.Layout().Database(database))
			}
			claimed[p.Number] += c.claimed[p.Number]
			dead[p.Number] += c.dead[p.Number]
		}
	}
	if !counted {
		return
	}
	for _, p := range policies {
		send("claimed", float64(claimed[p.Number]), p.Name)
		send("dead", float64(dead[p.Number]), p.Name)
	}
}
