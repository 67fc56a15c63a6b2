package scanner

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// Scanner peeks the tables it was told to own. Its methods are safe for
// concurrent use.
type Scanner struct {
	cfg     Config
	servers []*server
}

// New checks the config and makes a Scanner that owns nothing.
func New(cfg Config) (*Scanner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Scanner{cfg: cfg.withDefaults()}
	m := newMetrics()
	for i, name := range cfg.Store.Servers() {
		s.servers = append(s.servers, newServer(s.cfg, i, name, m))
	}
	m.bellLag.servers = s.servers
	return s, m.register(s.cfg.Registerer)
}

// Run scans until ctx ends and returns nil when everything it started has ended.
// It is called once.
func (s *Scanner) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, sv := range s.servers {
		wg.Go(func() { sv.scan(ctx) })
		wg.Go(func() { sv.listen(ctx) })
	}
	wg.Wait()
	return nil
}

// Set begins to look at tables, changes how they are looked at, or with nil ends it. It tells the intake, too: before
// anything is offered under the new access, and after the last offer under the former one. New tables are peeked in full at
// once and then regularly. Tables that were looked at in the same way before go on as they are; those that the layout does
// not have are left out. Tables of a Guest have no pulls: regular peeks find what is due soon, full ones the oldest page
// of each table, and what the intake refuses is left to the other process.
//
// Set does not wait for a statement that is under way, perhaps on a server that hangs: what that finds is thrown away. Calls
// for the same table must not overlap.
func (s *Scanner) Set(tables []int, as *duequeue.Access) {
	by := make([][]int, len(s.servers))
	for _, t := range tables {
		if i := s.cfg.Store.ServerOf(t); i >= 0 {
			by[i] = append(by[i], t)
		}
	}
	for i, mine := range by {
		if len(mine) > 0 {
			s.servers[i].set(mine, as)
		}
	}
}

// Wake says that the intake has room again for entries of a server that it refused, or demand again for whole rows. It never
// blocks.
func (s *Scanner) Wake(server int) { s.servers[server].look() }

// RunOut says that claims in tables of a server can be recovered at a time. It is exact then, and a full look finds other claims.
func (s *Scanner) RunOut(server int, tables []int, at time.Time) {
	sv := s.servers[server]
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for _, g := range sv.groups {
		if slices.ContainsFunc(g.tables, func(t int) bool { return slices.Contains(tables, t) }) {
			g.endsAt(at)
		}
	}
	sv.look()
}

// Refuse says that entries that the intake has had are due again, and that it has no room for them until then.
func (s *Scanner) Refuse(server int, entries []duequeue.Entry) { s.servers[server].refuse(entries) }

// gone is a look for claims of sessions that have gone, in the tables from first up to end.
type gone struct {
	at         time.Time
	first, end int
}

// lateClaims are after how long claims of a session that has gone are looked for: they may commit after its end.
var lateClaims = [...]time.Duration{0, 2 * time.Second, 10 * time.Second}

// nearby is how far apart looks for claims in the same tables are made one.
const nearby = 500 * time.Millisecond

// Gone says that sessions have gone that may have claimed rows of the tables from first up to end, all of one database. Their claims are
// recovered now, in 2 s and in 10 s.
func (s *Scanner) Gone(first, end int) {
	sv := s.servers[s.cfg.Store.ServerOf(first)]
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for _, late := range lateClaims {
		look := gone{time.Now().Add(late), first, end}
		if i := slices.IndexFunc(sv.gone, func(g gone) bool { return g.first == first && look.at.Sub(g.at).Abs() < nearby }); i >= 0 {
			sv.gone[i].at = look.at // many go at once when a machine dies
		} else {
			sv.gone = append(sv.gone, look)
		}
	}
	sv.look()
}

// lookForGone has the groups looked at in which claims of sessions that have gone may stand. Called under mu.
func (sv *server) lookForGone(now time.Time) {
	sv.gone = slices.DeleteFunc(sv.gone, func(look gone) bool {
		if look.at.After(now) {
			return false
		}
		for _, g := range sv.groups {
			if slices.ContainsFunc(g.tables, func(t int) bool { return look.first <= t && t < look.end }) {
				g.endsAt(sv.base)
			}
		}
		return true
	})
}
