package session

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/internal/store"
)

// read is one round of reads of a server's sessions. It ends those that stand still.
func (k *Keeper) read(ctx context.Context, server int, apart *sync.WaitGroup) {
	var together []int
	k.mu.Lock()
	for _, database := range k.cfg.Store.Usable(server) {
		p := k.places[database]
		switch {
		case !p.readApart:
			together = append(together, database)
		case !p.reading:
			p.reading = true
			apart.Go(func() {
				k.readSome(ctx, server, []int{database})
				k.mu.Lock()
				p.reading = false
				k.mu.Unlock()
			})
		}
	}
	k.mu.Unlock()
	if len(together) > 0 {
		k.readSome(ctx, server, together)
	}
	for _, database := range k.cfg.Store.Usable(server) {
		k.end(ctx, k.places[database], apart)
	}
}

// readSome reads the sessions of some databases of a server. Those that fail are read apart until that succeeds.
func (k *Keeper) readSome(ctx context.Context, server int, databases []int) {
	ctx, cancel := context.WithTimeout(ctx, 2*readTimeout)
	defer cancel()
	term, began := k.cfg.Store.Term(server), time.Now()
	rows, read, err := k.cfg.Store.Sessions(ctx, server, databases)
	ended := time.Now()
	if term == k.cfg.Store.Term(server) {
		k.take(ctx, server, term, rows, read, began, ended)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, database := range databases {
		k.places[database].readApart = len(read) > 0 && !slices.Contains(read, database)
	}
	if err != nil && ctx.Err() == nil {
		k.metrics.failures.WithLabelValues(k.cfg.Store.Servers()[server]).Inc()
		k.warn("the sessions can't be read: who was there last counts", err, k.cfg.Store.Servers()[server])
	}
}

// take notes the sessions that were read.
func (k *Keeper) take(ctx context.Context, server int, term int64, rows []store.Session, read []int, began, ended time.Time) {
	abouts := k.abouts(ctx, server, rows)
	in := map[int][]store.Session{}
	for _, row := range rows {
		if told, ok := abouts[row.ID]; ok {
			row.AboutNo, row.About, row.Schema = told.AboutNo, told.About, told.Schema
		}
		in[row.Database] = append(in[row.Database], row)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, database := range read {
		p := k.places[database]
		if at := k.cfg.Store.Jumped(); at.After(p.jumped) || term != p.readTerm {
			p.jumped, p.readTerm = at, term
			p.watch.restart()
		}
		gone, changed := p.watch.read(began, ended, in[database], p.id)
		if len(gone) > 0 {
			k.pending.addGone(database, gone...)
		}
		if changed {
			k.pending.changed = append(k.pending.changed, database)
		}
	}
	k.wake()
}

// abouts returns what the processes of the given sessions say of themselves, by id. It reads what this process does not know yet; where
// that fails, the older words stay.
func (k *Keeper) abouts(ctx context.Context, server int, rows []store.Session) map[string]store.Session {
	known, ask := map[string]store.Session{}, map[int][]string{}
	k.mu.Lock()
	for _, row := range rows {
		s := k.places[row.Database].watch.seen[row.ID]
		if s != nil {
			known[row.ID] = s.Session
		} else {
			known[row.ID] = store.Session{}
		}
		if s == nil || s.AboutNo < row.AboutNo {
			ask[row.Database] = append(ask[row.Database], row.ID)
		}
	}
	k.mu.Unlock()
	if len(ask) == 0 {
		return known
	}
	told, err := k.cfg.Store.SessionAbouts(ctx, server, ask)
	if err != nil && ctx.Err() == nil {
		k.warn("what processes say of themselves can't be read", err, k.cfg.Store.Servers()[server])
	}
	for _, one := range told {
		known[one.ID] = one
	}
	return known
}

// end ends the sessions of a database that stand still.
func (k *Keeper) end(ctx context.Context, p *place, apart *sync.WaitGroup) {
	k.mu.Lock()
	defer k.mu.Unlock()
	may := p.watch.ends(time.Now(), p.id)
	if p.ending || len(may) == 0 {
		return
	}
	p.ending = true
	apart.Go(func() {
		for _, s := range may {
			k.endOne(ctx, p, s)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		p.ending = false
	})
}

func (k *Keeper) endOne(ctx context.Context, p *place, s store.Session) {
	ended, err := k.cfg.Store.EndSession(ctx, p.database, s.ID, s.Beat)
	if err != nil && ctx.Err() == nil {
		k.warn("a session that stands still can't be ended", err, k.name(p))
	}
	if !ended {
		return
	}
	k.metrics.ended.Inc()
	k.limit.Of(k.cfg.Logger, "ends "+s.Node).Warn("a process showed no sign of life: its session is ended, and what it had claimed is taken over",
		"node", s.Node, "session", s.ID, "database", k.name(p))
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(p.watch.seen, s.ID)
	k.pending.addGone(p.database, s.ID)
	k.pending.changed = append(k.pending.changed, p.database)
	k.wake()
}

// members returns the sessions, by group, node and id.
func (w *watch) members(own string, now time.Time) (all []Member) {
	for _, s := range w.seen {
		m := Member{Session: s.Session, Self: s.ID == own, Silent: s.silent, StoodFor: now.Sub(s.changed)}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	return all
}
