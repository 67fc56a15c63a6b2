package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxMetrics is how many bytes of a page of metrics are read.
const maxMetrics = 16 << 20

// NodeHeader is the header that names the node that a page of metrics is of.
const NodeHeader = "Tocsin-Node"

// Watch looks at all nodes again and again. Its first fields say at which, and do not change. It belongs to one goroutine.
type Watch struct {
	View     View
	Group    string        // nodes of this group only; "": of all
	Status   []string      // addresses of status pages to ask in place of those of the listed nodes; then neither etcd nor MySQL is asked
	Interval time.Duration // between two looks

	Failed error // why the nodes could not be listed by the last Look that tried

	pages  []pageOfNode          // of the nodes, as last listed
	listed time.Time             // when; zero: never
	before map[string]nodeSample // by address and node
}

// pageOfNode is where a node's metrics are.
type pageOfNode struct{ node, group, address string }

const (
	listWithin = 4 * time.Second  // one look at etcd, or the session tables
	listEvery  = 10 * time.Second // between two looks for nodes
)

// Look lists the nodes if that is due, asks each for its metrics at once, and compares them with those of the last look.
func (w *Watch) Look(ctx context.Context) Activity {
	if w.listed.IsZero() || time.Since(w.listed) >= listEvery {
		w.list(ctx)
	}
	now := make([]nodeSample, len(w.pages))
	var all sync.WaitGroup
	for i, p := range w.pages {
		all.Go(func() { now[i] = w.sample(ctx, p) })
	}
	all.Wait()
	by := make(map[string]nodeSample, len(now))
	for _, s := range now {
		by[s.Address+" "+s.Node] = s
	}
	v := between(w.before, by, time.Now())
	w.before = by
	if w.Failed != nil || w.Group != "" || len(w.Status) > 0 {
		v.Groups = []Unserved{} // there may be nodes that were not asked
	}
	if w.Failed != nil {
		v.Notes = append(v.Notes, "the nodes could not be listed just now, these are the last known: "+OneLine(w.Failed)+"; --status HOST:PORT,... asks status pages without it")
	}
	return v
}

