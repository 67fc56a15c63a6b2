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
