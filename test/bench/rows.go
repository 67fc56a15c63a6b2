package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
)

const (
	workers    = 8       // connections of the raw bound
	packetRows = 500     // rows of one statement, or of one transaction over many tables
	sliceRows  = 200_000 // rows that are numbered before they are written
)

// rows numbers the rows of a run: each biz_id once, each job_id in the table that
// its biz_id asks for, growing within it. For one goroutine.
type rows struct {
	layout tocsin.Layout
	biz    uint64
	base   int64   // milliseconds since tocsin.Epoch at which the ids begin, some hours ago
	made   []int64 // by table
}

// The places of table and sequence in a job_id; see tocsin.JobID.
const (
	seqBits   = 9
	tableBits = 13
)

func newRows(l tocsin.Layout) *rows {
	return &rows{
		layout: l, made: make([]int64, l.Total()),
		base: time.Since(tocsin.Epoch).Milliseconds() - (12 * time.Hour).Milliseconds(),
	}
}

// nextBiz gives a biz_id that no row of the run has.
func (r *rows) nextBiz() uint64 {
	r.biz++
	return r.biz
}

// row is what tells one from another.
type row struct {
	id    tocsin.JobID
	bizID uint64
}

// next makes n rows, by table.
func (r *rows) next(n int) [][]row {
	tables := make([][]row, r.layout.Total())
	for range n {
		biz := r.nextBiz()
		table := r.layout.TableOf(biz)
		tick := r.made[table]
		r.made[table]++
		id := tocsin.JobID(r.base+tick>>seqBits)<<(tableBits+seqBits) | tocsin.JobID(table)<<seqBits | tocsin.JobID(tick&(1<<seqBits-1))
		tables[table] = append(tables[table], row{id, biz})
	}
	return tables
}

// packet is what goes to one server in one transaction.
type packet struct {
	server int
	parts  []part
	rows   int
}

// part is the rows of one table in a packet.
type part struct {
	table int
	rows  []row
}

// packets cuts the rows of each table into packets of at most limit rows.
func (s *site) packets(tables [][]row, limit int) []packet {
	open := make([]packet, len(s.pools))
	var full []packet
	for _, all := range tables {
		for len(all) > 0 {
			table := all[0].id.Table()
			server := s.store.ServerOf(table)
			p := &open[server]
			n := min(len(all), limit-p.rows)
			p.server, p.rows, p.parts = server, p.rows+n, append(p.parts, part{table, all[:n]})
			if all = all[n:]; p.rows == limit {
				full, open[server] = append(full, *p), packet{}
			}
		}
	}
	return append(full, slices.DeleteFunc(open, func(p packet) bool { return p.rows == 0 })...)
}

// fill stores n rows, each due so long from the moment at which it is stored, as
// due says for it; less than 0 is overdue. All are due at the time it returns. Due
// must not depend on the table: in the order of their action times the rows of
// all tables are mixed, as those of many users are.
func (s *site) fill(ctx context.Context, n int, due func() time.Duration) (all time.Time, err error) {
	var mu sync.Mutex
	done := 0
	for from := 0; from < n; from += sliceRows {
		packets := s.packets(s.rows.next(min(sliceRows, n-from)), packetRows)
		err := each(ctx, packets, func(ctx context.Context, p packet) error {
			var furthest time.Duration
			err := s.insert(ctx, p, func() time.Duration {
				ahead := due()
				furthest = max(furthest, ahead)
				return ahead
			})
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if latest := time.Now().Add(furthest); latest.After(all) {
				all = latest
			}
			done += p.rows
			s.opts.Progress("fill", done, n)
			return nil
		})
		if err != nil {
			return all, fmt.Errorf("fill the tables: %w", err)
		}
	}
	return all.Add(time.Millisecond), nil
}

// insert stores one packet.
func (s *site) insert(ctx context.Context, p packet, due func() time.Duration) error {
	b := make([]byte, 0, p.rows*280+len(p.parts)*200)
	for _, part := range p.parts {
		b = s.appendFill(b, part, due)
		b = append(b, ';')
	}
	return s.exec(ctx, p.server, transaction(b, len(p.parts)))
}

// appendFill appends the statement for the rows of one table.
func (s *site) appendFill(b []byte, p part, due func() time.Duration) []byte {
	b = append(b, s.text(fillSQL, p.table)...)
	for i, r := range p.rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "(%d,UTC_TIMESTAMP(3),UTC_TIMESTAMP(3),%d,%d,0,", r.id, r.bizID, s.fills)
		b = fmt.Appendf(b, "UTC_TIMESTAMP(3)+INTERVAL %[1]d MICROSECOND,UTC_TIMESTAMP(3)+INTERVAL %[1]d MICROSECOND,'%[2]s')", due().Microseconds(), payload)
	}
	return b
}

// at is the same due time for every row.
func at(due time.Duration) func() time.Duration {
	return func() time.Duration { return due }
}

// transaction makes one of several statements; a single one is its own.
func transaction(b []byte, statements int) string {
	if statements == 1 {
		return string(b)
	}
	return "BEGIN;" + string(b) + "COMMIT"
}

// exec sends a packet that returns no rows.
func (s *site) exec(ctx context.Context, server int, text string) error {
	_, err := s.pools[server].DB.ExecContext(ctx, text)
	return err
}

// text fills the names of a table and its database into a statement.
func (s *site) text(statement string, table int) string {
	l := s.config.Layout
	statement = strings.Replace(statement, "{table}", l.Table(table), 1)
	return strings.Replace(statement, "{database}", l.Database(l.DatabaseOf(table)), 1)
}

// each has so many workers as the raw bound has connections do all of the work;
// the first error ends it.
func each[T any](ctx context.Context, work []T, do func(context.Context, T) error) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range workers {
		g.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(work) {
					return nil
				}
				if err := do(ctx, work[i]); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

// paced calls do for 0 to n-1, rate times a second, on the workers of each.
func paced(ctx context.Context, n int, rate float64, do func(context.Context, int) error) error {
	begin := time.Now()
	calls := make([]int, n)
	for i := range calls {
		calls[i] = i
	}
	return each(ctx, calls, func(ctx context.Context, i int) error {
		if err := loop.WaitUntil(ctx, begin.Add(time.Duration(float64(i)/rate*float64(time.Second)))); err != nil {
			return err
		}
		return do(ctx, i)
	})
}

// appendIDs appends a list of ids and the closing parenthesis.
func appendIDs(b []byte, ids []uint64) []byte {
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, id, 10)
	}
	return append(b, ')')
}
