package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// errSlow ends a Claim whose first rows have waited too long for the others.
var errSlow = fmt.Errorf("left out, as the rows claimed so far run out while others are locked: %w", context.DeadlineExceeded)

// Claim claims rows until the server's now + c.Hold. It takes rows that are still
// pending, due, unchanged in action_time since they were read and, with a fence, in
// tables that the claimer took last. It returns them as they are now: Status Claimed,
// Action the deadline. Rows that it does not return are claimed by others, or not
// due.
//
// Claim waits for locks of other transactions once, for a second, and not at all with NoWait.
// Then it leaves out the rows that they hold, with an error of the class mysql.Contended. A
// locked table costs a second of its own. Rows returned with an error are claimed all the same.
// If a commit got no answer, the error is *InDoubt, which ReadBack resolves.
func (s *Store) Claim(ctx context.Context, c Claim) ([]Row, error) {
	for _, e := range c.Rows {
		if err := s.refuse(c.Server, e.JobID.Table()); err != nil {
			return nil, fmt.Errorf("claim job_id %s on %s: %w", e.JobID, s.servers[c.Server].Name, err)
		}
	}
	run := claiming{skip: c.NoWait || c.PerKey > 0, store: s, server: s.servers[c.Server], Claim: c, start: time.Now(), taken: make([]Row, 0, len(c.Rows))}
	for chunk := range slices.Chunk(sortEntries(c.Rows), maxIDs) {
		if err := run.chunk(ctx, chunk); err != nil {
			run.errs = append(run.errs, err)
			break
		}
	}
	return run.taken, errors.Join(run.errs...)
}

// claiming is one call of Claim under way.
type claiming struct {
	Claim
	store  *Store
	server *server
	start  time.Time
	taken  []Row
	errs   []error // of rows that could not be had
	skip   bool    // leave out rows that are locked: the wait for one is over
}

// chunk claims at most maxIDs sorted entries: in one transaction, then without those that are
// locked, and if that fails table by table, and row by row in a table that has a fault.
func (c *claiming) chunk(ctx context.Context, entries []duequeue.Entry) error {
	entries, err := c.seize(ctx, entries)
	if err != nil || len(entries) == 0 {
		return err
	}
	once := func(groups [][]duequeue.Entry) error {
		err := c.once(ctx, groups)
		if c.skip || mysql.ClassOf(err) != mysql.Contended {
			return err
		}
		c.skip = true
		return c.once(ctx, groups)
	}
	return apart(entriesByTable(entries), once, func(table []duequeue.Entry, err error) {
		if len(table) == 1 || mysql.ClassOf(err) == mysql.Contended {
			c.fail(table, err)
			return
		}
		c.errs = append(c.errs, each(slices.Collect(slices.Chunk(table, 1)), once, c.fail))
	})
}

func (c *claiming) fail(row []duequeue.Entry, err error) {
	c.errs = append(c.errs, c.store.wrap(fmt.Errorf("job_id %s: %w", row[0].JobID, err), "claim in", c.server, row[0].JobID.Table()))
}

// once claims in one transaction; each group is of one table.
func (c *claiming) once(ctx context.Context, groups [][]duequeue.Entry) error {
	if len(c.taken) > 0 && time.Since(c.start) > c.Hold/4 {
		return c.store.wrap(errSlow, "claim rows", c.server)
	}
	entries := slices.Concat(groups...)
	var missed []duequeue.Entry
	err := c.commit(ctx, entries, func(conn *sql.Conn) ([]Row, error) {
		locked, err := c.lock(ctx, conn, groups)
		if err != nil {
			return nil, err
		}
		if c.skip && c.PerKey == 0 {
			missed = locked.missed(entries)
		}
		rows := locked.allowed(c.Fence)
		return rows, c.take(ctx, conn, rows, locked.now+roundUp(c.Hold))
	})
	if err == nil && len(missed) > 0 {
		c.tellSkipped(ctx, missed)
	}
	return err
}

