package schedule

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// here is a transaction in the database of one schedule, whose row it has locked.
type here struct {
	maker   *maker
	in      tocsin.Tx
	conn    *sql.Conn // the same; nil: in is a caller's transaction, whose session takes one statement at a time
	noWait  bool      // for the locks of this row and of a run that is about to begin
	unread  bool      // the run is not locked yet, and nothing is written
	fresh   bool      // there is no such row: a lock on the gap would keep others that create schedules from their inserts
	table   int
	row     *row          // as it was read; nil: there is none
	now     time.Time     // the server's clock, read when the row was locked
	horizon time.Duration // nearer runs ring the doorbell
	works   int           // the oldest program that may use the database
	from    string        // of a change: runs with lower keys are settled
}

// at runs fn in a transaction with the row of a schedule locked.
func (m *maker) at(ctx context.Context, id tocsin.JobID, fn func(*here) error) error {
	return m.lockedAt(ctx, id, false, fn)
}

// lockedAt is at. With noWait, it returns an error of the class mysql.Contended at once if somebody else has locked the row.
func (m *maker) lockedAt(ctx context.Context, id tocsin.JobID, noWait bool, fn func(*here) error) error {
	table := id.Table()
	if m.tables.ServerOf(table) < 0 {
		return client.Refuse(ErrNotFound, "layout %s has no table %d, which schedule_id %s names", m.tables.Layout(), table, id)
	}
	var held error
	err := m.tables.Transact(ctx, m.tables.Layout().DatabaseOf(table), func(conn *sql.Conn) error {
		h := &here{maker: m, in: conn, conn: conn, table: table, noWait: noWait}
		err := h.do(ctx, id, fn)
		if held = nil; noWait && (h.now.IsZero() || h.unread) && mysql.ClassOf(err) == mysql.Contended { // Transact would try it again
			held, err = err, nil
		}
		return err
	})
	if err == nil {
		err = held
	}
	return explain(err)
}

// do runs fn with the row of a schedule locked.
func (h *here) do(ctx context.Context, id tocsin.JobID, fn func(*here) error) error {
	if err := h.lock(ctx, id); err != nil {
		return err
	}
	return fn(h)
}

// sql fills in the names of database and task table.
func (h *here) sql(statement string) string {
	return strings.NewReplacer("{database}", h.database(), "{task}", h.task()).Replace(statement)
}

func (h *here) database() string {
	layout := h.maker.tables.Layout()
	return layout.Database(layout.DatabaseOf(h.table))
}

func (h *here) task() string { return h.maker.tables.Layout().Table(h.table) }

// lock locks the row, and then reads the clock: waiting for the lock may take long.
func (h *here) lock(ctx context.Context, id tocsin.JobID) error {
	take := func(_ int, rows *sql.Rows) (err error) {
		h.row, err = scanRow(rows)
		return err
	}
	var err error
	switch {
	case h.conn == nil && h.fresh:
		err = h.sets(ctx, readNow, nil, h.tick)
	case h.conn == nil:
		if err = h.sets(ctx, lockRow, []any{uint64(id)}, take); err == nil {
			err = h.sets(ctx, readNow, nil, h.tick)
		}
	default:
		lock := lockRow
		if h.noWait {
			lock += " NOWAIT"
		}
		err = h.sets(ctx, lock+";\n"+readNow, []any{uint64(id)}, func(set int, rows *sql.Rows) error {
			if set == 0 {
				return take(set, rows)
			}
			return h.tick(set, rows)
		})
	}
	switch {
	case err != nil:
		return err
	case h.now.IsZero():
		return fmt.Errorf("%s has no layout row", h.database())
	case h.works < schema:
		return client.Refuse(tocsin.ErrSchema, "schedules need schema version %d, and programs for version %d may still use %s: %s", schema, h.works, h.database(), oldTables)
	}
	if h.row != nil {
		h.row.ReadAt = h.now
	}
	return nil
}

// tick takes the row of readNow.
func (h *here) tick(_ int, rows *sql.Rows) error {
	var now instant
	var horizon int64
	err := rows.Scan(&now, &horizon, &h.works)
	h.now, h.horizon = now.Time, time.Duration(horizon)*time.Millisecond
	return err
}

