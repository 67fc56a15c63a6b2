package session

import (
	"context"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// beat is one round of beats on a server. Places that need more than that get a goroutine each.
func (k *Keeper) beat(ctx context.Context, server int, apart *sync.WaitGroup) {
	ctx = context.WithoutCancel(ctx) // each statement has a time-out
	together := map[int]string{}
	k.mu.Lock()
	for _, database := range k.cfg.Store.Usable(server) {
		p := k.places[database]
		switch {
		case k.withhold.Load():
		case p.id != "" && !p.beatApart && !p.busy:
			together[database] = p.id
		case !p.busy:
			k.beatAlone(ctx, p, apart)
		}
		if p.untold && p.id != "" && !p.telling {
			k.tell(ctx, p, apart)
		}
	}
	k.announce()
	k.mu.Unlock()
	if len(together) == 0 {
		return
	}
	beaten, err := k.cfg.Store.BeatSessions(ctx, server, together)
	k.note(beaten, together)
	k.mu.Lock()
	defer k.mu.Unlock()
	for database := range together {
		p := k.places[database]
		if err != nil && !mysql.ClassOf(err).OfServer() {
			p.beatApart = true
		}
		if p.beatApart {
			k.beatAlone(ctx, p, apart)
		}
	}
	if err != nil {
		k.metrics.failures.WithLabelValues(k.cfg.Store.Servers()[server]).Inc()
		k.warn("the sessions of this process can't be renewed", err, k.cfg.Store.Servers()[server])
	}
}

// beatAlone beats a place's session apart from others, or opens one. Called under mu.
func (k *Keeper) beatAlone(ctx context.Context, p *place, apart *sync.WaitGroup) {
	p.busy = true
	apart.Go(func() {
		if err := k.renew(ctx, p); err != nil {
			k.metrics.failures.WithLabelValues(k.cfg.Store.Servers()[p.server]).Inc()
			k.warn("the session of this process can't be opened or renewed", err, k.name(p))
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		p.busy = false
	})
}

// renew tells that a session was ended, opens one if there is none, and beats it. A place's next beat is sent with the others if that
// succeeds.
func (k *Keeper) renew(ctx context.Context, p *place) error {
	k.mu.Lock()
	id, ended := p.id, p.ended
	p.ended = ""
	k.mu.Unlock()
	if ended != "" && k.cfg.Ended != nil {
		k.cfg.Ended(p.database, ended)
	}
	if id == "" {
		id = newID()
		if err := k.openSession(ctx, p, id); err != nil {
			return err
		}
	}
	beaten, err := k.cfg.Store.BeatSession(ctx, p.database, id)
	k.note(beaten, map[int]string{p.database: id})
	k.mu.Lock()
	defer k.mu.Unlock()
	p.beatApart = err != nil
	return err
}

func (k *Keeper) openSession(ctx context.Context, p *place, id string) error {
	one := store.Session{
		Database: p.database, ID: id, Group: k.cfg.Group, Node: k.cfg.Node, Incarnation: k.incarnation, Seat: k.cfg.Seat, Schema: k.cfg.Schema,
	}
	k.mu.Lock()
	one.SessionState = k.state(p)
	k.mu.Unlock()
	if err := k.cfg.Store.OpenSession(ctx, one); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p.id = id
	return nil
}

// state returns what a place's session is to say, with the next number. Called under mu.
func (k *Keeper) state(p *place) store.SessionState {
	p.aboutNo++
	p.untold = false
	return store.SessionState{Draining: k.draining, Unable: p.unable, AboutNo: p.aboutNo, About: k.about}
}

// tell writes what a place's session is to say. Called under mu.
func (k *Keeper) tell(ctx context.Context, p *place, apart *sync.WaitGroup) {
	p.telling = true
	id, state := p.id, k.state(p)
	apart.Go(func() {
		err := k.cfg.Store.TellSession(ctx, p.database, id, state)
		k.mu.Lock()
		defer k.mu.Unlock()
		p.telling = false
		k.announce()
		if err != nil {
			p.untold = true
			k.warn("what this process says of itself can't be written", err, k.name(p))
		}
	})
}

// note takes in what beats have shown of the given sessions.
func (k *Keeper) note(b store.Beaten, ids map[int]string) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for database, there := range b.There {
		p, id := k.places[database], ids[database]
		if p.id != id {
			continue
		}
		if p.behind != "" && p.behind != b.Server || p.term != b.Term {
			p.watch.restart()
			k.pending.moved = append(k.pending.moved, database)
		}
		p.term, p.behind = b.Term, b.Server
		if !there {
			p.trust.Store(nil)
			p.id, p.ended, p.aboutNo = "", id, 0
			k.metrics.lost.Inc()
			signal(k.nudges[p.server])
			k.limit.Of(k.cfg.Logger, "ended "+k.name(p)).Warn("the session of this process was ended by others, who take over what it had claimed: it opens a new one",
				"session", id, "database", k.name(p))
			continue
		}
		p.trust.Store(&trust{id: id, began: b.Began, term: b.Term})
		p.watch.beaten(b.Began, now)
		p.beatApart = false
	}
	k.announce()
	k.wake()
}

func (k *Keeper) warn(what string, err error, where string) {
	k.limit.Of(k.cfg.Logger, what+where).Warn(what, "error", err, "where", where)
}
