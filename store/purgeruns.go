package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// oldRuns looks at the next runs of one database, {limit} at most: the id of the last, whether one of them began before a
// time, how many have {expired}, and whether one did so before the last purge. By primary key.
var oldRuns = prepare(`
SELECT /* tocsin old_runs */
    IFNULL(MAX(run_id), 0),
    IFNULL(MIN(started) < {until}, 0),
    IFNULL(SUM({expired}), 0),
    IFNULL(MAX({late}), 0)
FROM (
    SELECT
        run_id,
        biz_type,
        started
    FROM {database}.run FORCE INDEX (PRIMARY)
    WHERE run_id > {after}
    ORDER BY run_id
    LIMIT {limit}
) AS oldest`)

// purgeRuns deletes those of them that have expired, by primary key.
var purgeRuns = prepare(`
DELETE /* tocsin purge_runs */ {database}.run
FROM {database}.run FORCE INDEX (PRIMARY)
WHERE run_id > {after}
  AND run_id <= {last}
  AND ({expired})`)

// runBounds reads the first and the last run_id. runAfter finds the next run from an id on, and whether it was written before a
// time: runs stand about in the order in which they ended. Primary key.
var (
	runBounds = prepare(`
SELECT /* tocsin run_bounds */
    IFNULL(MIN(run_id), 0),
    IFNULL(MAX(run_id), 0)
FROM {database}.run`)

	runAfter = prepare(`
SELECT /* tocsin run_after */
    run_id,
    started + INTERVAL duration_ms * 1000 MICROSECOND < {until}
FROM {database}.run FORCE INDEX (PRIMARY)
WHERE run_id >= {id}
ORDER BY run_id
LIMIT 1`)
)

// Kept are biz types whose runs are kept if they began at an instant or later.
type Kept struct {
	Types []uint64 // numbers
	Since int64    // Unix ms
}

// LateRuns is how long ago a run has expired that a purge each day would have removed.
const LateRuns = 25 * time.Hour

// RunsPage is which runs a PurgeRuns looks at: the next limit of one database behind a run_id.
type RunsPage struct {
	Server   int
	Database int
	After    uint64
	Limit    int
	Until    int64 // Unix ms: younger ones need not be looked at
}

// PurgedRuns is what a PurgeRuns did.
type PurgedRuns struct {
	Removed int
	Next    uint64 // behind which to go on; 0: nowhere, since what follows is younger than Until
	Late    bool   // one of them had expired for LateRuns
}

// RunsBefore returns a run_id behind which all runs stand that were written at a time or later. It costs a statement for each doubling
// of the runs.
func (s *Store) RunsBefore(ctx context.Context, server, database int, milli int64) (uint64, error) {
	var low, high, id uint64
	fill := func(b []byte, slot string) []byte {
		switch slot {
		case "id":
			return strconv.AppendUint(b, low+(high-low)/2, 10)
		case "until":
			return appendTime(b, milli)
		}
		return s.fillDatabase(b, slot, database)
	}
	read := func(st statement, dest ...any) error {
		return s.gated(s.servers[server])(ctx, []int{database}, st.name, st.render(nil, fill), func(_ int, rows *sql.Rows) error { return rows.Scan(dest...) })
	}
	err := read(runBounds, &low, &high)
	for err == nil && low < high {
		var before bool
		middle := low + (high-low)/2
		if err = read(runAfter, &id, &before); before {
			low = id + 1
		} else {
			high = middle
		}
	}
	if mysql.ClassOf(err) == mysql.Missing { // tables of an older schema version
		err = nil
	}
	return max(low, 1) - 1, s.ofRuns(err, server, database)
}

func (s *Store) ofRuns(err error, server, database int) error {
	if err == nil {
		return nil
	}
	return s.wrap(fmt.Errorf("%s.run: %w", s.layout.Database(database), err), "purge", s.servers[server])
}

// PurgeRuns deletes runs of a page that began too early. Runs of types that kept does not name are left. A database without the table
// has none. A dry purge only counts.
func (s *Store) PurgeRuns(ctx context.Context, page RunsPage, kept []Kept, dry bool) (done PurgedRuns, err error) {
	sv, database := s.servers[page.Server], page.Database
	if len(kept) == 0 {
		return done, nil
	}
	last := uint64(0)
	fill := func(b []byte, slot string) []byte {
		switch slot {
		case "after":
			return strconv.AppendUint(b, page.After, 10)
		case "last":
			return strconv.AppendUint(b, last, 10)
		case "limit":
			return appendInt(b, page.Limit)
		case "expired":
			return appendExpired(b, kept, 0)
		case "late":
			return appendExpired(b, kept, LateRuns)
		case "until":
			return appendTime(b, page.Until)
		}
		return s.fillDatabase(b, slot, database)
	}
	var old bool
	err = s.gated(sv)(ctx, []int{database}, oldRuns.name, oldRuns.render(nil, fill), func(_ int, rows *sql.Rows) error {
		return rows.Scan(&last, &old, &done.Removed, &done.Late)
	})
	switch {
	case mysql.ClassOf(err) == mysql.Missing: // tables of an older schema version
		return PurgedRuns{}, nil
	case err != nil:
		return PurgedRuns{}, s.ofRuns(err, page.Server, database)
	}
	if old {
		done.Next = last
	}
	if done.Removed > 0 && !dry {
		done.Removed, err = s.deleteIn(ctx, sv, database, purgeRuns, fill)
	}
	return done, s.ofRuns(err, page.Server, database)
}

// appendExpired appends the condition of runs that are not kept, and were not a while ago.
func appendExpired(b []byte, kept []Kept, ago time.Duration) []byte {
	for i, k := range kept {
		if i > 0 {
			b = append(b, " OR "...)
		}
		b = appendTypes(append(b, "(biz_type IN ("...), k.Types)
		b = append(appendTime(append(b, ") AND started < "...), k.Since-ago.Milliseconds()), ')')
	}
	return b
}
