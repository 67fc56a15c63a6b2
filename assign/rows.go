package assign

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/internal/store"
)

// attendEvery is how often a node writes its rows.
const attendEvery = 5 * time.Second

// GoneAfter is how old the last row of a node gets before it counts as gone: three intervals without a sign.
const GoneAfter = 3 * attendEvery

const (
	roundTimeout = 3 * time.Second // of one server's statements
	maxAbout     = 8192            // characters of the column about
)

// NodeTables are the node tables of all databases, a *store.Store.
type NodeTables interface {
	Attend(ctx context.Context, server int, group, node, about string) error
	Attending(ctx context.Context, server int, within time.Duration) ([]store.Attendee, error)
	Depart(ctx context.Context, server int, group, node string) error
	Servers() []string
}

// RowsConfig says whose rows to keep.
type RowsConfig struct {
	Tables     NodeTables
	Layout     tocsin.Layout
	Group      string
	Node       string                // name of this node, to which a random end is added
	Weight     int                   // share of the tables relative to other nodes; 0: 1
	Info       NodeInfo              // published in the node's rows; what Tell changes is set by it
	Changed    func()                // called when the tables that this node looks at first have changed; one call at a time
	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: metrics are not exported
}

// Rows is a node's membership of a group in which nobody owns tables. Its methods are safe for concurrent use.
type Rows struct {
	cfg    RowsConfig
	id     string
	limit  loop.LogLimit
	nudges []chan struct{} // by server, 1 slot each: write the row now

	nodes, tables prometheus.Gauge
	failures      *prometheus.CounterVec

	telling sync.Mutex // held while Changed is called

	mu     sync.Mutex
	record nodeRecord
	lists  map[int][]attendee          // by database; missing: never read
	readAt map[int]time.Time           // when each list was read last
	others map[int]map[string]NodeInfo // the other nodes, by server and id; missing: never read
	there  map[string]bool             // ids of the nodes that are there, this one included
	first  []int
}

// NewRows makes a node's membership. Nothing is written before Run.
func NewRows(cfg RowsConfig) *Rows {
	cfg.Logger = loop.Logger(cfg.Logger)
	gauge := func(name, help string) prometheus.Gauge {
		return promauto.With(cfg.Registerer).NewGauge(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "presence", Name: name, Help: help})
	}
	r := &Rows{
		cfg: cfg, id: name.NewID(cfg.Node), record: nodeRecord{NodeInfo: cfg.Info, Weight: max(cfg.Weight, 1)},
		lists: map[int][]attendee{}, readAt: map[int]time.Time{}, others: map[int]map[string]NodeInfo{},
		nodes:  gauge("nodes", "Nodes of the group that are there, by the node tables."),
		tables: gauge("tables_first", "Tables that this node looks at first; it takes rows of the others a quarter of a second later."),
		failures: promauto.With(cfg.Registerer).NewCounterVec(prometheus.CounterOpts{
			Namespace: "tocsin", Subsystem: "presence", Name: "failures_total",
			Help: "Rounds in which the node tables of the server could not be written or read.",
		}, []string{"server"}),
	}
	r.there = map[string]bool{r.id: true}
	for range cfg.Tables.Servers() {
		r.nudges = append(r.nudges, make(chan struct{}, 1))
	}
	return r
}

// ID returns the node's id, at most 64 bytes.
func (r *Rows) ID() string { return r.id }

// Run writes the node's rows and reads the others' until ctx ends. Then it removes the node's rows, where that can be done
// soon, and returns nil.
func (r *Rows) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for server := range r.nudges {
		all.Go(func() { r.serve(ctx, server) })
	}
	all.Wait()
	return nil
}

// serve keeps the rows on one server. Its first rounds follow each other sooner, as nodes are often started together.
func (r *Rows) serve(ctx context.Context, server int) {
	for wait := attendEvery / 10; ; wait = min(wait+attendEvery/10, attendEvery) {
		r.round(ctx, server)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			r.depart(ctx, server)
			return
		case <-timer.C:
		case <-r.nudges[server]:
			timer.Stop()
		}
	}
}

// round writes the node's rows on a server, and reads those of all nodes.
func (r *Rows) round(ctx context.Context, server int) {
	timed, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	failed := r.cfg.Tables.Attend(timed, server, r.cfg.Group, r.id, r.text())
	found, err := r.cfg.Tables.Attending(timed, server, GoneAfter)
	r.note(server, found)
	if err = errors.Join(failed, err); err != nil && ctx.Err() == nil {
		where := r.cfg.Tables.Servers()[server]
		r.failures.WithLabelValues(where).Inc()
		r.limit.Of(r.cfg.Logger, where).Warn("the nodes of the group can't be written and read: going on with who was there last",
			"error", err, "server", where)
	}
}

// depart removes the node's rows, so that others have its tables at once.
func (r *Rows) depart(ctx context.Context, server int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), roundTimeout)
	defer cancel()
	if err := r.cfg.Tables.Depart(ctx, server, r.cfg.Group, r.id); err != nil {
		r.cfg.Logger.Warn("the node's rows can't be removed: others look at its tables first when they are old",
			"error", err, "server", r.cfg.Tables.Servers()[server])
	}
}

