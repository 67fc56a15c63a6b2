package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/contrib/tocsinprom"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/upkeep"
)

// metric is what the page says of a metric.
type metric struct{ name, kind, labels, help string }

func (m metric) String() string {
	return fmt.Sprintf("| `%s` | %s | %s | %s |", m.name, m.kind, m.labels, m.help)
}

// metricBook is a Registerer that notes all metrics, those without a value too, which a registry does not tell.
type metricBook struct {
	*prometheus.Registry

	mu      sync.Mutex
	metrics map[string]metric
}

func newMetricBook() *metricBook {
	return &metricBook{Registry: prometheus.NewRegistry(), metrics: map[string]metric{}}
}

var description = regexp.MustCompile(`fqName: "([^"]+)", help: "(.*)", unit: .*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)

func (b *metricBook) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	b.mu.Lock()
	defer b.mu.Unlock()
	for d := range descs {
		said := description.FindStringSubmatch(d.String())
		labels := strings.Split(said[4], ",")
		for _, pair := range strings.Split(said[3], ",") {
			name, _, _ := strings.Cut(pair, "=")
			labels = append(labels, name)
		}
		labels = slices.DeleteFunc(labels, func(l string) bool { return l == "" })
		b.metrics[said[1]] = metric{said[1], kindOf(c), strings.Join(labels, ", "), said[2]}
	}
	return b.Registry.Register(c)
}

// MustRegister is that of this Registerer, not of the registry inside.
func (b *metricBook) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := b.Register(c); err != nil {
			panic(err)
		}
	}
}

// kindOf returns the type of a collector's metrics; "" if it has none yet.
func kindOf(c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	}
	return ""
}

// read returns all metrics by name, with the types that show only in what is exported.
func (b *metricBook) read(t *testing.T) map[string]metric {
	t.Helper()
	families, err := b.Gather()
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, family := range families {
		m := b.metrics[family.GetName()]
		m.kind = strings.ToLower(family.GetType().String())
		b.metrics[m.name] = m
	}
	return maps.Clone(b.metrics)
}

// everyMetric runs all that exports metrics, and returns them by name.
func everyMetric(t *testing.T) map[string]metric {
	t.Helper()
	hook := &biztype.Webhook{URL: "http://127.0.0.1:1/"}
	linked := biztype.Policy{Name: "order.linked", Number: 9, Group: "orders", Webhook: hook, Fallback: &tocsin.Fallback{Webhook: hook}}
	p := newPlace(t, closePolicy(), linked)
	cfg := p.config("orders")
	ofNode, ofUpkeep, ofClient := newMetricBook(), newMetricBook(), newMetricBook()
	cfg.Registerer, cfg.Outboxes = ofNode, []outbox.Config{{DSN: devtest.DSN(t), Table: "nothing_here.tocsin_outbox"}}
	h := closing(closes)
	run(t, cfg, h)
	open := newOpenPlace(t, linked).config("orders") // nobody owns tables
	ofOpen := newMetricBook()
	open.Registerer = ofOpen
	run(t, open, h)
	for _, book := range []*metricBook{ofNode, ofOpen} { // every engine is there when the backlog has been measured
		until(t, "the backlog", func() bool { return has(t, book, "tocsin_backlog_pending") && has(t, book, "tocsin_backlog_overdue") })
	}
	sweep := p.config("orders")
	sweep.Registerer = &keeper{ofUpkeep}
	sweeping := newSweeper(t, sweep, h)
	if _, err := sweeping.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tocsinprom.Observe(ofClient); err != nil {
		t.Fatal(err)
	}
	upkeep.NewPurger(upkeep.PurgeConfig{Registerer: ofUpkeep})
	all := ofNode.read(t)
	maps.Copy(all, ofOpen.read(t))
	maps.Copy(all, ofUpkeep.read(t))
	maps.Copy(all, ofClient.read(t))
	maps.Copy(all, ofAudit(t))
	return all
}

// keeper keeps the metrics of a sweep that has ended.
type keeper struct{ *metricBook }

func (*keeper) Unregister(prometheus.Collector) bool { return true }

// has reports whether there is a metric of that name.
func has(t *testing.T, from prometheus.Gatherer, name string) bool {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
}

// ofAudit returns the metrics of the files that audits write.
func ofAudit(t *testing.T) map[string]metric {
	t.Helper()
	dir := t.TempDir()
	if err := upkeep.WriteTextfile(dir, "audit", upkeep.AuditReport{Faults: map[string]int{"overdue": 1}}.Ended(true).Metrics(nil)); err != nil {
		t.Fatal(err)
	}
	if err := upkeep.WriteTextfile(dir, "outbox", upkeep.OutboxReport{Faults: map[string]int{"not_moved": 1}}.Ended(true).Metrics(nil)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "audit.prom"))
	if err != nil {
		t.Fatal(err)
	}
	ofOutbox, err := os.ReadFile(filepath.Join(dir, "outbox.prom"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]metric{}
	for _, m := range regexp.MustCompile(`(?m)^# HELP (\S+) (.*)\n# TYPE \S+ (\S+)\n\w+(?:\{(\w+)=)?`).FindAllStringSubmatch(string(text)+string(ofOutbox), -1) {
		all[m[1]] = metric{m[1], m[3], m[4], m[2]}
	}
	return all
}

