package schedule

import (
	"context"
	"database/sql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/store"
)

// marks are the keys from which on runs of a schedule may be open, in the column open_from: first that of runs for fire times, then
// that of runs by hand. A schedule that fires each second has millions of settled runs that are not purged. New runs for fire
// times get higher keys, except after maker.takeBack. Making runs by hand clears the second mark. A run that is redriven may have a
// key below the marks.
type marks struct{ fire, hand string }

// marksOf reads the column.
func marksOf(schedule uint64, text string) (m marks) {
	m.fire, _ = ids.RunKeys(schedule)
	m.hand = byHand(schedule)
	switch {
	case len(text) == 2*ids.RunKeySize:
		m.hand = max(m.hand, text[ids.RunKeySize:])
		fallthrough
	case len(text) == ids.RunKeySize:
		m.fire = max(m.fire, text[:ids.RunKeySize])
	}
	return m
}

// byHand is the lowest key of runs by hand, manual that of those by run-now, which stand behind backfills.
func byHand(schedule uint64) string { return ids.FirstRunKey(schedule, ids.MaxRevision+1) }
func manual(schedule uint64) string { return ids.FirstRunKey(schedule, ids.MaxRevision+2) }

// sibling is a run of a schedule as its row stands.
type sibling struct {
	id       tocsin.JobID
	status   tocsin.Status
	action   int64 // Unix ms, like due and created
	due      int64
	created  int64
	attempts int
	crashes  int
	overdue  bool // it was to be made up for when it was put off
	key      string
	of       ids.RunKey
}

// readSiblings reads a page of the runs of one schedule, in the order of their keys. A range of uk_biz. Parameters: biz_id, biz type, the first key, the
// first key behind them, how many.
const readSiblings = `SELECT /* tocsin schedule siblings */` + siblingColumns + `
FROM {task} FORCE INDEX (uk_biz)
WHERE biz_id = ?
    AND biz_type = ?
    AND dedup_key >= ?
    AND dedup_key < ?
ORDER BY dedup_key
LIMIT ?`

// siblingColumns are what a run is scanned from. Times are read as text, as in columns.
const siblingColumns = `
    job_id, status, CAST(action_time AS CHAR), CAST(due_time AS CHAR), CAST(gmt_create AS CHAR), attempts, crashes, last_error LIKE '` + madeUpFor + `%', dedup_key`

// scanSibling reads siblingColumns, and what follows them into more.
func scanSibling(rows *sql.Rows, more ...any) (r sibling, err error) {
	var action, due, created instant
	var key []byte
	err = rows.Scan(append([]any{&r.id, &r.status, &action, &due, &created, &r.attempts, &r.crashes, &r.overdue, &key}, more...)...)
	r.key = string(key)
	r.action, r.due, r.created = action.Time.UnixMilli(), due.Time.UnixMilli(), created.Time.UnixMilli()
	r.of, _ = ids.ParseRunKey(r.key)
	return r, err
}

// first reports whether the run has had no delivery that failed, or whose process is gone.
func (r *sibling) first() bool { return r.attempts == 0 && r.crashes == 0 }

// waited reports whether the run was put off, by Begin or by its handler. A run that was made after its fire time was due when
// it was made.
func (r *sibling) waited() bool { return r.action > r.time() }

// time is from when on the run may begin.
func (r *sibling) time() int64 { return max(r.due, r.created) }

// byHand reports whether the run was made by hand.
func (r *sibling) byHand() bool { return r.of.Kind != ids.FireTime }

// before is the order of runs, one for all kinds, or some could wait for one another for ever: who could begin first comes first; of
// one moment, as of one backfill, the smaller key.
func (r *sibling) before(other *sibling) bool {
	if r.time() == other.time() {
		return r.key < other.key
	}
	return r.time() < other.time()
}

