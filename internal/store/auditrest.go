package store

import (
	"context"
	"database/sql"
	"math"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// auditSchedules checks schedules of one database behind a schedule_id, {limit} at most, each against itself, and counts them by
// biz type and faults, with a few names; no faults are a group too. The last column is the last of the group. Primary key.
var auditSchedules = prepare(`
SELECT /* tocsin audit_schedules */
    biz_type,
    faults,
    COUNT(*),
    SUBSTRING_INDEX(IFNULL(GROUP_CONCAT(IF(faults = 0, NULL, name) ORDER BY name), ''), ',', {examples}),
    MAX(schedule_id),
    1
FROM (
    SELECT
        schedule_id,
        name,
        biz_type,
        (table_no <> CRC32(biz_id) % {total} OR (schedule_id >> 9) & 8191 <> table_no OR table_no DIV {tables} <> {database_no})
            | (biz_type NOT IN ({types})) << 1
            | (state NOT IN ('active', 'inactive', 'paused', 'ended')) << 2
            | ((state = 'active') <> (next_fire IS NOT NULL)) << 3
            | (state = 'active' AND IFNULL(next_fire < UTC_TIMESTAMP(3) - INTERVAL {grace} SECOND, 0)) << 4
            | (made_until > UTC_TIMESTAMP(3) + INTERVAL {horizon} SECOND OR IFNULL(next_fire <= made_until, 0)) << 5
            AS faults
    FROM {database}.schedule FORCE INDEX (PRIMARY)
    WHERE schedule_id > {place}
    ORDER BY schedule_id
    LIMIT {limit}
) AS seen
GROUP BY biz_type, faults`)

// auditRuns does the same with runs of the history before a run_id, the latest first, with a few job_ids. The last columns are the
// first of the group, and whether one of the group began at {from} or later. Primary key.
var auditRuns = prepare(`
SELECT /* tocsin audit_runs */
    biz_type,
    faults,
    COUNT(*),
    SUBSTRING_INDEX(IFNULL(GROUP_CONCAT(IF(faults = 0, NULL, job_id) ORDER BY run_id), ''), ',', {examples}),
    MIN(run_id),
    MAX(started) >= {from}
FROM (
    SELECT
        run_id,
        job_id,
        biz_type,
        started,
        (((job_id >> 9) & 8191) DIV {tables} <> {database_no})
            | (biz_type NOT IN ({types})) << 1
            | (started > UTC_TIMESTAMP(3) + INTERVAL {slack} SECOND) << 2
            AS faults
    FROM {database}.run FORCE INDEX (PRIMARY)
    WHERE run_id < {place}
    ORDER BY run_id DESC
    LIMIT {limit}
) AS latest
GROUP BY biz_type, faults`)

// The faults of schedules and runs, in the order of the bits.
var (
	scheduleFaults = []string{"schedule_misplaced", "schedule_unknown_type", "schedule_unknown_state", "schedule_next_fire", "schedule_behind", "schedule_made_ahead"}
	runFaults      = []string{"run_misplaced", "run_unknown_type", "run_ahead"}
)

// Bounds of what is right.
const (
	madeAhead = 20 * time.Minute // how far runs are made ahead at most: two steps of package schedule
	clockRoom = time.Minute      // by which the clock of a server, or a node's estimate of it, may have been wrong
)

// AuditRest asks one server to check schedules or runs of one database. The zero Place begins.
type AuditRest struct {
	Server, Database int
	Place            uint64        // where the page before has ended
	From             int64         // runs: reading ends with a page of runs that all began earlier, Unix ms; 0: never
	Limit            int           // rows
	Grace            time.Duration // that a fire time may be late
	Types            []uint64      // numbers of all biz types
}

// AuditedRest are schedules or runs of one biz type that have the same faults.
type AuditedRest struct {
	Type     uint64
	Faults   []string // none: nothing is wrong
	Rows     int
	Examples []string // names of schedules or job_ids of runs, of rows with faults, a few
}

// AuditRestPage is what was found. Next is the next Place; 0: all is read.
type AuditRestPage struct {
	Groups []AuditedRest
	Rows   int
	Next   uint64
}

// AuditSchedules checks schedules, each against itself. It locks nothing. A database of an older schema version has none.
func (s *Store) AuditSchedules(ctx context.Context, q AuditRest) (page AuditRestPage, there bool, err error) {
	return s.auditRest(ctx, q, auditSchedules, scheduleFaults, "schedule", func(a, b uint64) uint64 { return max(a, b) })
}

// AuditRuns checks runs of the history, the latest first, as AuditSchedules does.
func (s *Store) AuditRuns(ctx context.Context, q AuditRest) (page AuditRestPage, there bool, err error) {
	if q.Place == 0 {
		q.Place = math.MaxInt64
	}
	return s.auditRest(ctx, q, auditRuns, runFaults, "run", func(a, b uint64) uint64 { return min(a, b) })
}

func (s *Store) auditRest(ctx context.Context, q AuditRest, st statement, faults []string, table string, further func(a, b uint64) uint64) (page AuditRestPage, there bool, err error) {
	sv := s.servers[q.Server]
	next, more := q.Place, false
	text := st.render(nil, s.ofDatabase(q.Database, slots{
		"examples": auditExamples, "total": s.layout.Total(), "tables": s.layout.Tables, "types": q.Types, "grace": int(q.Grace / time.Second),
		"horizon": int((madeAhead + clockRoom) / time.Second), "slack": int(clockRoom / time.Second),
		"from": instant(q.From), "place": q.Place, "limit": q.Limit,
	}))
	err = s.gated(sv)(ctx, []int{q.Database}, st.name, text, func(_ int, rows *sql.Rows) error {
		var g AuditedRest
		var bits, end uint64
		var examples string
		var recent bool
		if err := rows.Scan(&g.Type, &bits, &g.Rows, &examples, &end, &recent); err != nil {
			return err
		}
		for bit, name := range faults {
			if bits&(1<<bit) != 0 {
				g.Faults = append(g.Faults, name)
			}
		}
		g.Examples = strings.FieldsFunc(examples, func(r rune) bool { return r == ',' })
		page.Groups, page.Rows = append(page.Groups, g), page.Rows+g.Rows
		next, more = further(next, end), more || recent
		return nil
	})
	switch {
	case mysql.ClassOf(err) == mysql.Missing:
		return AuditRestPage{}, false, nil
	case err != nil:
		return AuditRestPage{}, false, s.wrapTable(err, "audit", q.Database, table)
	}
	if more && page.Rows >= q.Limit {
		page.Next = next
	}
	return page, true, nil
}