// tellSkipped adds an error for those of the missed rows that are still as they were read:
// another transaction holds them. The others have changed.
func (c *claiming) tellSkipped(ctx context.Context, missed []duequeue.Entry) {
	var text []byte
	for _, group := range entriesByTable(missed) {
		text = append(c.entriesText(text, stillPending, group), ';')
	}
	var locked []tocsin.JobID
	err := c.store.readTables(ctx, c.server, tablesOfEntries(missed), stillPending.name, text, func(_ int, rows *sql.Rows) error {
		locked = append(locked, 0)
		return rows.Scan(&locked[len(locked)-1])
	})
	if err == nil && len(locked) > 0 {
		err = heldErr(locked)
	}
	if err != nil {
		c.errs = append(c.errs, c.store.wrap(err, "claim rows", c.server))
	}
}

// commit runs fn, which claims rows of the entries, in a transaction. Only a commit
// without an answer leaves it in doubt whether they are claimed.
func (c *claiming) commit(ctx context.Context, entries []duequeue.Entry, fn func(*sql.Conn) ([]Row, error)) error {
	var rows []Row
	sent := false
	err := c.store.transact(ctx, c.server, tablesOfEntries(entries), func(conn *sql.Conn) (err error) {
		rows, err = fn(conn)
		sent = err == nil
		return err
	})
	switch {
	case err == nil:
		c.taken = append(c.taken, rows...)
		return nil
	case sent && len(rows) > 0 && mysql.ClassOf(err) != mysql.Contended:
		doubt := &InDoubt{Server: c.Claim.Server, By: c.By, Deadline: rows[0].Action, IDs: idsOfRows(rows), Err: err}
		return c.store.wrap(doubt, "claim rows", c.server)
	}
	return err
}

func idsOfRows(rows []Row) []tocsin.JobID {
	ids := make([]tocsin.JobID, len(rows))
	for i := range rows {
		ids[i] = rows[i].JobID
	}
	return ids
}

// lockedRows is what one round trip locked.
type lockedRows struct {
	rows   []Row
	owners map[int]string // of the tables; empty without a fence
	now    int64          // the server's clock, all locks held
}

// missed returns the entries whose rows were not locked.
func (l lockedRows) missed(entries []duequeue.Entry) []duequeue.Entry {
	if len(l.rows) == len(entries) {
		return nil
	}
	got := make(map[tocsin.JobID]bool, len(l.rows))
	for _, r := range l.rows {
		got[r.JobID] = true
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e duequeue.Entry) bool { return got[e.JobID] })
}

// allowed gives the rows that the fence lets through.
func (l lockedRows) allowed(fence *Fence) []Row {
	if fence == nil {
		return l.rows
	}
	return slices.DeleteFunc(l.rows, func(r Row) bool { return l.owners[r.JobID.Table()] != fence.Node })
}

// lock reads the owners of the tables, locks the claimable rows and reads the
// clock, in one round trip.
func (c *claiming) lock(ctx context.Context, conn *sql.Conn, groups [][]duequeue.Entry) (lockedRows, error) {
	text, args := c.fenceText(groups)
	fences := len(args)
	for _, group := range groups {
		text = append(c.entriesText(text, claimable, group), ';')
	}
	text = now.render(text, nil)
	locked, taken := lockedRows{owners: make(map[int]string)}, c.server.asking()
	err := c.store.read(ctx, conn, claimable.name, text, func(set int, rows *sql.Rows) (err error) {
		switch {
		case set < fences:
			owner, err := scanOwner(rows)
			locked.owners[owner.table] = owner.node
			return err
		case set < fences+len(groups):
			locked.rows = append(locked.rows, Row{})
			return c.store.scan(&locked.rows[len(locked.rows)-1], rows)
		}
		taken.micro, err = scanMicro(rows)
		return err
	}, args...)
	if err != nil {
		return locked, err
	}
	taken.answered, locked.now = time.Now(), taken.micro/1000
	if taken.answered.Sub(taken.asked) < 100*time.Millisecond { // what waited for a lock says little of the clock
		c.store.note(c.server, taken)
	}
	return locked, nil
}

