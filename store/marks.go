package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// markedSince is the schema version that brought marks.
const markedSince = 2

// marksIn reads what one database knows of the marks of others. Primary key, one row a
// database.
var marksIn = prepare(`
SELECT /* tocsin marks */
    database_no,
    identity,
    mark
FROM {database}.mark`)

// raise raises the mark of one database, which grows by {step} ms at least. Primary key.
// Zero rows: another process was faster, or the database is not in use.
var raise = prepare(`
UPDATE /* tocsin raise */ {database}.layout
SET mark = GREATEST(mark + {step}, FLOOR(UNIX_TIMESTAMP(NOW(3)) * 1000))
WHERE id = 1
  AND mark = {mark}
  AND state = 'active'`)

// keep stores the marks of the other databases in one of them. {rows} are (database, identity,
// mark, time). The columns change in the order of the list, so identity comes after mark.
var keep = prepare(`
INSERT /* tocsin keep */ INTO {database}.mark
    (database_no, identity, mark, gmt_modified)
VALUES {rows}
ON DUPLICATE KEY UPDATE
    mark         = IF(identity = VALUES(identity), GREATEST(VALUES(mark), mark), VALUES(mark)),
    identity     = VALUES(identity),
    gmt_modified = VALUES(gmt_modified)`)

var keepRow = prepare(`({database_no}, ?, {mark}, UTC_TIMESTAMP(3))`)

// hold takes a database out of use that was found to be an older copy. Its arguments are
// the cluster and the identity. Primary key. Zero rows: somebody has decided meanwhile.
var hold = prepare(`
UPDATE /* tocsin hold */ {database}.layout
SET state = 'held'
WHERE id = 1
  AND mark = {mark}
  AND state = 'active'
  AND cluster_id = ?
  AND identity = ?`)

// hasMarks reports whether a database has marks, and an identity to tell them from those
// of another cluster. A retired one has no tables of these names.
func hasMarks(row layoutrow.Row) bool {
	return row.Version >= markedSince && row.Identity != "" && row.State != layoutrow.Retired
}

// noteMarked keeps which databases have marks.
func (sv *server) noteMarked(rows map[int]layoutrow.Row) {
	var marked []int
	for _, database := range sv.Databases {
		if row, ok := rows[database]; ok && hasMarks(row) {
			marked = append(marked, database)
		}
	}
	sv.marked.Store(&marked)
}

// recall reads what the databases of a server know of the marks of others. A database that
// can't be read knows nothing.
func (s *Store) recall(ctx context.Context, sv *server) {
	marked := sv.marked.Load()
	if marked == nil {
		return
	}
	text := func(b []byte, database int) []byte {
		return marksIn.render(b, func(b []byte, slot string) []byte { return s.fillDatabase(b, slot, database) })
	}
	_, _, _ = eachDatabase(ctx, s.over(sv.DB), marksIn.name, *marked, text, func(rows *sql.Rows) (struct{}, error) {
		var database int
		var identity string
		var mark int64
		err := rows.Scan(&database, &identity, &mark)
		s.marks.Note(identity, database, mark)
		return struct{}{}, err
	})
}

// Marks returns the highest marks known of the cluster's databases, by number.
func (s *Store) Marks() map[int]int64 { return s.marks.Of(s.Identity()) }

// Remember adds marks that were kept elsewhere for databases with an identity. Databases
// that prove to be older copies are refused when it returns, if their servers answer.
func (s *Store) Remember(ctx context.Context, identity string, marks map[int]int64) {
	for database, mark := range marks {
		s.marks.Note(identity, database, mark)
	}
	if len(marks) > 0 {
		s.judgeAgain(ctx)
	}
}

// beaten are the marks of a server's databases at the last Beat.
type beaten struct {
	mu   sync.Mutex
	last map[int]int64
}

// swap stores the marks and returns the former ones.
func (b *beaten) swap(now map[int]int64) (before map[int]int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, b.last = b.last, now
	return before
}

// Beat raises the marks of a server's databases, unless another process has done so
// since the last Beat, or lately by the server's clock. It stores the known marks of the
// others in the databases whose marks it raised, and holds older copies. Call it every
// layoutrow.MarkEvery.
func (s *Store) Beat(ctx context.Context, server int) error {
	sv := s.servers[server]
	rows, refused, err := s.heldBack(ctx, sv)
	if rows == nil {
		return err
	}
	now := make(map[int]int64, len(rows))
	for database, row := range rows {
		now[database] = row.Mark
	}
	before := sv.beaten.swap(now)
	errs, raised := []error{err}, []layoutrow.Row{}
	for _, database := range slices.Sorted(maps.Keys(rows)) {
		row := rows[database]
		last, seen := before[database]
		still := seen && last == row.Mark || s.Now(server)-row.Mark >= layoutrow.MarkEvery.Milliseconds()
		if !still || refused[database] != nil || !hasMarks(row) {
			continue
		}
		if ok, err := s.raise(ctx, sv, row); err != nil {
			errs = append(errs, err)
		} else if ok {
			raised = append(raised, row)
		}
	}
	return errors.Join(append(errs, s.keep(ctx, sv, raised))...)
}

