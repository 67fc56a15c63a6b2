package scanner

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// server is what is owned of one MySQL server, and how far it is read.
type server struct {
	cfg     Config
	index   int
	name    string
	log     *slog.Logger
	limit   loop.LogLimit // on log lines
	metrics *metrics
	base    time.Time     // from where the slots of regular peeks are counted
	wake    chan struct{} // one slot: look again what there is to do

	heard atomic.Pointer[time.Time] // when all doorbells were last read, or when that was first tried; nil: no table is owned

	// offering is held for reading while entries are offered, so that Set can
	// wait for those who still think they may.
	offering sync.RWMutex
	owned    map[int]*duequeue.Access // the tables that are looked at; guarded by offering

	mu        sync.Mutex // guards what follows; never held while the intake or the store is called
	groups    []*group
	lanes     map[uint64]*lane // by biz type
	peeking   int              // peeks under way
	pulling   int              // pulls under way
	pulled    uint64           // biz type of the last one
	wanted    []uint64         // biz types at the last decision
	lagging   bool             // the last peek of some group may have left out one of them
	peers     int              // nodes of the group at the last decision
	patience  *patience        // with the server's failures, for peeks
	restUntil time.Time        // no peek or pull before this, as the server failed
	gone      []gone           // looks to come
}

func newServer(cfg Config, index int, name string, m *metrics) *server {
	return &server{
		cfg:      cfg,
		index:    index,
		name:     name,
		log:      cfg.Logger.With("server", name),
		metrics:  m,
		base:     time.Now(),
		wake:     make(chan struct{}, 1),
		owned:    make(map[int]*duequeue.Access),
		patience: newPatience(cfg.Interval),
		lanes:    make(map[uint64]*lane),
	}
}

// heardAt notes that all doorbells have been read.
func (sv *server) heardAt(now time.Time) { sv.heard.Store(&now) }

// look wakes the scan loop, which finds out by itself what has changed.
func (sv *server) look() {
	select {
	case sv.wake <- struct{}{}:
	default:
	}
}

// set tells the intake of the access, and begins to look at tables that are not looked at in this way yet.
func (sv *server) set(tables []int, as *duequeue.Access) {
	sv.offering.RLock()
	fresh := filter(tables, func(t int) bool { was := sv.owned[t]; return was == nil || !sameLook(was, as) })
	sv.offering.RUnlock()
	sv.forget(fresh)
	sv.cfg.Intake.Set(tables, as)
	if as == nil {
		return
	}
	sv.offering.Lock()
	for _, t := range fresh {
		sv.owned[t] = as
	}
	sv.offering.Unlock()
	slices.Sort(fresh)

	sv.mu.Lock()
	for part := range slices.Chunk(fresh, sv.cfg.TablesPerStatement) {
		sv.groups = append(sv.groups, newGroup(as, slices.Clone(part)))
	}
	sv.mu.Unlock()
	sv.look()
}

// sameLook reports whether two accesses are the same for who looks at a table.
func sameLook(a, b *duequeue.Access) bool {
	return b != nil && a.Guest == b.Guest && slices.Equal(a.Types, b.Types)
}

// forget ceases to look at tables. When it returns nothing of them is offered any more.
func (sv *server) forget(tables []int) {
	gone := make(map[int]bool, len(tables))
	sv.offering.Lock()
	for _, t := range tables {
		if sv.owned[t] != nil {
			delete(sv.owned, t)
			gone[t] = true
		}
	}
	sv.offering.Unlock()
	if len(gone) == 0 {
		return
	}
	sv.mu.Lock()
	for _, g := range sv.groups {
		g.tables = filter(g.tables, func(t int) bool { return !gone[t] })
	}
	sv.groups = compact(sv.groups, sv.cfg.TablesPerStatement)
	sv.mu.Unlock()
	sv.look()
}

func (sv *server) ownsAny() bool {
	sv.offering.RLock()
	defer sv.offering.RUnlock()
	return len(sv.owned) > 0
}

// offer passes on the entries that are looked for in their tables, and notes the refused ones, which it returns.
// It overwrites the slice.
func (sv *server) offer(entries []duequeue.Entry) (refused []duequeue.Entry) {
	sv.offering.RLock()
	entries = slices.DeleteFunc(entries, func(e duequeue.Entry) bool { return !sv.reads(e.JobID.Table(), e.Type) })
	if len(entries) > 0 {
		refused = sv.cfg.Intake.Offer(sv.index, entries)
	}
	sv.offering.RUnlock()
	sv.metrics.entries.WithLabelValues(sv.name).Add(float64(len(entries)))
	sv.refuse(refused)
	return refused
}

// reads reports whether rows of a biz type are looked for in a table. Called under offering.
func (sv *server) reads(table int, bizType uint64) bool {
	as := sv.owned[table]
	return as != nil && as.Reads(bizType)
}

// refuse notes that entries found no room. They may be others than those that were offered, and gave way to these.
func (sv *server) refuse(entries []duequeue.Entry) {
	if len(entries) == 0 {
		return
	}
	sv.metrics.refusals.WithLabelValues(sv.name).Inc()
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for _, e := range entries {
		sv.unread(e.Type, []int{e.JobID.Table()}, e.Due, e.Due)
	}
	sv.look()
}
