package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Deed is what an Act does with tasks.
type Deed string

// The deeds.
const (
	DeedRedrive    Deed = "redrive"
	DeedBury       Deed = "bury"
	DeedCancel     Deed = "cancel"
	DeedReschedule Deed = "reschedule"
)

// acting locks rows of one table and reads what decides over them, as the client does before it cancels a task. The third column
// is 1 if a pending row may have been loaded already.
var acting = prepare(`
SELECT /* tocsin acting */
    job_id,
    status,
    status = 0 AND action_time <= UTC_TIMESTAMP(3) + INTERVAL 10000 MICROSECOND,
    COALESCE(` + client.StrictSQL + `, 0)
FROM {table} AS t FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
FOR UPDATE;`)

// The updates of an Act beside redrive. Their rows are locked, and have been chosen by what acting read. Their arguments are those
// of Act.args.
var (
	buryLocked       = prepare(buryThese + openNow)
	cancelLocked     = prepare(ofClient(client.CancelSQL))
	rescheduleLocked = prepare(ofClient(client.RescheduleSQL))
)

const openNow = `
  AND status IN (0, 1);`

// ofClient makes an update of the client's one of this package.
func ofClient(text string) string {
	return strings.NewReplacer("{task}", "{table}", "{index}", "PRIMARY").Replace(text) + `
WHERE job_id IN ({ids})` + openNow
}

// Act names tasks of one server by their ids, and what is to be done with them.
type Act struct {
	Server int
	Deed   Deed
	IDs    []tocsin.JobID // at most 500
	Types  []uint64       // numbers of the biz types whose tasks may be changed; nil: all
	Reason string         // of DeedBury
	Same   bool           // of DeedRedrive: with the idempotency key that the task has
	When   client.When    // of DeedReschedule
}

// Acted is what became of one task of an Act.
type Acted struct {
	Type       uint64
	Status     tocsin.Status // before
	Done       bool          // it was changed
	InDelivery bool          // Done: of a cancel or reschedule, a delivery may be under way; not Done: the task is claimed, and its biz type strict
	Err        error         // why it could not be changed, or may or may not have been; nil: its status decided
}

// Act changes tasks by their ids: the reads and the writes of all tables are a few round trips, and one transaction. Tasks that are not
// there, or of other biz types, are not in the result, and are not locked. If a table can't be read or written, or others hold some of
// the rows, those tasks have an error and the others are changed.
func (s *Store) Act(ctx context.Context, a Act) map[tocsin.JobID]Acted {
	sv, ids := s.servers[a.Server], s.idsOn(a.Server, a.IDs)
	all, rows, failed := make(map[tocsin.JobID]Acted, len(ids)), make(map[tocsin.JobID]found, len(ids)), make(map[int]error)
	fail := func(table int, err error) { failed[table] = s.wrap(err, string(a.Deed)+" tasks of", sv, table) }
	failure := func(id tocsin.JobID, err error) error {
		if failed := failed[id.Table()]; failed != nil {
			return failed
		}
		return s.wrap(err, string(a.Deed)+" tasks", sv)
	}
	err := apart(byTable(ids), func(parts []idsOf) error { return s.findRows(ctx, s.gated(sv), parts, rows) }, func(part idsOf, err error) { fail(part.table, err) })
	var fit []tocsin.JobID
	for _, id := range ids {
		switch row, there := rows[id]; {
		case there && a.sees(row.typeCode):
			all[id] = Acted{Type: row.typeCode, Status: row.status}
			if a.fits(row.status) {
				fit = append(fit, id)
			}
		case !there && failure(id, err) != nil:
			all[id] = Acted{Err: failure(id, err)}
		}
	}
	if err != nil {
		return all // the server is away
	}
	done := make(map[tocsin.JobID]Acted, len(fit))
	err = s.around(ctx, a.Server, fit, func(parts []idsOf) error {
		part, err := s.act(ctx, sv, a, parts)
		maps.Copy(done, part)
		return err
	}, fail)
	for _, id := range fit {
		one, ok := done[id]
		if one.Type = all[id].Type; !ok {
			one.Status, one.Err = all[id].Status, failure(id, err)
		}
		if all[id] = one; !ok && one.Err == nil { // it was purged meanwhile
			delete(all, id)
		}
	}
	return all
}