// ofAPI begins the metrics of package api, whose module this one may not need. A test there holds them against the page.
const ofAPI = "tocsin_api_"

// The page has a row for every metric, with its type, its labels and its help text, and no other row.
func TestThePageOfMetricsIsThatOfTheCode(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(tocsin_[a-z_]+)` \\|.*$").FindAllStringSubmatch(string(page), -1) {
		if !strings.HasPrefix(m[1], ofAPI) {
			documented[m[1]] = m[0]
		}
	}
	all := everyMetric(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		if m.kind == "" || m.help == "" || strings.Contains(m.help, "|") {
			t.Errorf("%s has the type %q and the help %q", name, m.kind, m.help)
		}
		if documented[name] != m.String() {
			t.Errorf("docs/metrics.md lacks this row:\n%s", m)
		}
		for _, label := range []string{"table", "job_id", "biz_id", "dedup_key"} {
			if slices.Contains(strings.Split(m.labels, ", "), label) {
				t.Errorf("%s has the label %s, which has no bound", name, label)
			}
		}
	}
	for _, name := range regexp.MustCompile(`tocsin_[a-z_]*[a-z]`).FindAllString(string(page), -1) {
		if _, there := all[strings.TrimSuffix(name, "_bucket")]; !there && !strings.HasPrefix(name, ofAPI) {
			t.Errorf("a query of docs/metrics.md names %s, which is no metric", name)
		}
	}
	for name, row := range documented {
		if _, there := all[name]; !there {
			t.Errorf("no metric is as docs/metrics.md says:\n%s", row)
		}
	}
	operators, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(tocsin_[a-z_]+)`").FindAllStringSubmatch(string(operators), -1)
	if len(named) == 0 {
		t.Error("docs/operations.md names no metric")
	}
	for _, m := range named {
		if !bytes.Contains(page, []byte("\n| `"+m[1]+"` |")) {
			t.Errorf("docs/operations.md names %s, which is no metric", m[1])
		}
	}
}

// What a node with several biz types exports has a bound: for each type, for each server and database, and in all.
func TestTheSeriesOfANodeAreBounded(t *testing.T) {
	t.Parallel()
	const types = 5
	var policies []biztype.Policy
	var h node.Handlers
	for i := range types {
		name := fmt.Sprintf("order.type%d", i)
		policies = append(policies, biztype.Policy{
			Name: name, Number: uint64(i + 1), Group: "orders", Timeout: biztype.Duration(300 * time.Millisecond),
			Attempts: 2, Ladder: []biztype.Duration{biztype.Duration(10 * time.Millisecond)},
		})
		node.Handle(&h, tocsin.Define[order](name), misbehave)
	}
	p := newPlace(t, policies...)
	cfg := p.config("orders")
	cfg.Registerer = newMetricBook()
	registry := cfg.Registerer.(*metricBook)
	n, _ := run(t, cfg, &h)
	until(t, "every engine exports", func() bool {
		return owned(n) == 8 && has(t, registry, "tocsin_backlog_pending") && has(t, registry, "tocsin_backlog_overdue")
	})
	var ids []tocsin.JobID
	for i := range types {
		for bizID := range ways {
			ids = append(ids, add(t, p, tocsin.Define[order](policies[i].Name).New(uint64(bizID+1), order{}, tocsin.In(0))))
		}
	}
	for _, id := range ids {
		await(t, p, id, "its first outcome", func(i tocsin.Info) bool { return i.Attempts > 0 || i.Status.Final() || i.DueTime.Before(i.ActionTime) })
	}
	began := time.Now()
	found := count(t, registry)
	t.Logf("they were gathered in %s", time.Since(began))
	found.check(t, types)
}

