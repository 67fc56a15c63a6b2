package scanner

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/loglimit"
)

// server is what is owned of one MySQL server, and how far it is read.
type server struct {
	cfg     Config
	index   int
	name    string
	log     *slog.Logger
	limit   loglimit.Limit // on log lines
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
	peeking   int              // jobs under way that peek
	streaming int              // jobs under way that stream
	streamed  uint64           // type of the last one
	peers     int              // nodes of the group at the last decision
	patience  *patience        // with the server's failures, for peeks
	restUntil time.Time        // no peek before this, as the server failed
	pauses    map[uint64]pause // by biz type
}

// pause is how long a biz type that the intake refused gets no catch-up.
type pause struct {
	refused time.Time // when it was last refused
	until   time.Time
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
		pauses:   make(map[uint64]pause),
	}
}

// heardAt notes that all doorbells have been read.
func (sv *server) heardAt(now time.Time) { sv.heard.Store(&now) }

// bellLag returns how long ago that was.
func (sv *server) bellLag(now time.Time) time.Duration {
	if heard := sv.heard.Load(); heard != nil {
		return max(now.Sub(*heard), 0)
	}
	return 0
}

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

func (sv *server) appendOwned(to []int) []int {
	sv.offering.RLock()
	defer sv.offering.RUnlock()
	return slices.AppendSeq(to, maps.Keys(sv.owned))
}

func (sv *server) ownsAny() bool {
	sv.offering.RLock()
	defer sv.offering.RUnlock()
	return len(sv.owned) > 0
}

// room lets catch-ups start now, but after a refusal not more often than every
// wokenEvery.
func (sv *server) room() {
	sv.mu.Lock()
	for t, p := range sv.pauses {
		p.until = earlier(p.until, p.refused.Add(wokenEvery))
		sv.pauses[t] = p
	}
	sv.mu.Unlock()
	sv.look()
}

// pause postpones the catch-up of types that found no room in a peek.
func (sv *server) pause(refused duequeue.Refused) {
	now := time.Now()
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for t := range refused {
		sv.pauses[t] = pause{refused: now, until: now.Add(retryEvery)}
	}
}

// offer passes on the entries that are looked for in their tables, and notes the refused ones.
// It reorders entries.
func (sv *server) offer(entries []duequeue.Entry) (refused duequeue.Refused) {
	sv.offering.RLock()
	entries = slices.DeleteFunc(entries, func(e duequeue.Entry) bool { return !sv.reads(e.JobID.Table(), e.Type) })
	if len(entries) > 0 {
		refused = sv.cfg.Intake.Offer(sv.index, entries)
	}
	sv.offering.RUnlock()
	sv.metrics.entries.WithLabelValues(sv.name).Add(float64(len(entries)))
	if len(refused) > 0 {
		sv.metrics.refusals.WithLabelValues(sv.name).Inc()
		sv.lower(refused)
	}
	return refused
}

// reads reports whether rows of a biz type are looked for in a table. Called under offering.
func (sv *server) reads(table int, bizType uint64) bool {
	as := sv.owned[table]
	return as != nil && as.Reads(bizType)
}

// lower notes a refusal in every group: a nearer entry of another table may have
// pushed the refused one out. Other types are not affected.
func (sv *server) lower(refused duequeue.Refused) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for t, due := range refused {
		for _, g := range sv.groups {
			if !g.Guest {
				g.lower(t, due)
			}
		}
	}
}