// sees reports whether tasks of a biz type may be changed.
func (a *Act) sees(typeCode uint64) bool {
	return a.Types == nil || slices.Contains(a.Types, typeCode)
}

// fits reports whether a task in a status may be changed, if no delivery forbids it.
func (a *Act) fits(status tocsin.Status) bool {
	if a.Deed == DeedRedrive {
		return status == tocsin.Dead
	}
	return !status.Final()
}

// act is one transaction. It returns the rows that are there, or none if it failed.
func (s *Store) act(ctx context.Context, sv *server, a Act, parts []idsOf) (rows map[tocsin.JobID]Acted, err error) {
	written := false // all but the commit
	err = s.transact(ctx, sv, tablesOf(parts), func(conn *sql.Conn) (err error) {
		written = false
		if rows, err = s.lockFor(ctx, conn, a, parts); err == nil {
			err = s.actOn(ctx, conn, a, parts, rows)
		}
		written = err == nil
		return err
	})
	switch {
	case err == nil:
		return rows, nil
	case written && mysql.InDoubt(err):
		err = fmt.Errorf("%w: %w", client.ErrUnknownOutcome, err)
	}
	return nil, err
}

// lockFor locks rows and decides which of them are changed.
func (s *Store) lockFor(ctx context.Context, conn *sql.Conn, a Act, parts []idsOf) (map[tocsin.JobID]Acted, error) {
	var text []byte
	for _, part := range parts {
		text = acting.render(text, s.ofTable(part.table, slots{"ids": part.ids}))
	}
	rows := make(map[tocsin.JobID]Acted)
	err := s.read(ctx, conn, acting.name, text, func(_ int, found *sql.Rows) error {
		var id tocsin.JobID
		var one Acted
		var due, strict bool
		if err := found.Scan(&id, &one.Status, &due, &strict); err != nil {
			return err
		}
		switch {
		case !a.fits(one.Status):
		case one.Status == tocsin.Claimed && strict:
			one.InDelivery = true
		default:
			one.Done = true
			one.InDelivery = (a.Deed == DeedCancel || a.Deed == DeedReschedule) && !strict && (due || one.Status == tocsin.Claimed)
		}
		rows[id] = one
		return nil
	})
	return rows, err
}

// update is the statement of the deed, what stands in its slots, and its arguments for each table.
func (a *Act) update() (st statement, in slots, args []any) {
	switch a.Deed {
	case DeedRedrive:
		key := newKey
		if a.Same {
			key = sameKey
		}
		return redrive, slots{"key": key, "which": ""}, nil
	case DeedBury:
		return buryLocked, slots{}, []any{cut(a.Reason)}
	case DeedCancel:
		return cancelLocked, slots{}, nil
	}
	text, micros := a.When.Args()
	return rescheduleLocked, slots{}, []any{text, micros, text, micros}
}

// actOn changes those of the locked rows that are to be changed, and rings the bell.
func (s *Store) actOn(ctx context.Context, conn *sql.Conn, a Act, parts []idsOf, rows map[tocsin.JobID]Acted) error {
	st, in, each := a.update()
	near, rings := []byte{}, a.Deed == DeedRedrive
	if a.Deed == DeedReschedule && a.When.Near(s.Horizon()) {
		near, rings = ringNear.render(nil, slots{"horizon": s.horizon.Load()}.fill), true
	}
	var text, bells []byte
	var args []any
	for _, part := range parts {
		var ids []tocsin.JobID
		for _, id := range part.ids {
			if rows[id].Done {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			continue
		}
		in["ids"] = ids
		text, args = st.render(text, s.ofTable(part.table, in)), append(args, each...)
		bells = ring.render(bells, s.ofTable(part.table, slots{"ids": ids, "near": near}))
	}
	if text == nil {
		return nil
	}
	_, err := s.write(ctx, conn, st.name, text, args...)
	if err == nil && rings {
		_, err = s.write(ctx, conn, ring.name, bells)
	}
	return err
}