// ways are how misbehave can end.
const ways = 5

// misbehave ends in every way that a Go handler can.
func misbehave(ctx context.Context, task *tocsin.Task[order]) error {
	switch task.BizID {
	case 1:
		return nil
	case 2:
		return errors.New("no stock")
	case 3:
		panic("nil order")
	case 4:
		<-ctx.Done()
		return ctx.Err()
	}
	return tocsin.Snooze(time.Hour)
}

// series are numbers of series, as they are without native histograms: a bucket is a series too.
type series struct {
	ofType, ofMeasured             map[string]int // by biz type: of each node, and of the node that measures the backlog
	ofServer, ofDatabase, ofNobody int
	measured                       int // of the node that measures the backlog, beside those of the biz types
}

func count(t *testing.T, from prometheus.Gatherer) series {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	s := series{ofType: map[string]int{}, ofMeasured: map[string]int{}}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			n := 1
			if h := m.GetHistogram(); h != nil {
				n = len(h.GetBucket()) + 3 // +Inf, sum and count
			}
			s.add(family.GetName(), m.GetLabel(), n)
		}
	}
	return s
}

func (s *series) add(name string, labels []*dto.LabelPair, n int) {
	of := map[string]string{}
	for _, l := range labels {
		of[l.GetName()] = l.GetValue()
	}
	switch {
	case strings.HasPrefix(name, "tocsin_store_slow_"), strings.HasSuffix(name, "_errors_total"): // there while a server is slow, or something fails
	case of["biz_type"] != "" && strings.HasPrefix(name, "tocsin_backlog_"):
		s.ofMeasured[of["biz_type"]] += n
	case strings.HasPrefix(name, "tocsin_backlog_"):
		s.measured += n
	case of["biz_type"] != "":
		s.ofType[of["biz_type"]] += n
	case of["database"] != "":
		s.ofDatabase += n
	case of["server"] != "":
		s.ofServer += n
	default:
		s.ofNobody += n
	}
}

// check wants at most 30 series for each biz type, and 341 for a node beside them, on 8 servers with a database each. The
// place has one server and two databases.
func (s series) check(t *testing.T, types int) {
	t.Helper()
	if len(s.ofType) != types || len(s.ofMeasured) != types {
		t.Errorf("series of %d and %d biz types, want %d", len(s.ofType), len(s.ofMeasured), types)
	}
	for name, n := range s.ofType {
		if n > 30 {
			t.Errorf("%d series of %s", n, name)
		}
	}
	for name, n := range s.ofMeasured {
		if n != 2*2+4 {
			t.Errorf("%d series of the backlog of %s, want 2 for each database and 4", n, name)
		}
	}
	if s.measured != 1+2+2*2 {
		t.Errorf("%d series of the backlog beside those of biz types, want 2 for each server and database, and 1", s.measured)
	}
	on8 := s.ofNobody + 8*s.ofServer + 8*s.ofDatabase/2
	t.Logf("series: %v of the biz types, %v of their backlogs; %d of the server, %d of 2 databases, %d others: %d on 8 servers",
		s.ofType, s.ofMeasured, s.ofServer, s.ofDatabase, s.ofNobody, on8)
	if on8 > 341 { // late tasks need statements of their own
		t.Errorf("%d series on 8 servers", on8)
	}
}