// note takes in the nodes of a server's databases that could be read.
func (r *Rows) note(server int, found []store.Attendee) {
	r.telling.Lock()
	defer r.telling.Unlock()
	r.mu.Lock()
	lists, others := r.read(found)
	for database, list := range lists {
		r.lists[database], r.readAt[database] = list, time.Now()
	}
	if len(lists) > 0 {
		r.others[server] = others
	}
	now := firsts(r.id, r.cfg.Layout, r.lists)
	changed := !slices.Equal(now, r.first)
	r.first = now
	r.there = r.present()
	r.nodes.Set(float64(len(r.there)))
	r.tables.Set(float64(len(now)))
	r.mu.Unlock()
	if changed {
		r.cfg.Changed()
	}
}

// read sorts out the nodes of this group: all by database, and what the others publish by id.
func (r *Rows) read(found []store.Attendee) (lists map[int][]attendee, others map[string]NodeInfo) {
	lists, others = map[int][]attendee{}, map[string]NodeInfo{}
	for _, a := range found {
		if a.Group != r.cfg.Group {
			continue
		}
		record := readRow(a.About)
		lists[a.Database] = append(lists[a.Database], attendeeOf(a.Node, record))
		if a.Node != r.id {
			others[a.Node] = record.NodeInfo
		}
	}
	return lists, others
}

func attendeeOf(id string, record nodeRecord) attendee {
	return attendee{Member{id, min(record.Weight, MaxWeight)}, len(record.Lacks) > 0}
}

// current returns the databases, ascending, whose lists count: nodes of a list that is older than the latest by GoneAfter may be
// gone. Called under mu.
func (r *Rows) current() []int {
	var latest time.Time
	for _, at := range r.readAt {
		if at.After(latest) {
			latest = at
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.lists)), func(database int) bool { return latest.Sub(r.readAt[database]) > GoneAfter })
}

// present returns the ids of the nodes that are there, this one included. Called under mu.
func (r *Rows) present() map[string]bool {
	all := map[string]bool{r.id: true}
	for _, database := range r.current() {
		for _, n := range r.lists[database] {
			all[n.ID] = true
		}
	}
	return all
}

// Peers returns how many nodes of the group are there, this one included.
func (r *Rows) Peers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.there)
}

// Owned returns how many tables this node looks at first; it owns none.
func (r *Rows) Owned() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.first)
}

// LooksFirst reports whether this node looks at a table first.
func (r *Rows) LooksFirst(table int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, first := slices.BinarySearch(r.first, table)
	return first
}

// Leads reports whether this node does what one node of the group does for all: it looks first at the first table of the lowest
// database whose list counts.
func (r *Rows) Leads() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	current := r.current()
	if len(current) == 0 {
		return false
	}
	_, first := slices.BinarySearch(r.first, current[0]*r.cfg.Layout.Tables)
	return first
}

// Wanted is Owned: nobody has to give up anything.
func (r *Rows) Wanted() int { return r.Owned() }

// Tell has the node's rows say which biz types it delivers, and which it lacks. The maps and slices must not change
// afterwards.
func (r *Rows) Tell(t Told) {
	r.mu.Lock()
	r.record.NodeInfo = r.record.with(t)
	r.mu.Unlock()
	for _, nudge := range r.nudges {
		select {
		case nudge <- struct{}{}:
		default:
		}
	}
}

// Elsewhere reports whether another node of the group delivers the biz type; known is false before any node was read, and if
// none is known to deliver it but one has too many types to name.
func (r *Rows) Elsewhere(bizType string) (is, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var infos []NodeInfo
	for _, nodes := range r.others {
		for id, info := range nodes {
			if r.there[id] {
				infos = append(infos, info)
			}
		}
	}
	types, told := delivered(infos)
	return types[bizType], types[bizType] || told && len(r.others) > 0
}

// Newest returns the newest version of a biz type's payload that other nodes of the group deliver on each server; 0: none is
// known, or a server has none.
func (r *Rows) Newest(bizType string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	least := 0
	for server := range r.nudges {
		newest := 0
		for _, info := range r.others[server] {
			if slices.Contains(info.Types, bizType) {
				newest = max(newest, info.Versions[bizType])
			}
		}
		if server == 0 || newest < least {
			least = newest
		}
	}
	return least
}

// Delivered reads the biz types that other nodes of the group deliver, from all servers at once; told is false if one of them
// has too many to name. It does not need Run. The error names what could not be read; the types that were found stand beside it.
func (r *Rows) Delivered(ctx context.Context) (types map[string]bool, told bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	found, errs := make([][]store.Attendee, len(r.nudges)), make([]error, len(r.nudges))
	var all sync.WaitGroup
	for server := range r.nudges {
		all.Go(func() { found[server], errs[server] = r.cfg.Tables.Attending(ctx, server, GoneAfter) })
	}
	all.Wait()
	_, others := r.read(slices.Concat(found...))
	types, told = delivered(slices.Collect(maps.Values(others)))
	return types, told, errors.Join(errs...)
}

// text is the node's description of itself. If it is too long for the column, it has no reasons, and then no types.
func (r *Rows) text() string {
	r.mu.Lock()
	record := r.record
	r.mu.Unlock()
	if len(encode(record)) > maxAbout {
		record.Lacks = maps.Clone(record.Lacks)
		for name := range record.Lacks {
			record.Lacks[name] = "see its status page"
		}
	}
	if len(encode(record)) > maxAbout {
		record.Types, record.Versions, record.Newer = nil, nil, nil
		if len(record.Lacks) > 0 {
			record.Lacks = map[string]string{"": "too many to name"}
		}
	}
	return encode(record)
}

// readRow reads what a node publishes; a node whose row can't be read has weight 1.
func readRow(text string) nodeRecord {
	record := nodeRecord{Weight: 1}
	_ = json.Unmarshal([]byte(text), &record) // a newer program may publish it in other ways
	return record
}
