package assign

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin"
	sessions "github.com/tocsinhq/tocsin/internal/session"
	"github.com/tocsinhq/tocsin/internal/store"
)

// GoneAfter is for how long without a beat a session is shown to people who read the tables: others end it sooner, if there are any. A list that
// was read so much earlier than the latest does not count.
const GoneAfter = 10 * time.Second

const (
	roundTimeout = 3 * time.Second // of one server's statements
	maxAbout     = 8192            // characters of the column about
)

// Sessions are those of this process and of others, as it sees them: a *session.Keeper.
type Sessions interface {
	Sessions(database int) (members []sessions.Member, read time.Time)
	Tell(about string)
}

// RowsConfig says whose membership it is.
type RowsConfig struct {
	Sessions   Sessions
	Store      *store.Store // for Delivered
	Layout     tocsin.Layout
	ServerOf   func(table int) int
	Group      string
	ID         string                // of this node, also in its sessions
	Weight     int                   // share of the tables relative to other nodes; 0: 1
	Info       NodeInfo              // published with the node's sessions; what Tell changes is set by it
	Changed    func()                // called by Note when the tables that this node looks at first have changed
	Registerer prometheus.Registerer // nil: metrics are not exported
}

// Rows is a node's membership of a group in which nobody owns tables, by the sessions of its databases. Its methods are safe for
// concurrent use.
type Rows struct {
	cfg RowsConfig

	nodes, tables prometheus.Gauge

	noting sync.Mutex // held while Changed is called

	mu     sync.Mutex
	record nodeRecord
	lists  map[int][]present           // by database, of the group; missing: never read
	readAt map[int]time.Time           // when each list was read last
	others map[int]map[string]NodeInfo // the other nodes, by server and id; missing: never read
	there  map[string]bool             // ids of the nodes that are there, this one included
	first  []int
}

// present is a node that has a session in a database.
type present struct {
	attendee
	record nodeRecord
	passed bool // it leaves, or can't work in that database
	silent bool
}

// NewRows makes a node's membership, and has its sessions say what it is.
func NewRows(cfg RowsConfig) *Rows {
	gauge := func(name, help string) prometheus.Gauge {
		return promauto.With(cfg.Registerer).NewGauge(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "presence", Name: name, Help: help})
	}
	r := &Rows{
		cfg: cfg, record: nodeRecord{NodeInfo: cfg.Info, Weight: max(cfg.Weight, 1)},
		lists: map[int][]present{}, readAt: map[int]time.Time{}, others: map[int]map[string]NodeInfo{},
		nodes:  gauge("nodes", "Nodes of the group that are there, by their sessions."),
		tables: gauge("tables_first", "Tables that this node looks at first; it takes rows of the others a quarter of a second later."),
	}
	r.there = map[string]bool{cfg.ID: true}
	cfg.Sessions.Tell(r.text())
	return r
}

// ID returns the node's id, at most 64 bytes.
func (r *Rows) ID() string { return r.cfg.ID }

// Note takes in the sessions of all databases, as last read. Call it when they have changed.
func (r *Rows) Note() {
	r.noting.Lock()
	defer r.noting.Unlock()
	r.mu.Lock()
	for database := range r.cfg.Layout.Databases {
		members, read := r.cfg.Sessions.Sessions(database)
		if read.IsZero() {
			continue
		}
		r.readAt[database], r.lists[database] = read, r.of(members)
	}
	r.others = r.publishing()
	now := r.firsts()
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

// of returns the nodes of this group among sessions.
func (r *Rows) of(members []sessions.Member) []present {
	list := []present{}
	for _, m := range members {
		if m.Group == r.cfg.Group && m.Seat {
			list = append(list, presentOf(m))
		}
	}
	return list
}

func presentOf(m sessions.Member) present {
	record := readRow(m.About)
	return present{attendee: attendeeOf(m.Node, record), record: record, passed: m.Draining || m.Unable, silent: m.Silent && !m.Self}
}

// publishing returns what the other nodes publish, by server and id. Called under mu.
func (r *Rows) publishing() map[int]map[string]NodeInfo {
	all := map[int]map[string]NodeInfo{}
	for database, list := range r.lists {
		server := r.cfg.ServerOf(database * r.cfg.Layout.Tables)
		if all[server] == nil {
			all[server] = map[string]NodeInfo{}
		}
		for _, n := range list {
			if n.ID != r.cfg.ID {
				all[server][n.ID] = n.record.NodeInfo
			}
		}
	}
	return all
}

// firsts returns the tables that this node looks at first. Called under mu.
func (r *Rows) firsts() []int {
	able := map[int][]attendee{}
	for database, list := range r.lists {
		able[database] = ableIn(list)
	}
	return firsts(r.cfg.ID, r.cfg.Layout, able)
}

// ableIn returns the nodes of a database that are not passed over; if all are, those that are only silent, and then all. A node with two
// sessions there, one of which is to be ended, counts once.
func ableIn(list []present) []attendee {
	for _, passes := range []func(present) bool{
		func(n present) bool { return n.passed || n.silent },
		func(n present) bool { return n.passed },
		func(present) bool { return false },
	} {
		var able []attendee
		for _, n := range list {
			if !passes(n) && !slices.ContainsFunc(able, func(a attendee) bool { return a.ID == n.ID }) {
				able = append(able, n.attendee)
			}
		}
		if len(able) > 0 {
			return able
		}
	}
	return nil
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
	all := map[string]bool{r.cfg.ID: true}
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

// Tell has the node's sessions say which biz types it delivers, and which it lacks. The maps and slices must not change
// afterwards.
func (r *Rows) Tell(t Told) {
	r.mu.Lock()
	r.record.NodeInfo = r.record.with(t)
	r.mu.Unlock()
	r.cfg.Sessions.Tell(r.text())
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
	for server := range r.servers() {
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

// servers counts the servers.
func (r *Rows) servers() int {
	last := 0
	for database := range r.cfg.Layout.Databases {
		last = max(last, r.cfg.ServerOf(database*r.cfg.Layout.Tables))
	}
	return last + 1
}

// Delivered reads the biz types that other nodes of the group deliver, from all servers at once; told is false if one of them
// has too many to name. The error names what could not be read; the types that were found stand beside it.
func (r *Rows) Delivered(ctx context.Context) (types map[string]bool, told bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	found, errs := ReadSessions(ctx, r.cfg.Store)
	var others []NodeInfo
	for _, s := range slices.Concat(found...) {
		if s.Group == r.cfg.Group && s.Node != r.cfg.ID && s.Seat {
			others = append(others, readRow(s.About).NodeInfo)
		}
	}
	types, told = delivered(others)
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
