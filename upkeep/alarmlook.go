package upkeep

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/store"
)

// look notes the biz types whose tasks became dead since the last look: deaths that no process has raised an alarm about
// yet, or that another process is about to report. Deaths later than behind before now are left to the next look.
func (a *Alarms) look(ctx context.Context, behind time.Duration) {
	var types []uint64
	for _, p := range a.cfg.Policies() {
		if p.AlarmOn(biztype.OnDead) && a.cfg.Mine(p) {
			types = append(types, p.Number)
		}
	}
	if len(types) == 0 || !slices.Equal(types, a.kinds) {
		a.looked, a.kinds = nil, types
	}
	if len(types) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	t := a.tally(ctx, toCount{types: types, behind: behind, limit: deathsAny}, func(server, database int) int64 {
		return max(a.looked[database], a.cfg.Store.Now(server)-lookBack.Milliseconds())
	})
	a.looked = t.until
	for _, n := range types {
		if t.capped || t.types[n].count > 0 {
			a.found(about{n, biztype.OnDead})
		}
	}
}

// toll is what died in all tables.
type toll struct {
	types  map[uint64]deaths
	limit  int
	capped bool          // not all were counted
	until  map[int]int64 // by database: up to when it was read, by its server's clock; a database that could not be read is left out, or is as it was
	unread map[int]int64 // by database: from when on it was to be read
}

// deaths are those of one biz type.
type deaths struct {
	count int
	jobs  []tocsin.JobID // some of them
}

// toCount says what to count.
type toCount struct {
	types  []uint64
	behind time.Duration // deaths until so long before now
	limit  int           // of each table
}

// tally counts the tasks that became dead, on all servers side by side. A database that can't be read is not counted.
func (a *Alarms) tally(ctx context.Context, c toCount, from func(server, database int) int64) toll {
	all := toll{types: map[uint64]deaths{}, limit: c.limit, until: map[int]int64{}, unread: map[int]int64{}}
	var mu sync.Mutex
	store.EachServer(len(a.cfg.Store.Servers()), func(server int) {
		away := a.measure(ctx, server)
		until := a.cfg.Store.Now(server) - c.behind.Milliseconds()
		for database, tables := range a.databases(server) {
			q := store.DeathsQuery{Server: server, Tables: tables, Types: c.types, From: from(server, database), Until: until, Limit: c.limit}
			var found []store.Deaths
			err := away
			if err == nil {
				found, err = a.cfg.Store.Deaths(ctx, q)
			}
			mu.Lock()
			all.take(database, q, found, err)
			mu.Unlock()
			if err != nil {
				a.limit.Of(a.cfg.Logger, "look "+a.cfg.Store.Servers()[server]).Warn("dead tasks can't be counted for alarms", "error", err)
			}
		}
	})
	return all
}

// measure asks for a server's clock. It does not wait for a server that hangs.
func (a *Alarms) measure(ctx context.Context, server int) error {
	name := a.cfg.Store.Servers()[server]
	if waiting := a.cfg.Store.Waiting(server); waiting > hangs {
		return fmt.Errorf("server %s: no answer for %s", name, waiting.Round(100*time.Millisecond))
	}
	if _, err := a.cfg.Store.Measure(ctx, server); err != nil {
		return err
	}
	if a.cfg.Store.Now(server) == 0 {
		return fmt.Errorf("server %s: its clock is not known just now", name)
	}
	return nil
}

// databases returns the tables of each database of a server.
func (a *Alarms) databases(server int) map[int][]int {
	all := map[int][]int{}
	for _, table := range a.cfg.Store.TablesOf(server) {
		db := a.cfg.Store.Layout().DatabaseOf(table)
		all[db] = append(all[db], table)
	}
	return all
}

// take adds what one database has. A database that can't be read in full is not counted now, and is read again from the
// same time on.
func (t *toll) take(database int, q store.DeathsQuery, found []store.Deaths, err error) {
	if err != nil {
		t.unread[database] = q.From
		t.until[database] = q.From
		return
	}
	t.until[database] = max(q.From, q.Until)
	rows := map[int]int{} // by table
	for _, d := range found {
		of := t.types[d.Type]
		of.count += d.Rows
		if len(of.jobs) < alarmExamples {
			of.jobs = append(of.jobs, d.Job)
		}
		t.types[d.Type] = of
		if rows[d.Table] += d.Rows; rows[d.Table] >= t.limit {
			t.capped = true
		}
	}
}