// pageRange is a range of keys that is read page by page.
type pageRange struct {
	from, until string
	enough      int // open runs, beyond which nothing is read
	open        []sibling
	passed      int // settled runs before the first open one; from moves behind them
}

// Sizes of a page, and after how many settled runs a mark is stored.
const (
	pageOfRuns = 200
	farEnough  = 20
)

// page is how many runs are read first: of a backfill of a thousand, each one that looks whether its turn has come reads few others.
func (s *pageRange) page() int {
	if s.enough < pageOfRuns {
		return farEnough + s.enough
	}
	return pageOfRuns
}

// args are the parameters of readSiblings, for the page that begins with a key.
func (s *pageRange) args(r *row, from string, limit int) []any {
	return []any{r.subject(), r.number, []byte(from), []byte(s.until), limit}
}

// take takes a page, and reports whether there is more to read.
func (s *pageRange) take(page []sibling, next *string, limit int) (more bool) {
	for _, r := range page {
		switch {
		case !r.status.Final():
			if len(s.open) == 0 {
				s.from = r.key
			}
			s.open = append(s.open, r)
		case len(s.open) == 0:
			s.passed++
			s.from = ids.RunKeyAfter(r.key)
		}
		*next = ids.RunKeyAfter(r.key)
	}
	return len(page) == limit && len(s.open) < s.enough
}

// openFrom returns a key below which all runs of a schedule for fire times are settled. A change looks for pending runs from there on: reading
// millions of settled runs with the row locked would take seconds. After an error, it returns what it knows.
//
// It notes the key for the next change, unless the caller's own transaction may hold the row.
func (m *maker) openFrom(ctx context.Context, id tocsin.JobID, note bool) string {
	first, _ := ids.RunKeys(uint64(id))
	layout := m.tables.Layout()
	server, databases := m.tables.ServerOf(id.Table()), []int{layout.DatabaseOf(id.Table())}
	if server < 0 {
		return first
	}
	rows, err := store.Gather(ctx, m.tables, server, databases, "schedule marks", readByID(1), scanRow, uint64(id))
	if err != nil || len(rows) == 0 {
		return first
	}
	r := rows[0]
	s := pageRange{from: r.fire, until: byHand(uint64(id)), enough: 1}
	question := taskIn(layout, id.Table(), readSiblings)
	for next, far := s.from, false; ; far = true {
		page, err := store.Gather(ctx, m.tables, server, databases, "schedule siblings", question,
			func(rows *sql.Rows) (sibling, error) { return scanSibling(rows) }, s.args(r, next, pageSettled)...)
		if err != nil {
			return s.from
		}
		if s.take(page, &next, pageSettled) {
			continue
		}
		if far && note {
			_ = m.at(ctx, id, func(h *here) error { return h.mark(ctx, s.from, "") }) // the next change reads them again
		}
		return s.from
	}
}

// pageSettled is how many runs a change reads at once.
const pageSettled = 5000

// mark stores marks that have moved; "": not this one.
func (h *here) mark(ctx context.Context, fire, hand string) error {
	if h.row == nil {
		return nil
	}
	m := marks{max(h.row.fire, fire), max(h.row.hand, hand)}
	if m == h.row.marks {
		return nil
	}
	h.row.marks = m
	_, err := h.exec(ctx, storeMarks, []byte(m.fire+m.hand), uint64(h.row.ID))
	return err
}

// storeMarks notes below which keys the runs of a schedule are settled. Primary key. Parameters: the marks; schedule_id.
const storeMarks = `UPDATE /* tocsin schedule mark */ {database}.schedule
SET open_from = ?
WHERE schedule_id = ?`

// forgetHand forgets which runs by hand are settled: some with lower keys are made. Primary key. Parameters: how long a mark is, twice; schedule_id.
const forgetHand = `UPDATE /* tocsin schedule forget */ {database}.schedule
SET open_from = LEFT(open_from, ?)
WHERE schedule_id = ?
    AND LENGTH(open_from) > ?`