// HoldOlder takes those of a server's databases out of use that are older copies of
// themselves, until an operator decides: see `tocsin ddl restore-check`. Other processes
// then refuse them too, whatever they remember.
func (s *Store) HoldOlder(ctx context.Context, server int) error {
	_, _, err := s.heldBack(ctx, s.servers[server])
	return err
}

// heldBack is HoldOlder. It returns the layout rows as they were before, nil if they can't be
// read, and which databases are refused.
func (s *Store) heldBack(ctx context.Context, sv *server) (rows map[int]layoutrow.Row, refused refusals, err error) {
	known := s.marks.Known()
	rows, failed, err := s.layouts(ctx, sv, sv.DB)
	if err != nil {
		return nil, nil, err
	}
	refused = s.judge(sv, known, rows, failed)
	var errs []error
	for database, row := range rows {
		if u := refused[database]; u != nil && u.Older && row.State == layoutrow.Active && row.Version >= markedSince {
			errs = append(errs, s.hold(ctx, sv, row))
		}
	}
	return rows, refused, errors.Join(errs...)
}

// raise raises one database's mark, and reports whether no other process was faster.
func (s *Store) raise(ctx context.Context, sv *server, row layoutrow.Row) (bool, error) {
	var raised int64
	err := s.transactIn(ctx, sv, []int{row.Asked}, func(conn *sql.Conn) error {
		counts, err := s.write(ctx, conn, raise.name, s.markText(raise, row))
		raised = sum(counts)
		return err
	})
	if err != nil {
		err = s.wrap(err, "raise the mark of "+s.layout.Database(row.Asked), sv)
	}
	return raised > 0, err
}

// keep stores the known marks of others in databases whose marks were just raised.
func (s *Store) keep(ctx context.Context, sv *server, raised []layoutrow.Row) error {
	if len(raised) == 0 {
		return nil
	}
	known := s.marks.Known()
	rows, failed, err := s.layouts(ctx, sv, sv.DB)
	if err != nil {
		return err
	}
	s.judge(sv, known, rows, failed) // learns the new marks
	var errs []error
	for _, row := range raised {
		text, args := s.keepText(row)
		if len(args) == 0 {
			continue
		}
		if err := s.exec(ctx, sv, row.Asked, keep.name, text, args...); err != nil {
			errs = append(errs, s.wrap(err, "keep the marks in "+s.layout.Database(row.Asked), sv))
		}
	}
	return errors.Join(errs...)
}

// hold takes a database out of use.
func (s *Store) hold(ctx context.Context, sv *server, row layoutrow.Row) error {
	start := time.Now()
	_, err := sv.DB.ExecContext(ctx, string(s.markText(hold, row)), row.Cluster, row.Identity)
	s.metrics.observe(hold.name, start, 0, err)
	if err != nil {
		return s.wrap(err, "hold "+s.layout.Database(row.Asked), sv)
	}
	return nil
}

// markText renders a statement about the mark in a layout row.
func (s *Store) markText(st statement, row layoutrow.Row) []byte {
	return st.render(nil, func(b []byte, slot string) []byte {
		switch slot {
		case "mark":
			return strconv.AppendInt(b, row.Mark, 10)
		case "step":
			return strconv.AppendInt(b, layoutrow.MarkEvery.Milliseconds(), 10)
		}
		return s.fillDatabase(b, slot, row.Asked)
	})
}

// keepText renders keep for all known marks of other databases.
func (s *Store) keepText(row layoutrow.Row) (text []byte, args []any) {
	marks := s.marks.Of(row.Identity)
	delete(marks, row.Asked) // a copy would have that too
	rows := func(b []byte) []byte {
		for i, database := range slices.Sorted(maps.Keys(marks)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = keepRow.render(b, func(b []byte, slot string) []byte {
				if slot == "mark" {
					return strconv.AppendInt(b, marks[database], 10)
				}
				return s.fillDatabase(b, slot, database)
			})
			args = append(args, row.Identity)
		}
		return b
	}
	text = keep.render(nil, func(b []byte, slot string) []byte {
		if slot == "rows" {
			return rows(b)
		}
		return s.fillDatabase(b, slot, row.Asked)
	})
	return text, args
}
