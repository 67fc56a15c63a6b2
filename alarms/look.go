package alarms

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/tablewalk"
	"github.com/tocsinhq/tocsin/store"
)

// look notes the biz types of which tasks became dead since the last look: what no process has raised an alarm about, or
// what another one waits with. Deaths later than behind before now are left to the next look.
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
	ctx, cancel := context.WithTimeout(ctx, statement)
	defer cancel()
	t := a.tally(ctx, types, behind, func(server, database int) int64 {
		return max(a.looked[database], a.cfg.Tables.Now(server)-lookBack.Milliseconds())
	})
	a.looked = t.until
	for _, n := range types {
		if t.capped || t.types[n].count > 0 {
			a.found(about{n, biztype.OnDead})
		}
	}
}

// tally is what died in all tables.
type tally struct {
	types  map[uint64]deaths
	capped bool          // not all were counted
	until  map[int]int64 // by database: up to when it was read, by its server's clock; a database that could not be read is left out, or is as it was
	unread map[int]int64 // by database: from when on it was to be read
}

// deaths are those of one biz type.
type deaths struct {
	count int
	jobs  []tocsin.JobID // some of them
}

// tally counts the tasks that became dead until behind before now, on all servers side by side. A database that can't be
// read is not counted.
func (a *Alarms) tally(ctx context.Context, types []uint64, behind time.Duration, from func(server, database int) int64) tally {
	all := tally{types: map[uint64]deaths{}, until: map[int]int64{}, unread: map[int]int64{}}
	var mu sync.Mutex
	tablewalk.Servers(len(a.cfg.Tables.Servers()), func(server int) {
		_, err := a.cfg.Tables.Measure(ctx, server)
		until := a.cfg.Tables.Now(server) - behind.Milliseconds()
		for database, tables := range a.databases(server) {
			start := from(server, database)
			var found []store.Deaths
			if err == nil {
				found, err = a.deathsIn(ctx, store.DeathsQuery{Server: server, Tables: tables, Types: types, From: start, Until: until, Limit: atMost})
			}
			mu.Lock()
			all.take(database, start, until, found, err)
			mu.Unlock()
			if err != nil {
				a.limit.Of(a.cfg.Logger, "look "+a.cfg.Tables.Servers()[server]).Warn("dead tasks can't be counted for alarms", "error", err)
				err = ctx.Err() // the next database may be well
			}
		}
	})
	return all
}

// deathsIn is Deaths with one error.
func (a *Alarms) deathsIn(ctx context.Context, q store.DeathsQuery) ([]store.Deaths, error) {
	found, failed, err := a.cfg.Tables.Deaths(ctx, q)
	for _, one := range failed {
		if err == nil {
			err = one
		}
	}
	return found, err
}

// databases returns the tables of each database of a server.
func (a *Alarms) databases(server int) map[int][]int {
	all := map[int][]int{}
	for _, table := range a.cfg.Tables.TablesOf(server) {
		db := a.cfg.Tables.Layout().DatabaseOf(table)
		all[db] = append(all[db], table)
	}
	return all
}

// take adds what one database has. What can't be read in full is read again from the same time on, and not counted now.
func (t *tally) take(database int, from, until int64, found []store.Deaths, err error) {
	if err != nil {
		t.unread[database] = from
		t.until[database] = from
		return
	}
	t.until[database] = max(from, until)
	rows := map[int]int{} // by table
	for _, d := range found {
		of := t.types[d.Type]
		of.count += d.Rows
		if len(of.jobs) < examples {
			of.jobs = append(of.jobs, d.Job)
		}
		t.types[d.Type] = of
		if rows[d.Table] += d.Rows; rows[d.Table] >= atMost {
			t.capped = true
		}
	}
}
