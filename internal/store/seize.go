package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// seizable is how long rows must be overdue so that a later action_time shows that a row has changed. The clocks of the
// programs that write action times differ by far less.
const seizable = 1000 // ms

// farAhead is by how much a server's clock may be beyond the latest that it can show when a packet is sent, for the packet to claim anything.
// If it is further, this process stood still, the clock was set, or the packet was long under way. The claims that follow read the clock.
const farAhead = 1000 // ms

// seizure is a claim of known rows in one transaction that is sent as one packet, so that a process which is frozen or cut
// off in the middle of it holds no lock.
type seizure struct {
	*claiming
	groups   [][]duequeue.Entry // see alikeByTable
	latest   int64              // of the server's clock
	deadline int64
	sure     int64 // a row that has changed since it was read has a later action_time
}

// seize claims sorted entries of known rows as they were read. It returns those that have to be looked at, because they
// are not known, have changed, or are locked.
func (c *claiming) seize(ctx context.Context, entries []duequeue.Entry) (left []duequeue.Entry, err error) {
	if c.skip || c.Fence != nil || !c.knows(entries) {
		return entries, nil
	}
	z := &seizure{claiming: c, groups: c.alikeByTable(entries)}
	counts, err := z.send(ctx, entries)
	switch {
	case err == nil:
		left, err = z.count(ctx, counts[1:]) // after that of BEGIN
	case errors.Is(err, errNoClock):
		return entries, nil
	case mysql.ClassOf(err) == mysql.Other && !local(err): // in doubt
		left, err = z.afterRefusal(ctx, entries)
	}
	switch {
	case err == nil:
		return left, nil
	case local(err):
		c.skip = mysql.ClassOf(err) == mysql.Contended
		return entries, nil
	}
	return nil, c.store.wrap(err, "claim rows", c.server)
}

// errNoClock says that the server's clock was not read yet, as after a move to another address.
var errNoClock = errors.New("the server's clock is not known")

// knows reports whether all rows behind the entries are known, as they were when the entries were found.
func (c *claiming) knows(entries []duequeue.Entry) bool {
	for _, e := range entries {
		if row := c.Known[e.JobID]; row == nil || row.Action != e.Due || row.Status != tocsin.Pending {
			return false
		}
	}
	return true
}

// alike reports whether two rows have the same state; their action times may differ.
func alike(a, b *Row) bool {
	return a.Version == b.Version && a.Attempts == b.Attempts && a.Crashes == b.Crashes
}

// alikeByTable cuts sorted entries into those of each table whose rows are alike.
func (c *claiming) alikeByTable(entries []duequeue.Entry) (groups [][]duequeue.Entry) {
	for _, table := range entriesByTable(entries) {
		row := c.Known[table[0].JobID]
		if !slices.ContainsFunc(table, func(e duequeue.Entry) bool { return !alike(c.Known[e.JobID], row) }) {
			groups = append(groups, table)
			continue
		}
		first := len(groups)
		for _, e := range table {
			of := slices.IndexFunc(groups[first:], func(g []duequeue.Entry) bool { return alike(c.Known[g[0].JobID], c.Known[e.JobID]) })
			if of < 0 {
				of, groups = len(groups)-first, append(groups, nil)
			}
			groups[first+of] = append(groups[first+of], e)
		}
	}
	return groups
}

