package ddl

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

const (
	// patience is how long an ALTER may wait for transactions that use its table. Later statements wait behind it.
	patience = 100 * time.Millisecond
	// gentleRounds is in how many rounds MariaDB's ALTERs don't wait. A table that is in use each time is then waited
	// for, as on MySQL.
	gentleRounds = 5
)

// upgrade is what one server lacks of the newest schema version.
type upgrade struct {
	*site
	changes []change // of tables that exist
	older   []int    // databases whose layout row says an older version
}

// needed reads what a server lacks. It changes nothing.
func (s *site) needed(ctx context.Context, want map[string]structure) (*upgrade, error) {
	u := &upgrade{site: s}
	for _, db := range s.Databases {
		row, ok := s.rows[db]
		if !ok {
			continue
		}
		found, err := s.inspect(ctx, s.layout.Database(db))
		if err != nil {
			return nil, err
		}
		for _, t := range tablesOf(s.layout, db) {
			if stored := found[t.name]; stored != nil {
				u.changes = append(u.changes, changesTo(t, want[t.file], *stored)...)
			}
		}
		if row.Version < layoutrow.SchemaVersion {
			u.older = append(u.older, db)
		}
	}
	return u, nil
}

// migrate brings all servers to the newest version, at once, each table by table.
func (a *application) migrate(ctx context.Context) error {
	want := expectationsAt(layoutrow.SchemaVersion)
	return each(a.sites, func(s *site) error {
		u, err := s.needed(ctx, want)
		if err != nil || len(u.changes)+len(u.older) == 0 {
			return err
		}
		unlock, err := s.lock(ctx, applyLock(s.layout), a.opt.Wait)
		if err != nil {
			return err
		}
		defer unlock()
		if u, err = s.needed(ctx, want); err != nil { // another Apply may have done it meanwhile
			return err
		}
		a.altered.add(0, len(u.changes))
		return a.upgrade(ctx, u)
	})
}

// upgrade alters the tables of one server, those that no transaction holds first, and writes the new version into the
// databases that are done, even if it returns an error.
func (a *application) upgrade(ctx context.Context, u *upgrade) error {
	left, err := a.alterAll(ctx, u)
	busy := map[string]bool{}
	for _, c := range left {
		busy[c.table.database] = true
	}
	for _, db := range u.older {
		if busy[u.layout.Database(db)] {
			continue
		}
		if raised := u.raise(ctx, db); raised != nil && err == nil {
			err = raised
		}
	}
	return err
}

// alterAll makes the changes of one server in rounds, with growing pauses, until all are made, or for opt.Wait none
// could be. It returns those that are left.
func (a *application) alterAll(ctx context.Context, u *upgrade) (left []change, err error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, 2*time.Second
	left = u.changes
	for round, idle := 0, time.Now(); ; round++ {
		before := len(left)
		var held error
		if left, held, err = a.alterRound(ctx, u, left, round >= gentleRounds); err != nil || len(left) == 0 {
			return left, err
		}
		if len(left) < before {
			pause.Reset()
			idle = time.Now()
		}
		if time.Since(idle) > a.opt.Wait {
			return left, fmt.Errorf("server %s: %d tables are not migrated, the first is %s: an open transaction of somebody holds it: end it, then run this again (%w)",
				u.Name, len(left), left[0].table.full(), held)
		}
		if err := loop.Wait(ctx, pause.NextBackOff()); err != nil {
			return left, err
		}
	}
}

// alterRound tries each change once. held is the error of the last table that was in use.
func (a *application) alterRound(ctx context.Context, u *upgrade, changes []change, patient bool) (left []change, held, err error) {
	for i, c := range changes {
		switch err := u.change(ctx, c, patient); {
		case err == nil:
			a.count(func(r *Result) { r.Altered++ })
			a.altered.add(1, 0)
		case mysql.ClassOf(err) == mysql.Contended:
			held = err
			left = append(left, c)
		default:
			return append(left, changes[i:]...), held, err
		}
	}
	return left, held, nil
}

