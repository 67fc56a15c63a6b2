package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
)

// maxUnion bounds the tables of one statement of the raw bound, as in the store.
const maxUnion = 64

// rawDrain is the raw bound of a drain: the due rows of all tables read in full
// by the due index and set to done by id lists, and nothing else.
type rawDrain struct {
	site  *site
	claim bool // lock and claim each row before it is set to done, as rows long overdue must be
	want  int
	done  atomic.Int64
}

// drainRaw settles the n due rows that the tables hold and says what it cost.
func (s *site) drainRaw(ctx context.Context, n int) (Usage, error) {
	d := &rawDrain{site: s, claim: s.claims(), want: n}
	used, err := s.measured(ctx, func() error { return each(ctx, s.unions(n), d.drain) })
	if err != nil {
		return Usage{}, fmt.Errorf("raw drain: %w", err)
	}
	if got := int(d.done.Load()); got != n {
		return Usage{}, fmt.Errorf("raw drain: settled %d of %d rows", got, n)
	}
	return used, nil
}

// claims reports whether the nodes claim the rows before they deliver them.
func (s *site) claims() bool {
	return s.opts.Overdue > claimedAfter || s.opts.Ownership == node.ByRows || s.opts.pull() != nil
}

// claimedAfter is a little less than what dispatchers claim after: the default
// grace of a sweeper without deliverLimit and a margin of 5 s.
const claimedAfter = 40 * time.Second

// unions groups the tables of each server so that a page of each group's n/T
// rows a table comes to packetRows.
func (s *site) unions(n int) [][]int {
	most := min(max(packetRows*s.config.Layout.Total()/max(n, 1), 1), maxUnion)
	var groups [][]int
	for server := range s.pools {
		tables := s.store.TablesOf(server)
		for len(tables) > 0 {
			k := min(most, len(tables))
			groups, tables = append(groups, tables[:k]), tables[k:]
		}
	}
	return groups
}

// drain settles page after page of the tables, until none comes back full.
func (d *rawDrain) drain(ctx context.Context, tables []int) error {
	pool := d.site.pools[d.site.store.ServerOf(tables[0])]
	conn, err := pool.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	query := d.query(tables)
	for full := true; full; {
		var ids map[int][]uint64
		if ids, full, err = d.page(ctx, conn, query); err != nil {
			return err
		}
		if err := d.settle(ctx, conn, tables, ids); err != nil {
			return err
		}
		d.site.opts.Progress("raw", int(d.done.Load()), d.want)
	}
	return nil
}

// query reads a page of each table: joined, or, to be locked, one by one.
func (d *rawDrain) query(tables []int) string {
	b := []byte(nil)
	for i, table := range tables {
		text := d.site.text(dueSQL, table)
		switch {
		case d.claim:
			b = append(append(b, text...), forUpdate+";"...)
		case i > 0:
			b = append(append(b, " UNION ALL ("...), text+")"...)
		default:
			b = append(b, "("+text+")"...)
		}
	}
	if d.claim {
		return "BEGIN;" + string(b)
	}
	return string(b)
}

// page reads the rows and keeps their ids, by table.
func (d *rawDrain) page(ctx context.Context, conn *sql.Conn, query string) (ids map[int][]uint64, full bool, err error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	ids = make(map[int][]uint64)
	var r fullRow
	for more := true; more; more = rows.NextResultSet() {
		for rows.Next() {
			if err := r.scan(rows); err != nil {
				return nil, false, err
			}
			table := tocsin.JobID(r.id).Table()
			ids[table] = append(ids[table], r.id)
			full = full || len(ids[table]) == packetRows
		}
	}
	return ids, full, rows.Err()
}

// settle sets the rows to done in one transaction, after another that claims
// them if that is asked.
func (d *rawDrain) settle(ctx context.Context, conn *sql.Conn, tables []int, ids map[int][]uint64) error {
	write := func(statement string) (b []byte, n int) {
		for _, table := range tables {
			if len(ids[table]) > 0 {
				b = appendIDs(append(b, d.site.text(statement, table)...), ids[table])
				b = append(b, ';')
				n++
			}
		}
		return b, n
	}
	if d.claim {
		claim, _ := write(claimSQL)
		if _, err := conn.ExecContext(ctx, string(claim)+"COMMIT"); err != nil {
			return err
		}
	}
	done, n := write(doneSQL)
	if n == 0 {
		return nil
	}
	if _, err := conn.ExecContext(ctx, transaction(done, n)); err != nil {
		return err
	}
	for _, of := range ids {
		d.done.Add(int64(len(of)))
	}
	return nil
}

// fullRow is a whole row, scanned as cheaply as database/sql does it.
type fullRow struct {
	id                             uint64
	created, modified, action, due time.Time
	rest                           [10]sql.RawBytes
}

func (r *fullRow) scan(rows *sql.Rows) error {
	return rows.Scan(&r.id, &r.created, &r.modified, &r.action, &r.due,
		&r.rest[0], &r.rest[1], &r.rest[2], &r.rest[3], &r.rest[4],
		&r.rest[5], &r.rest[6], &r.rest[7], &r.rest[8], &r.rest[9])
}