// send sends the packet over a connection of its own. The deadline counts from then on, however long all connections were in use. It gives the
// connection back: reading back needs one too, and many claims that hold one each would wait for each other.
func (z *seizure) send(ctx context.Context, entries []duequeue.Entry) (counts []int64, err error) {
	conn, err := z.store.conn(ctx, z.server, z.store.databasesIn(tablesOfEntries(entries)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	term := z.server.Term()
	latest := z.server.clock.read(term, bounds.latest)
	if latest == 0 {
		return nil, errNoClock
	}
	z.latest, z.deadline, z.sure = latest+farAhead, latest+roundUp(z.Hold), z.server.clock.read(term, bounds.now)/1000-seizable
	text, args := z.text()
	counts, err = z.store.write(ctx, conn, seize.name, text, args...)
	z.server.full.note(err)
	if err != nil {
		return nil, z.failed(ctx, conn, entries, err)
	}
	return counts, nil
}

// failed gives the error of a packet. Only one that a statement in it has, and no commit, shows that nothing is claimed.
func (z *seizure) failed(ctx context.Context, conn *sql.Conn, entries []duequeue.Entry, err error) error {
	mysql.Rollback(ctx, conn)
	switch mysql.ClassOf(err) {
	case mysql.Lost, mysql.Canceled, mysql.Other:
		return z.doubt(idsOfEntries(entries), err)
	}
	return err
}

func (z *seizure) doubt(ids []tocsin.JobID, err error) *InDoubt {
	return &InDoubt{Server: z.Claim.Server, By: z.By, Deadline: z.deadline, IDs: ids, Err: err}
}

// count books the groups whose rows were all claimed. If only some rows of a group were, it reads which. The
// others are left.
func (z *seizure) count(ctx context.Context, counts []int64) (left []duequeue.Entry, err error) {
	var parts []duequeue.Entry
	for i, group := range z.groups {
		switch counts[i] {
		case int64(len(group)):
			z.take(idsOfEntries(group))
		case 0:
			left = append(left, group...)
		default:
			parts = append(parts, group...)
		}
	}
	if len(parts) == 0 {
		return left, nil
	}
	others, err := z.unclaimed(ctx, parts)
	if err != nil {
		return nil, z.doubt(idsOfEntries(parts), err)
	}
	return sortEntries(append(left, others...)), nil
}

// afterRefusal goes on after the server refused something in the packet that may be a fault of one table: its others are
// looked at. Since it may have been the commit that failed, what stands claimed is read first, table by table.
func (z *seizure) afterRefusal(ctx context.Context, entries []duequeue.Entry) (left []duequeue.Entry, err error) {
	tables := entriesByTable(entries)
	for i, table := range tables {
		others, err := z.unclaimed(ctx, table)
		switch {
		case err == nil:
			left = append(left, others...)
		case local(err):
			z.errs = append(z.errs, err)
		default:
			return nil, z.doubt(idsOfEntries(slices.Concat(tables[i:]...)), err)
		}
	}
	return left, nil
}

// unclaimed reads which of the entries the packet claimed, books them and returns the others.
func (z *seizure) unclaimed(ctx context.Context, entries []duequeue.Entry) (left []duequeue.Entry, err error) {
	rows, err := z.store.ReadBack(ctx, z.doubt(idsOfEntries(entries), nil))
	if err != nil {
		return nil, err
	}
	z.taken = append(z.taken, rows...)
	claimed := func(e duequeue.Entry) bool {
		return slices.ContainsFunc(rows, func(r Row) bool { return r.JobID == e.JobID })
	}
	return slices.DeleteFunc(slices.Clone(entries), claimed), nil
}

// take books rows that were claimed as they are known.
func (z *seizure) take(ids []tocsin.JobID) {
	z.taken = slices.Grow(z.taken, len(ids))
	first := len(z.taken)
	for _, id := range ids {
		z.taken = append(z.taken, *z.Known[id])
	}
	z.mark(z.taken[first:], z.deadline)
}

// text is the transaction.
func (z *seizure) text() (b []byte, args []any) {
	b = append(b, "BEGIN;"...)
	for _, group := range z.groups {
		b, args = z.one(b, seize, group), append(args, z.By)
	}
	return append(b, "COMMIT"...), args
}

func (z *seizure) one(b []byte, st statement, group []duequeue.Entry) []byte {
	row := z.Known[group[0].JobID]
	return st.render(b, func(b []byte, slot string) []byte { // no map of slots: most claims pass here
		switch slot {
		case "table":
			return append(b, z.store.names[group[0].JobID.Table()]...)
		case "deadline":
			return appendTime(b, z.deadline)
		case "latest":
			return appendTime(b, z.latest)
		case "version":
			return strconv.AppendUint(b, uint64(row.Version), 10)
		case "attempts":
			return appendInt(b, row.Attempts)
		case "crashes":
			return appendInt(b, row.Crashes)
		case "due":
			return z.due(b, group)
		}
		return appendList(b, idsOfEntries(group))
	})
}

// due is the condition that the rows of a group are due as they were read.
func (z *seizure) due(b []byte, group []duequeue.Entry) []byte {
	last := slices.MaxFunc(group, func(x, y duequeue.Entry) int { return cmp.Compare(x.Due, y.Due) }).Due
	if last > z.sure {
		return seizePairs.render(b, func(b []byte, _ string) []byte { return appendPairs(b, group) })
	}
	return appendTime(append(b, "action_time <= "...), last)
}

// mark makes the rows the claimer's.
func (c *claiming) mark(rows []Row, deadline int64) {
	for i := range rows {
		rows[i].Status, rows[i].ClaimedBy = tocsin.Claimed, c.By
		rows[i].Action, rows[i].ActionTime = deadline, time.UnixMilli(deadline).UTC()
	}
}

// InDoubt is the error of a Claim whose commit got no answer: either all of the rows
// are claimed, or none.
type InDoubt struct {
	Server   int
	By       string
	Deadline int64 // of the claim, Unix ms
	IDs      []tocsin.JobID
	Err      error // of the commit
}

// Error returns how many rows are in doubt, and why.
func (d *InDoubt) Error() string {
	return fmt.Sprintf("claim of %d rows in doubt: %v", len(d.IDs), d.Err)
}

// Unwrap returns the error of the commit.
func (d *InDoubt) Unwrap() error { return d.Err }

// ReadBack returns the rows in doubt that are claimed, as Claim would have returned
// them. A row that is missing was not claimed, or its claim has ended. If the
// transaction of the claim is still open on the server, ReadBack waits a second for
// it. After an error nothing is known, and ReadBack has to be called again.
func (s *Store) ReadBack(ctx context.Context, d *InDoubt) ([]Row, error) {
	sv := s.servers[d.Server]
	parts := byTable(sortIDs(d.IDs))
	var text []byte
	var args []any
	for _, part := range parts {
		text, args = append(s.heldText(text, claimed, part, d.Deadline), ';'), append(args, d.By)
	}
	rows := make([]Row, 0, len(d.IDs))
	err := s.readTables(ctx, sv, tablesOf(parts), claimed.name, text, func(_ int, r *sql.Rows) error {
		row, err := s.scanRow(r)
		rows = append(rows, row)
		return err
	}, args...)
	if err != nil {
		return nil, s.wrap(err, "read a claim back in", sv, tablesOf(parts)...)
	}
	return rows, nil
}
