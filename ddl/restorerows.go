package ddl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

const (
	settleAtOnce = 500     // rows of one transaction
	sampleTables = 16      // of other databases, to estimate how many tasks are missing
	sampleRows   = 100_000 // of one of these, at most
	timeForm     = "2006-01-02 15:04:05.000"
)

// The columns of countRestored.
const (
	dueUntil = iota
	dueSince
	dueLater
	isDead
)

// count counts the tasks of the databases that wait for a decision.
func (r *restore) count(ctx context.Context) error {
	for _, c := range r.copies {
		if !c.found.Waits() {
			continue
		}
		if err := r.countCopy(ctx, c); err != nil {
			return err
		}
		if err := r.estimate(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// countCopy counts the tasks of one database by biz type.
func (r *restore) countCopy(ctx context.Context, c *restored) error {
	var mu sync.Mutex // guards byType
	byType := map[uint64]*RestoredType{}
	err := r.eachTable(ctx, c, func(ctx context.Context, table string) error {
		var rows []struct {
			Type  uint64 `db:"biz_type"`
			Due   int    `db:"due"`
			Tasks int    `db:"tasks"`
		}
		if err := c.DB.SelectContext(ctx, &rows, inTable(c.name(), table, countRestored), c.found.Until.Format(timeForm)); err != nil {
			return fmt.Errorf("count the tasks of %s.%s: %w", c.name(), table, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, row := range rows {
			if byType[row.Type] == nil {
				byType[row.Type] = &RestoredType{Type: r.nameOf(row.Type)}
			}
			*byType[row.Type].column(row.Due) += row.Tasks
		}
		return nil
	})
	for _, number := range slices.Sorted(maps.Keys(byType)) {
		t := *byType[number]
		switch {
		case means(r.opt.Cancelled, t.Type):
			t.Cancelled = t.Settled
		case means(r.opt.Dead, t.Type):
			t.Killed = t.Settled
		}
		c.found.Types = append(c.found.Types, t)
	}
	return err
}

// column returns the count for a value of countRestored.
func (t *RestoredType) column(due int) *int {
	return map[int]*int{dueUntil: &t.Settled, dueSince: &t.Due, dueLater: &t.Later, isDead: &t.Dead}[due]
}

// nameOf returns the name of a biz type, "#7" if none has that number.
func (r *restore) nameOf(number uint64) string {
	if t, ok := r.types[number]; ok {
		return t.Name
	}
	return "#" + strconv.FormatUint(number, 10)
}

// means reports whether a list of biz types means one.
func means(list []string, name string) bool {
	return slices.Contains(list, name) || slices.Contains(list, AllTypes)
}

// estimate guesses from tables of databases that are well how many tasks were added after the end of the copy and up to the
// last time known of its database: later ones were refused.
func (r *restore) estimate(ctx context.Context, c *restored) error {
	var tables []table
	sites := map[string]*site{}
	for _, s := range r.sites {
		for db, row := range s.rows {
			other := &restored{dbCopy: &dbCopy{site: s, db: db}}
			if db == c.db || row.State != layoutrow.Active || r.waits(db) {
				continue
			}
			for _, t := range other.used() {
				if t.file == taskFile && s.tables[t.full()] {
					tables, sites[t.database] = append(tables, t), s
				}
			}
		}
	}
	if len(tables) == 0 || c.found.Ends.IsZero() || !c.found.Known.After(c.found.Ends) {
		return nil
	}
	slices.SortFunc(tables, func(a, b table) int { return strings.Compare(a.full(), b.full()) })
	added, read := 0, 0
	for i := 0; i < len(tables); i += max(len(tables)/sampleTables, 1) {
		t := tables[i]
		query := fill(t.in(countAdded), slots{"limit": sampleRows})
		var n int
		if err := sites[t.database].DB.GetContext(ctx, &n, query, firstJobID(c.found.Ends), firstJobID(c.found.Known)); err != nil {
			return fmt.Errorf("count the tasks that were added to %s: %w", t.full(), err)
		}
		added, read = added+n, read+1
	}
	c.found.Added = added * r.layout.Tables / read
	return nil
}

// waits reports whether a database is among those to judge, and waits for a decision.
func (r *restore) waits(db int) bool {
	return slices.ContainsFunc(r.copies, func(c *restored) bool { return c.db == db && c.found.Waits() })
}

// firstJobID returns the lowest job_id of a time.
func firstJobID(t time.Time) tocsin.JobID {
	return tocsin.JobID(ids.JobID(t.Sub(tocsin.Epoch).Milliseconds(), 0, 0))
}

// accept settles tasks of one database, and puts it into use.
func (r *restore) accept(ctx context.Context, c *restored) error {
	if err := c.write(ctx, holdLayout, DefaultWait); err != nil {
		return err
	}
	if err := r.eachTable(ctx, c, func(ctx context.Context, table string) error { return r.settleTable(ctx, c, table) }); err != nil {
		return err
	}
	if err := r.advance(ctx, c); err != nil {
		return err
	}
	if err := r.agree(ctx, c); err != nil {
		return err
	}
	err := patient(ctx, DefaultWait, func() error {
		if _, err := c.DB.ExecContext(ctx, in(c.name(), releaseLayout), c.known); err != nil {
			return fmt.Errorf("put %s into use: %w", c.where(), err)
		}
		return nil
	})
	if err == nil {
		c.found.State, c.found.Older = layoutrow.Active, false
	}
	return err
}

// agree gives the copy the ownership and the grace of sweeps of the cluster's databases in use, which may have changed since it was made.
// Nobody uses it yet. Where those differ among themselves, it keeps its own.
func (r *restore) agree(ctx context.Context, c *restored) error {
	ownerships, graces := map[string]bool{}, map[int64]bool{}
	for _, s := range r.sites {
		for db, row := range s.rows {
			if row.State != layoutrow.Active || row.Identity != c.row.Identity || slices.ContainsFunc(r.copies, func(c *restored) bool { return c.db == db }) {
				continue
			}
			ownerships[row.Ownership] = true
			if row.GraceMS != 0 { // it was written
				graces[row.GraceMS] = true
			}
		}
	}
	var changes []string
	for ownership := range ownerships {
		if len(ownerships) == 1 && ownership != c.row.Ownership {
			changes = append(changes, fill(changeOwnership, slots{"ownership": ownership, "version": layoutrow.OldestSchema}))
		}
	}
	for grace := range graces {
		if len(graces) == 1 && c.row.GraceMS != 0 && grace != c.row.GraceMS {
			changes = append(changes, fill(changeGrace, slots{"grace": grace}))
		}
	}
	for _, change := range changes {
		if _, err := c.update(ctx, c.db, rowOf, in(c.name(), change)); err != nil {
			return err
		}
	}
	return nil
}

// advance keeps schedules from making runs again that count as settled.
func (r *restore) advance(ctx context.Context, c *restored) error {
	settled := slices.Concat(r.opt.Cancelled, r.opt.Dead)
	if len(settled) == 0 || c.row.Version < since("schedule") {
		return nil
	}
	until := c.found.Until.Format(timeForm)
	query := fill(advanceSchedules, slots{"database": c.name(), "types": r.condition(settled, nil)})
	if _, err := c.exec(ctx, query, until, until); err != nil {
		return fmt.Errorf("advance the schedules of %s: %w", c.where(), err)
	}
	return nil
}

// settleTable settles tasks of one table.
func (r *restore) settleTable(ctx context.Context, c *restored, table string) error {
	cancelled, dead := r.condition(r.opt.Cancelled, nil), r.condition(r.opt.Dead, r.opt.Cancelled)
	for _, to := range []struct {
		status tocsin.Status
		types  string
		which  []string
	}{{tocsin.Cancelled, cancelled, r.opt.Cancelled}, {tocsin.Dead, dead, r.opt.Dead}} {
		if len(to.which) == 0 {
			continue
		}
		for _, from := range []tocsin.Status{tocsin.Pending, tocsin.Claimed} {
			for {
				n, err := r.settleSome(ctx, c, table, from, to.status, to.types)
				if err != nil {
					return fmt.Errorf("settle tasks of %s.%s: %w", c.name(), table, err)
				}
				if n == 0 {
					break
				}
			}
		}
	}
	if err := r.markDead(ctx, c, table); err != nil {
		return fmt.Errorf("mark dead tasks of %s.%s: %w", c.name(), table, err)
	}
	return nil
}

// markDead marks tasks of one table that are dead in the copy: they may have been redriven and delivered since.
func (r *restore) markDead(ctx context.Context, c *restored, table string) error {
	var ids []uint64
	if err := c.DB.SelectContext(ctx, &ids, inTable(c.name(), table, selectUnmarked)); err != nil {
		return err
	}
	slices.Sort(ids)
	reason := layoutrow.RestoredError + c.found.Ends.Format(time.DateTime) + "; dead in it, perhaps redriven since: "
	for some := range slices.Chunk(ids, settleAtOnce) {
		query, args, err := sqlx.In(inTable(c.name(), table, markRestored), reason, some)
		if err != nil {
			return err
		}
		if _, err := c.exec(ctx, query, args...); err != nil {
			return err
		}
	}
	return nil
}

// condition restricts selectSettled to biz types that are named, and not excepted.
func (r *restore) condition(names, except []string) string {
	var numbers []string
	for _, number := range slices.Sorted(maps.Keys(r.types)) {
		if means(names, r.types[number].Name) && !means(except, r.types[number].Name) {
			numbers = append(numbers, strconv.FormatUint(number, 10))
		}
	}
	switch {
	case slices.Contains(names, AllTypes) && len(except) == 0:
		return ""
	case len(numbers) == 0:
		return "\n    AND FALSE"
	}
	return "\n    AND biz_type IN (" + strings.Join(numbers, ", ") + ")"
}

// settleSome settles at most settleAtOnce tasks, and returns how many it found.
func (r *restore) settleSome(ctx context.Context, c *restored, table string, from, to tocsin.Status, types string) (found int, err error) {
	until := c.found.Until.Format(timeForm)
	find := fill(selectSettled, slots{"database": c.name(), "table": table, "status": int(from), "types": types, "limit": settleAtOnce})
	var ids []uint64
	if err := c.DB.SelectContext(ctx, &ids, find, until); err != nil || len(ids) == 0 {
		return 0, err
	}
	slices.Sort(ids)
	reason := fmt.Sprintf(layoutrow.RestoredError+"%s; due until %s, so probably settled since",
		c.found.Ends.Format(time.DateTime), c.found.Until.Format(time.DateTime))
	dedup := "dedup_key"
	if to == tocsin.Cancelled {
		dedup = "NULL"
	}
	settle := fill(settleRestored, slots{"database": c.name(), "table": table, "status": int(to), "dedup_key": dedup})
	query, args, err := sqlx.In(settle, reason, ids, until)
	if err != nil {
		return 0, err
	}
	rows, err := c.exec(ctx, query, args...)
	if err == nil && rows == 0 {
		err = errors.New("its tasks change meanwhile: somebody uses the database")
	}
	return len(ids), err
}

// eachTable runs do for the task tables of one database, several at once.
func (r *restore) eachTable(ctx context.Context, c *restored, do func(ctx context.Context, table string) error) error {
	return atOnce(ctx, r.opt.Parallel, r.layout.Tables, func(ctx context.Context, n int) error {
		err := do(ctx, r.layout.TableName(n))
		if err == nil {
			r.progress.add(1, 0)
		}
		return err
	})
}
