package backlog

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/biztype"
)

// metrics exports the figures of the last walks when it is scraped.
type metrics struct {
	b *Backlog

	leads, oldest, overdue, drain, capped, unread, overdueAge, pending, claimed, dead, countAge *prometheus.Desc
}

func (b *Backlog) export(r prometheus.Registerer) {
	if r == nil {
		return
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("tocsin_backlog_"+name, help, labels, nil)
	}
	r.MustRegister(&metrics{
		b:          b,
		leads:      desc("leads", "1 if this node measures the backlog of its group's biz types, else 0: the owner of table 0 does."),
		oldest:     desc("oldest_overdue_seconds", "For how long the oldest task has been due that is still pending; 0 if none has been for a second, or the type is paused. By the server's clock, when it was measured.", "biz_type", "database"),
		overdue:    desc("overdue", "Pending tasks that have been due for a second, tasks in delivery included; 0 for a paused type. A lower bound while tables are capped.", "biz_type"),
		drain:      desc("drain_seconds", "Until nothing is overdue, at the pace between the last two measurements; +Inf if it does not become less, NaN if it is not known.", "biz_type"),
		capped:     desc("capped_tables", "Tables with more overdue tasks than were counted.", "database"),
		unread:     desc("unread_tables", "Tables whose overdue tasks could not be read.", "database"),
		overdueAge: desc("overdue_age_seconds", "How old the overdue figures of the server are.", "server"),
		pending:    desc("pending", "Tasks that are pending, due or not.", "biz_type", "database"),
		claimed:    desc("claimed", "Tasks that are claimed.", "biz_type"),
		dead:       desc("dead", "Tasks that are dead and not purged.", "biz_type"),
		countAge:   desc("count_age_seconds", "How old the numbers of pending, claimed and dead tasks of the server are.", "server"),
	})
}

// Describe sends what Collect may send.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		m.leads, m.oldest, m.overdue, m.drain, m.capped, m.unread, m.overdueAge, m.pending, m.claimed, m.dead, m.countAge,
	} {
		to <- desc
	}
}

// sender sends gauges.
type sender chan<- prometheus.Metric

func (s sender) gauge(desc *prometheus.Desc, value float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// Collect sends the figures; none while another node measures, or before the first walk has ended.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	send := sender(to)
	if !m.b.cfg.Leads() {
		send.gauge(m.leads, 0)
		return
	}
	send.gauge(m.leads, 1)
	policies := m.b.cfg.Policies()
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	m.sendOverdue(send, policies)
	m.sendCounts(send, policies)
}

func (m *metrics) sendOverdue(send sender, policies []biztype.Policy) {
	measured := false
	for server, o := range m.b.overdue {
		if o.at.IsZero() {
			continue
		}
		measured = true
		send.gauge(m.overdueAge, time.Since(o.at).Seconds(), m.b.cfg.Servers[server])
		for _, database := range m.databases(server) {
			name := m.b.cfg.Layout.Database(database)
			send.gauge(m.capped, float64(o.capped[database]), name)
			send.gauge(m.unread, float64(o.failed[database]), name)
			for _, p := range policies {
				send.gauge(m.oldest, unless(p.Paused, o.oldest[place{p.Number, database}].Seconds()), p.Name, name)
			}
		}
	}
	for _, p := range policies {
		if measured {
			rows, drain := m.b.total(p.Number)
			send.gauge(m.overdue, unless(p.Paused, float64(rows)), p.Name)
			send.gauge(m.drain, unless(p.Paused, drain), p.Name)
		}
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

func (m *metrics) sendCounts(send sender, policies []biztype.Policy) {
	claimed, dead, counted := make(map[uint64]int), make(map[uint64]int), false
	for server, c := range m.b.counts {
		if c.at.IsZero() {
			continue
		}
		counted = true
		send.gauge(m.countAge, time.Since(c.at).Seconds(), m.b.cfg.Servers[server])
		for _, p := range policies {
			for _, database := range m.databases(server) {
				send.gauge(m.pending, float64(c.pending[place{p.Number, database}]), p.Name, m.b.cfg.Layout.Database(database))
			}
			claimed[p.Number] += c.claimed[p.Number]
			dead[p.Number] += c.dead[p.Number]
		}
	}
	for _, p := range policies {
		if counted {
			send.gauge(m.claimed, float64(claimed[p.Number]), p.Name)
			send.gauge(m.dead, float64(dead[p.Number]), p.Name)
		}
	}
}

// databases returns the numbers of a server's databases.
func (m *metrics) databases(server int) (all []int) {
	last := -1
	for _, table := range m.b.cfg.TablesOf(server) {
		if database := m.b.cfg.Layout.DatabaseOf(table); database != last {
			all, last = append(all, database), database
		}
	}
	return all
}
