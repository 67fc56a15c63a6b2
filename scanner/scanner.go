package scanner

import (
	"context"
	"slices"
	"sync"
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

// Own adds tables; they are peeked in full at once and then regularly. Tables
// that are looked at already, or that the layout does not have, are left out.
func (s *Scanner) Own(tables []int) { s.add(tables, owner) }

// StandIn adds tables of another owner, for the biz types that it lacks. Their rows of these types, overdue ones too, are
// found as those of owned tables; other types are left alone. To change the types, call Disown before.
func (s *Scanner) StandIn(tables []int, types []uint64) { s.add(tables, &access{types: types}) }

// Guest adds tables that another node looks at first, and takes away those that were owned. In them, regular peeks find
// what is due soon, and full ones the oldest page of each table; there are no catch-ups. What the intake refuses there is
// left to the other node. Disown ends it.
func (s *Scanner) Guest(tables []int) {
	s.Disown(tables)
	s.add(tables, guest)
}

func (s *Scanner) add(tables []int, as *access) {
	for i, mine := range s.split(tables) {
		if len(mine) > 0 {
			s.servers[i].add(mine, as)
		}
	}
}

// Disown takes tables away: once it returns, nothing of them is offered any more.
// It does not wait for a statement that is under way, on a server that hangs
// perhaps; what that finds is thrown away.
func (s *Scanner) Disown(tables []int) {
	for i, mine := range s.split(tables) {
		if len(mine) > 0 {
			s.servers[i].disown(mine)
		}
	}
}

// Owned gives the numbers of the owned tables, ascending.
func (s *Scanner) Owned() []int {
	var all []int
	for _, sv := range s.servers {
		all = sv.appendOwned(all)
	}
	slices.Sort(all)
	return all
}

// Wake says that the intake has room again for entries of a server that it
// refused. It never blocks.
func (s *Scanner) Wake(server int) { s.servers[server].room() }

// split sorts the tables by server.
func (s *Scanner) split(tables []int) [][]int {
	by := make([][]int, len(s.servers))
	for _, t := range tables {
		if i := s.cfg.Store.ServerOf(t); i >= 0 {
			by[i] = append(by[i], t)
		}
	}
	return by
}
