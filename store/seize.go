package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
)

// seizable is how long a row must be overdue to be claimed as it was read. It is
// far more than the clocks of those who write action times differ by.
const seizable = 1000 // ms

// seize claims sorted entries of known rows in one transaction that reads none of
// them again, all or none. It reports false where that can't be done, or one of
// them has changed or is locked: then they have to be looked at.
func (c *claiming) seize(ctx context.Context, entries []duequeue.Entry) (bool, error) {
	rows, last := c.known(entries)
	if rows == nil {
		return false, nil
	}
	err := c.commit(ctx, entries, func(conn *sql.Conn) ([]Row, error) {
		now, err := c.store.clockOf(ctx, conn)
		if err != nil {
			return nil, err
		}
		if last > now-seizable {
			return nil, errUneven
		}
		return rows, c.seizeAll(ctx, conn, rows, last, now+roundUp(c.Hold))
	})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, errUneven) || local(err):
		return false, nil
	}
	return false, c.store.wrap(err, "claim rows", c.server)
}

// known gives copies of the rows behind the entries and the last of their action
// times; nil where one of them may not be seized.
func (c *claiming) known(entries []duequeue.Entry) (rows []Row, last int64) {
	if c.Known == nil || c.Fence != nil {
		return nil, 0
	}
	rows = make([]Row, 0, len(entries))
	for _, e := range entries {
		row := c.Known[e.JobID]
		if row == nil || row.Action != e.Due || row.Status != tocsin.Pending {
			return nil, 0
		}
		rows = append(rows, *row)
		last = max(last, e.Due)
	}
	return rows, last
}

func (c *claiming) seizeAll(ctx context.Context, conn *sql.Conn, rows []Row, last, deadline int64) error {
	parts := byTable(c.mark(rows, deadline))
	var text []byte
	var args []any
	for _, part := range parts {
		text, args = c.store.seizeText(text, part, last, deadline), append(args, c.By)
	}
	counts, err := c.store.write(ctx, conn, seize.name, text, args...)
	if err == nil && sum(counts) != int64(len(rows)) {
		err = errUneven
	}
	return err
}

func (s *Store) seizeText(b []byte, part idsOf, last, deadline int64) []byte {
	fill := s.fill(part)
	return seize.render(b, func(b []byte, slot string) []byte {
		switch slot {
		case "deadline":
			return appendTime(b, deadline)
		case "until":
			return appendTime(b, last)
		}
		return fill(b, slot)
	})
}

// mark makes the rows the claimer's and gives their ids, sorted as they are.
func (c *claiming) mark(rows []Row, deadline int64) []tocsin.JobID {
	ids := make([]tocsin.JobID, len(rows))
	for i := range rows {
		ids[i] = rows[i].JobID
		rows[i].Status, rows[i].ClaimedBy = tocsin.Claimed, c.By
		rows[i].Action, rows[i].ActionTime = deadline, time.UnixMilli(deadline).UTC()
	}
	return ids
}

// clockOf reads the server's clock within a transaction.
func (s *Store) clockOf(ctx context.Context, conn *sql.Conn) (milli int64, err error) {
	err = s.read(ctx, conn, now.name, now.render(nil, nil), func(_ int, rows *sql.Rows) error {
		milli, err = scanClock(rows)
		return err
	})
	return milli, err
}