// fenceText is a statement for each database, with an argument each; nothing
// without a fence.
func (c *claiming) fenceText(groups [][]duequeue.Entry) (b []byte, args []any) {
	if c.Fence == nil {
		return nil, nil
	}
	tables := make([]int, len(groups))
	for i, g := range groups {
		tables[i] = g[0].JobID.Table()
	}
	for _, part := range c.store.byDatabase(tables) {
		b = append(fence.render(b, c.store.ofDatabase(part.database, slots{"tables": part.tables})), ';')
		args = append(args, c.Fence.Group)
	}
	return b, args
}

// entriesText renders a statement about entries of one table.
func (c *claiming) entriesText(b []byte, st statement, group []duequeue.Entry) []byte {
	table := group[0].JobID.Table()
	in := slots{"ids": idsOfEntries(group), "pairs": appendPairs(nil, group), "turn": "", "skip": ""}
	if c.PerKey > 0 {
		in["turn"] = itsTurn.render([]byte{' '}, c.store.ofTable(table, slots{"per_key": c.PerKey}))
	}
	if c.skip {
		in["skip"] = " SKIP LOCKED"
	}
	return st.render(b, c.store.ofTable(table, in))
}

// take makes locked rows the claimer's, in the tables and in rows.
func (c *claiming) take(ctx context.Context, conn *sql.Conn, rows []Row, deadline int64) error {
	if len(rows) == 0 {
		return nil
	}
	c.mark(rows, deadline)
	ids := idsOfRows(rows)
	slices.SortFunc(ids, compareIDs)
	text, args := []byte(nil), []any(nil)
	for _, part := range byTable(ids) {
		text = c.store.heldText(text, claim, part, deadline)
		args = append(args, c.By)
	}
	counts, err := c.store.write(ctx, conn, claim.name, text, args...)
	if err == nil && sum(counts) != int64(len(rows)) {
		return fmt.Errorf("claimed %d of %d locked rows", sum(counts), len(rows))
	}
	return err
}

// heldText renders claim or claimed for ids of one table.
func (s *Store) heldText(b []byte, st statement, part idsOf, deadline int64) []byte {
	return st.render(b, s.ofTable(part.table, slots{"ids": part.ids, "deadline": instant(deadline)}))
}

// appendPairs appends (job_id, action_time) of each entry.
func appendPairs(b []byte, entries []duequeue.Entry) []byte {
	for i, e := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '(')
		b = append(b, e.JobID.String()...)
		b = append(b, ',')
		b = append(appendTime(b, e.Due), ')')
	}
	return b
}

// sortEntries gives the entries in the order of compareIDs, each id once.
func sortEntries(entries []duequeue.Entry) []duequeue.Entry {
	sorted := slices.Clone(entries)
	slices.SortFunc(sorted, func(a, b duequeue.Entry) int {
		return cmp.Or(compareIDs(a.JobID, b.JobID), cmp.Compare(a.Due, b.Due))
	})
	return slices.CompactFunc(sorted, func(a, b duequeue.Entry) bool { return a.JobID == b.JobID })
}

// entriesByTable cuts sorted entries into those of each table.
func entriesByTable(entries []duequeue.Entry) [][]duequeue.Entry {
	var groups [][]duequeue.Entry
	for _, part := range byTable(idsOfEntries(entries)) {
		groups = append(groups, entries[:len(part.ids)])
		entries = entries[len(part.ids):]
	}
	return groups
}

func tablesOfEntries(entries []duequeue.Entry) []int {
	tables := make([]int, len(entries))
	for i, e := range entries {
		tables[i] = e.JobID.Table()
	}
	return tables
}

func idsOfEntries(entries []duequeue.Entry) []tocsin.JobID {
	ids := make([]tocsin.JobID, len(entries))
	for i, e := range entries {
		ids[i] = e.JobID
	}
	return ids
}
