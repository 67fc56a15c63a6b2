package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// seize claims sorted entries of known rows in one transaction that is sent as one packet, so that a process which is
// frozen or cut off in the middle of it holds no lock. It reports false if that can't be done, or if a row is locked: then
// the rows have to be claimed apart. Rows that have changed since they were read are not claimed.
func (c *claiming) seize(ctx context.Context, entries []duequeue.Entry) (bool, error) {
	latest := c.server.clock.latest(c.server.Term())
	if c.Fence != nil || latest == 0 || !c.knows(entries) {
		return false, nil
	}
	deadline := latest + roundUp(c.Hold)
	hits, err := c.seizeAll(ctx, entries, deadline)
	switch {
	case err == nil:
		return true, c.keep(ctx, hits, deadline)
	case local(err):
		return false, nil
	}
	return false, c.store.wrap(err, "claim rows", c.server)
}

// knows reports whether all rows behind the entries are known, as they were when the entries were found.
func (c *claiming) knows(entries []duequeue.Entry) bool {
	for _, e := range entries {
		if row := c.Known[e.JobID]; row == nil || row.Action != e.Due || row.Status != tocsin.Pending {
			return false
		}
	}
	return true
}

// hit is a row that a seizure claimed.
type hit struct {
	id                tocsin.JobID
	version           uint32
	attempts, crashes int
}

// is reports whether the row was claimed as it is known. A row that was put off to the very millisecond it had before is
// claimed too, and has another version.
func (h hit) is(row *Row) bool {
	return h.version == row.Version && h.attempts == row.Attempts && h.crashes == row.Crashes
}

// seizeAll sends the packet. Once it is sent, only an error of a statement in it shows that nothing is claimed.
func (c *claiming) seizeAll(ctx context.Context, entries []duequeue.Entry, deadline int64) (hits []hit, err error) {
	conn, err := c.store.conn(ctx, c.server, c.store.databasesIn(tablesOfEntries(entries)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	text, args := c.seizeText(entries, deadline)
	err = c.store.read(ctx, conn, seize.name, text, func(_ int, rows *sql.Rows) error {
		var h hit
		err := rows.Scan(&h.id, &h.version, &h.attempts, &h.crashes)
		hits = append(hits, h)
		return err
	}, args...)
	c.server.full.note(err)
	switch class := mysql.ClassOf(err); class {
	case mysql.OK:
		return hits, nil
	case mysql.Lost, mysql.Canceled:
		return nil, &InDoubt{Server: c.Claim.Server, By: c.By, Deadline: deadline, IDs: idsOfEntries(entries), Err: err}
	}
	mysql.Rollback(ctx, conn)
	return nil, err
}

// seizeText is the transaction: the claims, and which rows they hit.
func (c *claiming) seizeText(entries []duequeue.Entry, deadline int64) (b []byte, args []any) {
	groups := entriesByTable(entries)
	b = append(b, "BEGIN;"...)
	for _, group := range groups {
		b, args = c.seizeOne(b, seize, group, deadline), append(args, c.By)
	}
	for i, group := range groups {
		if i%maxTables > 0 {
			b = append(b, unionAll...)
		} else if i > 0 {
			b = append(b, ';')
		}
		b, args = c.seizeOne(b, seized, group, deadline), append(args, c.By)
	}
	return append(b, ";COMMIT"...), args
}

func (c *claiming) seizeOne(b []byte, st statement, group []duequeue.Entry, deadline int64) []byte {
	return st.render(b, func(b []byte, slot string) []byte {
		switch slot {
		case "table":
			return append(b, c.store.names[group[0].JobID.Table()]...)
		case "deadline":
			return appendTime(b, deadline)
		case "pairs":
			return appendPairs(b, group)
		}
		return appendList(b, idsOfEntries(group))
	})
}

// keep books the rows that were claimed. Those that are not as they are known are read.
func (c *claiming) keep(ctx context.Context, hits []hit, deadline int64) error {
	rows := make([]Row, 0, len(hits))
	var others []tocsin.JobID
	for _, h := range hits {
		if known := c.Known[h.id]; h.is(known) {
			rows = append(rows, *known)
		} else {
			others = append(others, h.id)
		}
	}
	c.mark(rows, deadline)
	c.taken = append(c.taken, rows...)
	if len(others) == 0 {
		return nil
	}
	doubt := &InDoubt{Server: c.Claim.Server, By: c.By, Deadline: deadline, IDs: others}
	rows, err := c.store.ReadBack(ctx, doubt)
	if err != nil {
		doubt.Err = err
		return c.store.wrap(doubt, "claim rows", c.server)
	}
	c.taken = append(c.taken, rows...)
	return nil
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