// exec runs a statement and returns how many rows it changed.
func (h *here) exec(ctx context.Context, statement string, args ...any) (n int64, err error) {
	defer func(start time.Time) { h.maker.tables.Observe(statement, start, err) }(time.Now())
	res, err := h.in.ExecContext(ctx, h.sql(statement), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// run is a task that is to be made.
type run struct {
	id  tocsin.JobID
	key string
	due time.Time // asked for
	far bool      // it waits for those made before it
}

// window inserts the runs of a window, and moves the cursor in the row. Nobody but the caller stores the row. The first window after a
// change is made as its transition says; nil: there is none.
func (h *here) window(ctx context.Context, r *row, t *transition) (window, error) {
	times, err := r.Times()
	if err != nil {
		return window{}, err
	}
	w := windowOf(r.Schedule, times, h.now)
	fires := t.fires(w, times)
	r.MadeUntil, r.NextFire = w.until, w.next
	r.Made, r.PassedOver = r.Made+uint64(len(fires)), r.PassedOver+uint64(w.passedOver)
	if w.next.IsZero() {
		r.State, r.Reason = Ended, "no fire time is left"
	}
	k, now := newKnown(r), h.now.UnixMilli()
	runs := make([]run, len(fires))
	for i, f := range fires {
		key := ids.OfTime(uint64(r.ID), r.Revision, f.Time)
		runs[i] = run{key: key.String(), due: f.Due}
		runs[i].far = i > 0 && r.Overlap != OverlapAllow && k.madeUp(&sibling{due: f.Due.UnixMilli(), created: now, of: key}, now)
	}
	_, err = h.insert(ctx, r, runs)
	return w, err
}

// bytesAtOnce bounds one INSERT. A text that is escaped may need twice its bytes, and max_allowed_packet may be as low as 1 MiB.
const bytesAtOnce = 400_000

// insert stores runs, at most MaxRuns, and rings the doorbell for those that are near. It leaves out runs whose keys are already there,
// and returns the others with their ids.
func (h *here) insert(ctx context.Context, r *row, runs []run) (made []run, err error) {
	size := max(1, bytesAtOnce/(len(r.Payload)+len(r.headers)+200))
	for len(runs) > 0 {
		n := min(size, len(runs))
		stored, err := h.insertSome(ctx, r, runs[:n])
		if err != nil {
			return nil, fmt.Errorf("make runs in %s: %w", h.task(), err)
		}
		made, runs = append(made, stored...), runs[n:]
	}
	return made, h.ring(ctx, r, made)
}

// insertTries bounds how often other ids are tried: an id is taken with a chance of some per mille.
const insertTries = 16

func (h *here) insertSome(ctx context.Context, r *row, runs []run) ([]run, error) {
	for range insertTries {
		for i := range runs {
			if runs[i].id == 0 {
				runs[i].id = tocsin.JobID(h.maker.ids.Next(time.Now(), h.table))
			}
		}
		args := make([]any, 0, 10*len(runs))
		for _, one := range runs {
			args = append(args, r.args(one, h.now)...)
		}
		_, err := h.exec(ctx, insertRuns+list(insertRun, len(runs)), args...)
		if mysql.ClassOf(err) != mysql.Duplicate {
			return runs, err
		}
		if runs, err = h.others(ctx, r, runs); err != nil || len(runs) == 0 {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%d ids in a row are taken", insertTries)
}

// args are the parameters of insertRun. A run whose time has passed is due now: a scan looks no farther back.
func (r *row) args(one run, now time.Time) []any {
	var headers any
	if r.headers != "" {
		headers = r.headers
	}
	return []any{
		uint64(one.id), r.subject(), []byte(r.Key), r.number, []byte(one.key), r.Payload, headers,
		at(one.due), at(one.action(now)),
	}
}

// action is when the run is looked at first.
func (one run) action(now time.Time) time.Time {
	if one.far {
		return now.Add(farLeast + rand.N(farMost-farLeast))
	}
	return later(one.due, now)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// others returns the runs that are not there yet, with other ids: one of theirs, or one of the keys, was taken.
func (h *here) others(ctx context.Context, r *row, runs []run) (left []run, err error) {
	keys := make([]string, len(runs))
	for i, one := range runs {
		keys[i] = one.key
	}
	there, err := h.there(ctx, r, keys...)
	for _, one := range runs {
		if there[one.key] == 0 {
			one.id = 0
			left = append(left, one)
		}
	}
	return left, err
}

// there returns the ids of the runs that are there, by their keys.
func (h *here) there(ctx context.Context, r *row, keys ...string) (map[string]tocsin.JobID, error) {
	args := []any{r.subject(), r.number}
	for _, key := range keys {
		args = append(args, []byte(key))
	}
	there := map[string]tocsin.JobID{}
	err := h.sets(ctx, strings.Replace(readKeys, "{keys}", list("?", len(keys)), 1), args, func(_ int, rows *sql.Rows) error {
		var key []byte
		var id tocsin.JobID
		err := rows.Scan(&key, &id)
		there[string(key)] = id
		return err
	})
	return there, err
}

// ring rings the doorbell for the runs that are near.
func (h *here) ring(ctx context.Context, r *row, runs []run) error {
	var args []any
	near := 0
	for _, one := range runs {
		if due := later(one.due, h.now); !one.far && due.Before(h.now.Add(h.horizon)) {
			args = append(args, h.table, uint64(one.id), r.number, at(due))
			near++
		}
	}
	if near == 0 {
		return nil
	}
	_, err := h.exec(ctx, ringRuns+list(ringRun, near), args...)
	return err
}

// byHand stores runs that somebody asked for, in their order. If they have to wait for their turn, the first one looks at once.
func (h *here) byHand(ctx context.Context, runs []run) ([]run, error) {
	if _, err := h.exec(ctx, forgetHand, ids.RunKeySize, uint64(h.row.ID), ids.RunKeySize); err != nil {
		return nil, err
	}
	for i := range runs {
		runs[i].far = i > 0 && h.row.Overlap != OverlapAllow
	}
	return h.insert(ctx, h.row, runs)
}

// list repeats a text with commas between.
func list(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+", ", n), ", ") }
