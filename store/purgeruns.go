package store

import (
	"context"
	"fmt"
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
	read := func(st statement, in slots, dest ...any) error {
		return s.gated(s.servers[server])(ctx, []int{database}, st.name, st.render(nil, s.ofDatabase(database, in)), scanOne(dest...))
	}
	err := read(runBounds, nil, &low, &high)
	for err == nil && low < high {
		var before bool
		middle := low + (high-low)/2
		if err = read(runAfter, slots{"id": middle, "until": instant(milli)}, &id, &before); before {
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
	var last uint64
	var old bool
	in := slots{
		"after": page.After, "limit": page.Limit, "until": instant(page.Until),
		"expired": appendExpired(nil, kept, 0), "late": appendExpired(nil, kept, LateRuns),
	}
	fill := s.ofDatabase(database, in)
	err = s.gated(sv)(ctx, []int{database}, oldRuns.name, oldRuns.render(nil, fill), scanOne(&last, &old, &done.Removed, &done.Late))
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
		in["last"] = last
		done.Removed, err = s.change(ctx, database, purgeRuns, fill)
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
