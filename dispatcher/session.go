package dispatcher

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Sessions are the rights of this process to claim rows, a session in each database.
type Sessions interface {
	Session(database int) (id string, ok bool) // under which to claim now; false: none is trusted
	Trusts(database int, id string) bool       // rows that were claimed under it may start now
}

// claims reports whether rows are claimed under sessions. Otherwise they start as the owner of their table has them.
func (d *Dispatcher) claims() bool { return d.cfg.Sessions != nil }

// trusts reports whether the session of a claimed row may still start it.
func (t *task) trusts() bool {
	d := t.lane.kind.d
	return !t.session || d.cfg.Sessions.Trusts(d.cfg.DatabaseOf(t.table()), t.by[:store.SessionSize])
}

// SessionEnded is called when other processes have ended a session of this one, which Sessions do not trust any more: others deliver its rows. It
// gives back those that have not begun. The contexts of the others end with the cause tocsin.ErrClaimEnded, and their failures count no more;
// their successes do.
func (d *Dispatcher) SessionEnded(database int, id string) {
	its := func(t *task) bool {
		return t.session && t.by[:store.SessionSize] == id && d.cfg.DatabaseOf(t.table()) == database
	}
	for _, s := range d.servers {
		s.giveBackEarly(its)
	}
	for _, k := range d.allKinds() {
		giveBack(k.takeReady(its))
	}
	causes := make(map[tocsin.JobID]error)
	began := func(a *attempt) (some bool) {
		for _, t := range a.tasks {
			if its(t) {
				causes[t.row.JobID], some = tocsin.ErrClaimEnded, true
			}
		}
		return some
	}
	for _, s := range d.servers {
		for _, c := range s.inHand(began) {
			c.callOff(causes)
		}
	}
}

// OwnLook gives rows back that stand claimed under this process's sessions though it neither has them nor is claiming them: it can't know of a claim
// or a release whose answer was lost for long. Else such a row would stay claimed for as long as the process lives. It counts no crash.
func (d *Dispatcher) OwnLook(ctx context.Context, server int, tables []int) error {
	sessions := make(map[int]string)
	for _, table := range tables {
		database := d.cfg.DatabaseOf(table)
		sessions[database], _ = d.cfg.Sessions.Session(database)
	}
	claims, unread := d.cfg.Store.OwnClaims(ctx, server, tables, sessions)
	s := d.servers[server]
	s.mu.Lock()
	maps.DeleteFunc(claims, func(id tocsin.JobID, _ string) bool { // what is in hand is in flight until its outcome is stored
		return slices.ContainsFunc(s.order, func(l *lane) bool { flying, _ := l.queue.Has(id); return flying })
	})
	s.mu.Unlock()
	if len(claims) == 0 {
		return unread
	}
	s.warn("loose", "rows stood claimed by this process, which did not have them: they are given back", unread, "rows", len(claims))
	_, err := d.cfg.Store.ReleaseDoubtful(ctx, server, claims)
	return errors.Join(unread, err)
}
