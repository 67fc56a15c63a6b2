package schedule

import (
	"context"
	"database/sql"
	"strings"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
)

// ApplyTx is Apply of one definition in the caller's own transaction: the schedule is created or changed exactly if that
// commits. The transaction must be on the server that holds the schedule, which its biz_id or key decides; otherwise, and on
// PostgreSQL, it is ErrOtherServer. Its session must have the character set utf8mb4, and not the sql_mode EMPTY_STRING_IS_NULL. Roll back after any error. MariaDB's
// 1020, and 1213 (deadlock), mean: repeat the transaction.
//
// Commit at once: until then the schedule makes no runs, and none of its runs begins unless Overlap is allow. Runs that are due
// within 16 seconds of the call stay with the revision before it. If the commit comes later than that, a fire time between may have a run of
// each revision. Transactions that create one name with different biz_ids at the same time may both commit; then calls by
// that name are ErrAmbiguous.
func (s *Schedules) ApplyTx(ctx context.Context, tx tocsin.Tx, d Definition) (Applied, error) {
	return through(ctx, s, "apply", d.Name, d.BizType, func(ctx context.Context) (Applied, error) {
		if err := d.Validate(); err != nil {
			return Applied{}, err
		}
		layout := s.tables.Layout()
		table := layout.TableOf((&row{Schedule: Schedule{Definition: d.WithDefaults()}}).subject())
		if err := s.tables.HeldIn(ctx, tx, layout.DatabaseOf(table)); err != nil {
			return Applied{}, err
		}
		types, err := s.types(ctx)
		if err != nil {
			return Applied{}, err
		}
		if _, err := types.number(d.BizType); err != nil {
			return Applied{}, err
		}
		h := &here{maker: s.maker, in: tx, table: table}
		found, err := h.find(ctx, s, types, d.Name)
		if err != nil {
			return Applied{}, err
		}
		if found == nil {
			if _, err := h.exec(ctx, beforeCreate); err != nil {
				return Applied{}, err
			}
		}
		a := s.bring(ctx, place{types: types, tx: tx}, d, found, false, func() (*row, error) {
			if _, err := h.exec(ctx, undoCreate); err != nil { // the runs of the schedule that was not stored
				return nil, err
			}
			return h.named(ctx, types, d.Name, inShareMode)
		})
		return a, a.Err
	})
}

// A create in a caller's transaction can be undone by itself.
const (
	beforeCreate = "SAVEPOINT tocsin_schedule_create"
	undoCreate   = "ROLLBACK TO SAVEPOINT tocsin_schedule_create"
)

// How the row of a name is read. What is not there is read without a lock: two transactions that lock the gap would each
// keep the other one from its insert. After an insert that met another transaction's row, a shared lock lets all who met it go on.
const (
	plainly     = ""
	inShareMode = "\nLOCK IN SHARE MODE"
	forUpdate   = "\nFOR UPDATE"
)

// find looks for the schedule of a name, and locks it if it is in the database of a caller's transaction, which may have
// written it; nil: there is none. It refuses a session that reads and writes text in another character set.
func (h *here) find(ctx context.Context, s *Schedules, types bizTypes, name string) (*row, error) {
	if err := h.takesText(ctx); err != nil {
		return nil, err
	}
	found, err := h.named(ctx, types, name, plainly)
	if err != nil {
		return nil, err
	}
	if found == nil { // or in another database, or newer than the caller's snapshot
		others, err := s.named(ctx, types, name)
		if err != nil {
			return nil, err
		}
		found = others[name]
	}
	layout := s.tables.Layout()
	if found == nil || layout.DatabaseOf(found.Table) != layout.DatabaseOf(h.table) {
		return found, nil
	}
	return h.named(ctx, types, name, forUpdate)
}

// takesText refuses a session that reads and writes text in another character set, or takes empty texts for NULL.
func (h *here) takesText(ctx context.Context) error {
	var takes, gives, mode string
	err := h.sets(ctx, readTexts, nil, func(_ int, rows *sql.Rows) error { return rows.Scan(&takes, &gives, &mode) })
	switch {
	case err != nil:
		return err
	case takes != "utf8mb4" || gives != "utf8mb4":
		return client.Refuse(ErrInvalid, "the character set of this transaction's session is %s, for results %s: ApplyTx needs utf8mb4", takes, gives)
	case strings.Contains(mode, "EMPTY_STRING_IS_NULL"):
		return client.Refuse(ErrInvalid, "the sql_mode of this transaction's session has EMPTY_STRING_IS_NULL, which stores empty texts as NULL: ApplyTx needs it without")
	}
	return nil
}

// named reads the schedule of a name in the database of a caller's transaction; nil: there is none.
func (h *here) named(ctx context.Context, types bizTypes, name, lock string) (found *row, err error) {
	err = h.sets(ctx, strings.Replace(readNamed, "{names}", "?", 1)+lock, []any{name}, func(_ int, rows *sql.Rows) error {
		found, err = scanRow(rows)
		return err
	})
	if found != nil {
		found.BizType = types.name(found.number)
	}
	return found, explain(err)
}

// readTexts reads which character set a session takes text for, which one it gives, and what it takes texts for.
const readTexts = `SELECT /* tocsin schedule charset */
    @@character_set_client,
    COALESCE(@@character_set_results, @@character_set_client),
    @@sql_mode`