// list finds the nodes. If that fails, those found before stay.
func (w *Watch) list(ctx context.Context) {
	w.listed = time.Now()
	if len(w.Status) > 0 {
		w.pages = nil
		for _, address := range w.Status {
			w.pages = append(w.pages, pageOfNode{address: address})
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	groups, err := w.View.Nodes(ctx, w.Group)
	if w.Failed = err; err != nil && len(groups) == 0 {
		return
	}
	w.pages = nil
	for _, g := range groups {
		for _, n := range g.Nodes {
			w.pages = append(w.pages, pageOfNode{n.ID, g.Group, pageOf(n).Address})
		}
	}
}

// nodeSample is what one node exported at one time.
type nodeSample struct {
	Node    string // id, or the address if it does not tell
	Group   string // "": not known
	Address string
	Err     error // why it could not be asked; the rest is zero then

	At        time.Time
	Mode      string
	Tables    int // that it owns, or looks at first
	Wanted    int // that it should own
	Open      int // tasks in delivery, or waiting to be settled
	Unsettled int
	Oldest    time.Duration // for how long the oldest outcome has waited to be settled
	Types     map[string]typeSample
	Servers   map[string]serverSample
	Groups    map[string]int // biz types of other groups that are not paused
}

// serverSample is what a node exported about one MySQL server.
type serverSample struct {
	Away    bool          // it did not answer this node
	Waiting time.Duration // how long the oldest statement has waited for an answer
	Figures time.Duration // age of the overdue figures, if this node measures them
}

// typeSample is what a node exported of one biz type. The counters grow from the start of the process.
type typeSample struct {
	Done, Retried, Dead float64
	Late                []bucket // ascending

	Queued, Running, Limit int
	Waiters                *int    // workers that wait; nil: it is no pull type
	State                  int     // of the lane, as tocsin_dispatcher_lane_state has it
	Throttle               float64 // deliveries a second, as the target has said later; 0: it has not
	Lacks                  bool    // the node can't deliver it: there may be no lane

	Measured bool // this node measures the backlog of the type
	Overdue  float64
	Age      time.Duration // of the oldest overdue task
	Drain    float64       // seconds; NaN: not known, +Inf: never
}

// bucket counts the deliveries that began at most so late.
type bucket struct {
	Within time.Duration // never for all
	Count  float64
}

// never is the Within of the bucket that holds all deliveries.
const never = time.Duration(1<<63 - 1)

// sample asks one node for its metrics.
func (w *Watch) sample(ctx context.Context, p pageOfNode) nodeSample {
	s := nodeSample{Node: cmp.Or(p.node, p.address), Group: p.group, Address: p.address}
	if p.address == "" {
		s.Err = errors.New("it publishes no address of a status page")
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, min(max(w.Interval, time.Second), askWithin))
	defer cancel()
	var found families
	header, err := w.View.Pages.get(ctx, p.address, "/metrics", func(body io.Reader) (err error) {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		found, err = parser.TextToMetricFamilies(io.LimitReader(body, maxMetrics))
		return err
	})
	switch id := header.Get(NodeHeader); {
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
func (f families) into(s *nodeSample) {
	s.At, s.Types, s.Servers = time.Now(), map[string]typeSample{}, map[string]serverSample{}
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
func (f families) types(s *nodeSample) {
	set := seriesOf(f, "biz_type", s.Types)
	set("tocsin_dispatcher_attempts_total", (*typeSample).settled)
	set("tocsin_pull_settled_total", func(t *typeSample, m *dto.Metric) {
		if labelOf(m, "result") == "done" {
			t.settled(m)
		}
	})
	set("tocsin_pull_waiters", func(t *typeSample, m *dto.Metric) { t.Waiters = new(int(valueOf(m))) })
	set("tocsin_dispatcher_lateness_seconds", func(t *typeSample, m *dto.Metric) { t.Late = bucketsOf(m) })
	set("tocsin_dispatcher_lane_queued", func(t *typeSample, m *dto.Metric) { t.Queued = int(valueOf(m)) })
	set("tocsin_dispatcher_lane_running", func(t *typeSample, m *dto.Metric) { t.Running = int(valueOf(m)) })
	set("tocsin_dispatcher_lane_limit", func(t *typeSample, m *dto.Metric) { t.Limit = int(valueOf(m)) })
	set("tocsin_dispatcher_lane_state", func(t *typeSample, m *dto.Metric) { t.State = int(valueOf(m)) })
	set("tocsin_dispatcher_lane_throttle", func(t *typeSample, m *dto.Metric) { t.Throttle = valueOf(m) })
	set("tocsin_node_biz_type_lacking", func(t *typeSample, m *dto.Metric) { t.Lacks = valueOf(m) > 0 })
	set("tocsin_backlog_overdue", func(t *typeSample, m *dto.Metric) { t.Measured, t.Overdue = true, valueOf(m) })
	set("tocsin_backlog_oldest_overdue_seconds", func(t *typeSample, m *dto.Metric) { t.Age = max(t.Age, secondsOf(valueOf(m))) })
	set("tocsin_backlog_drain_seconds", func(t *typeSample, m *dto.Metric) { t.Drain = valueOf(m) })
}

// settled adds the attempts that ended in one way.
func (t *typeSample) settled(m *dto.Metric) {
	switch labelOf(m, "verb") {
	case "complete":
		t.Done += valueOf(m)
	case "retry":
		t.Retried += valueOf(m)
	case "bury":
		t.Dead += valueOf(m)
	}
}

// servers reads the metrics of MySQL servers.
func (f families) servers(s *nodeSample) {
	set := seriesOf(f, "server", s.Servers)
	set("tocsin_node_server_up", func(t *serverSample, m *dto.Metric) { t.Away = valueOf(m) == 0 })
	set("tocsin_node_server_waiting_seconds", func(t *serverSample, m *dto.Metric) { t.Waiting = secondsOf(valueOf(m)) })
	set("tocsin_backlog_overdue_age_seconds", func(t *serverSample, m *dto.Metric) { t.Figures = secondsOf(valueOf(m)) })
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
func bucketsOf(m *dto.Metric) (all []bucket) {
	for _, b := range m.GetHistogram().GetBucket() {
		within := never
		if !math.IsInf(b.GetUpperBound(), 1) {
			within = secondsOf(b.GetUpperBound())
		}
		all = append(all, bucket{Within: within, Count: float64(b.GetCumulativeCount())})
	}
	slices.SortFunc(all, func(a, b bucket) int { return cmp.Compare(a.Within, b.Within) })
	return all
}
