package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

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
	return row.Identity != "" && row.State != layoutrow.Retired
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
	_, _, _ = eachDatabase(ctx, s, s.over(sv.DB), *marked, question[struct{}]{statement: marksIn, scan: func(rows *sql.Rows) (none struct{}, err error) {
		var database int
		var identity string
		var mark int64
		err = rows.Scan(&database, &identity, &mark)
		s.marks.Note(identity, database, mark)
		return none, err
	}})
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
	before := map[int]int64{}
	if last := sv.beaten.Swap(&now); last != nil {
		before = *last
	}
	errs, raised := []error{err}, []layoutrow.Row{}
	for _, database := range slices.Sorted(maps.Keys(rows)) {
		row := rows[database]
		last, seen := before[database]
		still := seen && last == row.Mark || s.Now(server)-row.Mark >= layoutrow.MarkEvery.Milliseconds()
		if !still || refused[database] != nil || !hasMarks(row) {
			continue
		}
		fill := s.ofDatabase(database, slots{"mark": row.Mark, "step": layoutrow.MarkEvery.Milliseconds()})
		if n, err := s.change(ctx, database, raise, fill); err != nil {
			errs = append(errs, s.wrap(err, "raise the mark of "+s.layout.Database(database), sv))
		} else if n > 0 {
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
	if rows, refused, err = s.refusalsOver(ctx, sv, sv.DB); err != nil {
		return nil, nil, err
	}
	var errs []error
	for database, row := range rows {
		if u := refused[database]; u != nil && u.Older && row.State == layoutrow.Active {
			errs = append(errs, s.hold(ctx, sv, row))
		}
	}
	return rows, refused, errors.Join(errs...)
}

// keep stores the known marks of others in databases whose marks were just raised.
func (s *Store) keep(ctx context.Context, sv *server, raised []layoutrow.Row) error {
	if len(raised) == 0 {
		return nil
	}
	if _, _, err := s.refusalsOver(ctx, sv, sv.DB); err != nil { // learns the new marks
		return err
	}
	var errs []error
	for _, row := range raised {
		if values, args := s.keepRows(row); len(args) == 0 {
			continue
		} else if err := s.exec(ctx, row.Asked, keep, slots{"rows": values}, args...); err != nil {
			errs = append(errs, s.wrap(err, "keep the marks in "+s.layout.Database(row.Asked), sv))
		}
	}
	return errors.Join(errs...)
}

// keepRows renders the {rows} of keep, of all known marks of other databases.
func (s *Store) keepRows(row layoutrow.Row) (values []byte, args []any) {
	marks := s.marks.Of(row.Identity)
	delete(marks, row.Asked) // a copy would have that too
	for i, database := range slices.Sorted(maps.Keys(marks)) {
		if i > 0 {
			values = append(values, ',')
		}
		values = keepRow.render(values, s.ofDatabase(database, slots{"mark": marks[database]}))
		args = append(args, row.Identity)
	}
	return values, args
}

// hold takes a database out of use.
func (s *Store) hold(ctx context.Context, sv *server, row layoutrow.Row) error {
	start := time.Now()
	_, err := sv.DB.ExecContext(ctx, string(hold.render(nil, s.ofDatabase(row.Asked, slots{"mark": row.Mark}))), row.Cluster, row.Identity)
	s.metrics.observe(hold.name, start, 0, err)
	return s.wrap(err, "hold "+s.layout.Database(row.Asked), sv)
}