// change makes one change, unless another Apply was faster.
func (u *upgrade) change(ctx context.Context, c change, patient bool) error {
	query := c.alter()
	if patient {
		query = c.alterPatiently()
	}
	err := mysql.ExecBriefly(ctx, u.DB, patience, query)
	switch mysql.ClassOf(err) {
	case mysql.OK, mysql.Contended, mysql.Canceled:
		return err
	case mysql.Denied:
		return fmt.Errorf("server %s: the user may not alter %s: grant ALTER, CREATE and INSERT on its database, or let an administrator run what `tocsin ddl plan --migrate` shows (%w)",
			u.Name, c.table.full(), err)
	}
	if made, _ := u.made(ctx, c); made {
		return nil
	}
	return fmt.Errorf("server %s: alter %s: %w", u.Name, c.table.full(), err)
}

// made reports whether a table has what a change adds.
func (u *upgrade) made(ctx context.Context, c change) (bool, error) {
	now, err := u.needed(ctx, expectationsAt(layoutrow.SchemaVersion))
	if err != nil {
		return false, err
	}
	for _, other := range now.changes {
		if other.table == c.table && other.columns == c.columns {
			return false, nil
		}
	}
	return true, nil
}

// raise writes the new version into a layout row.
func (u *upgrade) raise(ctx context.Context, db int) error {
	if _, err := u.exec(ctx, raise(u.layout, db)); err != nil {
		return fmt.Errorf("write the schema version of %s: %w", u.place(db), err)
	}
	row, err := u.readLayout(ctx, db)
	if err != nil {
		return err
	}
	u.rows[db] = row
	if row.Version < layoutrow.SchemaVersion {
		return fmt.Errorf("%s is not of schema version %d yet, as tables are missing: run this again", u.place(db), layoutrow.SchemaVersion)
	}
	return nil
}

// lockStep is how many seconds a statement waits for the lock: less than the time-out of reading its answer.
const lockStep = 5

// userLock is a lock of a server that one run of a command at a time takes.
type userLock struct {
	name    string // at most 64 characters, as MySQL wants it
	command string // for messages
}

// applyLock lets one Apply at a time migrate a cluster's databases on a server, so that two of them don't wait for each other's
// ALTERs; each change is safe without it. A prefix has 32 characters at most.
func applyLock(layout tocsin.Layout) userLock {
	return userLock{name: "tocsin-ddl-" + layout.Database(0), command: "tocsin ddl apply"}
}

// lock takes a lock. It needs no privilege, and ends with its connection, so also when the process is killed.
func (s *site) lock(ctx context.Context, of userLock, wait time.Duration) (unlock func(), err error) {
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", s.Name, err)
	}
	unlock = func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }
	for begin := time.Now(); ; {
		var taken sql.NullInt64
		err := conn.QueryRowContext(ctx, takeLock, of.name, min(wait, lockStep*time.Second).Seconds()).Scan(&taken)
		switch {
		case err != nil:
			err = fmt.Errorf("server %s: wait for another `%s`: %w", s.Name, of.command, err)
		case taken.Int64 == 1:
			return unlock, nil
		case time.Since(begin) >= wait:
			err = s.holder(ctx, of)
		}
		if err != nil {
			unlock()
			return nil, err
		}
	}
}

// holder returns the error of a run that could not take the lock.
func (s *site) holder(ctx context.Context, of userLock) error {
	var id sql.NullInt64
	if err := s.DB.QueryRowContext(ctx, lockHolder, of.name).Scan(&id); err != nil && mysql.ClassOf(err) != mysql.Canceled {
		return fmt.Errorf("server %s: another `%s` changes it: %w", s.Name, of.command, err)
	}
	return fmt.Errorf("server %s: another `%s` changes it, over connection %d: wait for its end, then run this again", s.Name, of.command, id.Int64)
}
