package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// oldRuns looks at the next runs of one database, {limit} at most: the id of the last, whether one of them began before the
// latest cut-off, and how many have {expired}. By primary key.
var oldRuns = prepare(`
SELECT /* tocsin old_runs */
    IFNULL(MAX(run_id), 0),
    IFNULL(MIN(started) < {latest}, 0),
    IFNULL(SUM({expired}), 0)
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

// Kept are biz types whose runs are kept if they began at an instant or later.
type Kept struct {
	Types []uint64 // numbers
	Since int64    // Unix ms
}

// PurgeRuns deletes runs of one database that began too early, among the next limit behind a run_id, and returns how many
// and where to go on; 0: nowhere, since what follows is younger. Run ids grow about as time does. Runs of types that kept
// does not name are left. A database without the table has none. A dry purge only counts.
func (s *Store) PurgeRuns(ctx context.Context, server, database int, kept []Kept, after uint64, limit int, dry bool) (removed int, next uint64, err error) {
	sv := s.servers[server]
	if len(kept) == 0 {
		return 0, 0, nil
	}
	last := uint64(0)
	fill := func(b []byte, slot string) []byte {
		switch slot {
		case "after":
			return strconv.AppendUint(b, after, 10)
		case "last":
			return strconv.AppendUint(b, last, 10)
		case "limit":
			return appendInt(b, limit)
		case "expired":
			return appendExpired(b, kept)
		case "latest":
			return appendTime(b, youngest(kept))
		}
		return s.fillDatabase(b, slot, database)
	}
	wrong := func(err error) error {
		return s.wrap(fmt.Errorf("%s.run: %w", s.layout.Database(database), err), "purge", sv)
	}
	var old bool
	err = s.gated(sv)(ctx, []int{database}, oldRuns.name, oldRuns.render(nil, fill), func(_ int, rows *sql.Rows) error {
		return rows.Scan(&last, &old, &removed)
	})
	switch {
	case mysql.ClassOf(err) == mysql.Missing: // tables of an older schema version
		return 0, 0, nil
	case err != nil:
		return 0, 0, wrong(err)
	}
	if old {
		next = last
	}
	if removed == 0 || dry {
		return removed, next, nil
	}
	if removed, err = s.deleteIn(ctx, sv, database, purgeRuns, fill); err != nil {
		return 0, 0, wrong(err)
	}
	return removed, next, nil
}

// appendExpired appends the condition of runs that are not kept.
func appendExpired(b []byte, kept []Kept) []byte {
	for i, k := range kept {
		if i > 0 {
			b = append(b, " OR "...)
		}
		b = appendTypes(append(b, "(biz_type IN ("...), k.Types)
		b = append(appendTime(append(b, ") AND started < "...), k.Since), ')')
	}
	return b
}

func youngest(kept []Kept) (milli int64) {
	for _, k := range kept {
		milli = max(milli, k.Since)
	}
	return milli
}
