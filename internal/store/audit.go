package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// auditExamples is how many job_ids stand for the rows that share their faults.
const auditExamples = 3

// audit checks entries of one table and status, {limit} at most, each against
// itself, and counts them by biz type and faults, with a few job_ids; no faults
// are a group too. The rows come from a range of idx_due. The last column is
// the last of them in its order, as text of 63 characters.
var audit = prepare(`
(SELECT /* tocsin audit */
    {table_no},
    biz_type,
    faults,
    COUNT(*),
    SUBSTRING_INDEX(IFNULL(GROUP_CONCAT(IF(faults = 0, NULL, job_id) ORDER BY job_id), ''), ',', {examples}),
    MAX(CONCAT(CAST(action_time AS CHAR), LPAD(biz_type, 20, '0'), LPAD(job_id, 20, '0')))
FROM (
    SELECT
        job_id,
        biz_type,
        action_time,
        ` + faultConditions + ` AS faults
    FROM {table} FORCE INDEX (idx_due)
    WHERE {rows}
    LIMIT {limit}
) AS seen
GROUP BY biz_type, faults)`)

// auditStatus and auditOdd are the {rows} of audit. A status that is none has no
// order to page by: its first rows must do.
var (
	auditStatus = prepare(`
    status = {status}
      AND {range}
    ORDER BY action_time, biz_type, job_id`)
	auditOdd = prepare(`status > 4`)
)

// faultConditions are in the order of the bits, and never NULL. Instants are by the server's clock.
const faultConditions = `
    (CRC32(biz_id) % {total} <> {table_no})
  | ((job_id >> 9) & 8191 <> {table_no}) << 1
  | (biz_type NOT IN ({types})) << 2
  | (status > 4) << 3
  | (status = 0 AND biz_type NOT IN ({paused}) AND action_time < UTC_TIMESTAMP(3) - INTERVAL {grace} SECOND) << 4
  | (status = 1 AND action_time < UTC_TIMESTAMP(3) - INTERVAL {grace} SECOND) << 5
  | (status IN (2, 3, 4) AND action_time > UTC_TIMESTAMP(3) + INTERVAL 1 SECOND) << 6
  | (status IN (0, 2) AND version = 0 AND action_time < due_time) << 7
  | (gmt_create > gmt_modified) << 8
  | (gmt_modified > UTC_TIMESTAMP(3) + INTERVAL 1 SECOND) << 9
  | (status IN (0, 1) AND crashes >= {crashes}) << 10
  | (status IN (0, 1) AND attempts >= {attempts}) << 11
  | (status = 3 AND dedup_key IS NOT NULL) << 12
  | (status = 0 AND claimed_by <> '' OR status = 1 AND claimed_by = '') << 13
  | {no_schedule} << 14`

// noSchedule finds a run, by its dedup_key as package ids makes it, that was left behind when its schedule was deleted: that
// cancels all runs that are pending. One that was being delivered may be tried again.
var noSchedule = prepare(`
    (status = 0 AND attempts = 0 AND crashes = 0 AND IFNULL(LENGTH(dedup_key) = 21 AND ORD(dedup_key) = 0, 0) AND NOT EXISTS (
        SELECT 1
        FROM {database}.schedule
        WHERE schedule_id = CAST(CONV(HEX(SUBSTRING(dedup_key, 2, 8)), 16, 10) AS UNSIGNED)
    ))`)

// Fault is what is wrong with a row, a bit each; a row may have several.
type Fault uint32

// The faults. Times are those of the row's server, with a second's grace where
// they are compared with its clock.
const (
	WrongTable      Fault = 1 << iota // its biz_id belongs to another table
	WrongJobID                        // its job_id names another table: no command finds it
	UnknownType                       // no policy has its biz type's number
	UnknownStatus                     // its status is none
	Overdue                           // pending, of a type that is not paused, due for longer than the grace
	ClaimRunOut                       // claimed, deadline passed for longer than the grace: nobody recovers it
	SettledAhead                      // final, with a time of settling in the future
	Early                             // pending or done before its due_time, though never rescheduled, nor redriven with a new key
	CreatedAfter                      // created after it was modified
	ModifiedAhead                     // modified in the future
	TooManyCrashes                    // pending or claimed with 5 crashes or more
	TooManyAttempts                   // pending or claimed with all the attempts that its policy grants
	DedupKept                         // cancelled, but holds its dedup_key: it can't be added again
	OddClaimer                        // pending with a claimer, or claimed without
	NoSchedule                        // a run, pending and never tried, of a schedule that is not there
)

// faultNames are in the order of the bits.
var faultNames = [...]string{
	"wrong_table", "wrong_job_id", "unknown_type", "unknown_status", "overdue", "claim_run_out", "settled_ahead",
	"early", "created_after", "modified_ahead", "too_many_crashes", "too_many_attempts", "dedup_kept", "odd_claimer", "no_schedule",
}

// Split gives the single faults.
func (f Fault) Split() []Fault {
	var all []Fault
	for bit := range faultNames {
		if f&(1<<bit) != 0 {
			all = append(all, 1<<bit)
		}
	}
	return all
}

// String gives the words, joined by commas; "" is no fault.
func (f Fault) String() string {
	var words []string
	for bit, name := range faultNames {
		if f&(1<<bit) != 0 {
			words = append(words, name)
		}
	}
	return strings.Join(words, ",")
}

// AuditStatuses are the values of AuditQuery.Status that cover every row: the
// last one stands for all that are no status.
var AuditStatuses = []tocsin.Status{tocsin.Pending, tocsin.Claimed, tocsin.Done, tocsin.Cancelled, tocsin.Dead, tocsin.Dead + 1}

// AuditQuery asks one server to check rows of some of its tables in one status.
type AuditQuery struct {
	Server   int
	Tables   []int
	Status   tocsin.Status
	From     int64          // lower bound of action_time, inclusive; 0: all
	After    duequeue.Entry // with one table only: go on behind this entry
	Limit    int            // rows of each table
	Grace    time.Duration  // that a pending or claimed row may be late
	Types    []uint64       // numbers of all biz types
	Paused   []uint64       // of those that are paused
	Attempts map[uint64]int // granted by each type's policy

	// Unscheduled are databases whose schedules can't be read: runs in them are not compared with their schedules.
	Unscheduled map[int]bool
}

// Audited are rows of one table and biz type that have the same faults.
type Audited struct {
	Table    int
	Type     uint64
	Faults   Fault // 0: none
	Rows     int
	Examples []tocsin.JobID // of rows with faults, a few
}

// AuditPage is what one Audit found and what it cost.
type AuditPage struct {
	Groups     []Audited
	Full       []FullTable   // the tables that may hold more
	Failed     map[int]error // by table number; nil if all is well
	Rows       int           // read
	Statements int           // sent
}

// Audit checks rows in the server, each against itself, up to 64 tables in one
// round trip. It locks nothing. A table that cannot be read is named in
// AuditPage.Failed and hides no other. The error is that of the server as a
// whole; the page is good up to there.
func (s *Store) Audit(ctx context.Context, q AuditQuery) (AuditPage, error) {
	var page AuditPage
	if q.After.JobID != 0 && len(q.Tables) != 1 {
		return page, errAfterMany
	}
	sv := s.servers[q.Server]
	fail := func(table int, err error) { addFailed(&page.Failed, table, s.wrap(err, "audit", sv, table)) }
	ask := question[auditRow]{verb: "audit", statement: audit, in: s.auditSlots(q), scan: scanAudited}
	for group := range slices.Chunk(s.allowed(sv, q.Tables, fail), maxTables) {
		err := apart(group, func(tables []int) error {
			page.Statements++
			rows, err := ask.ask(ctx, s.gated(sv), s.databasesIn(tables), tables, s.ofTable)
			if err != nil {
				return err
			}
			return page.add(tables, rows, q)
		}, fail)
		if err != nil {
			return page, s.wrap(err, "audit", sv, group...)
		}
	}
	return page, nil
}

// auditRow is a row of audit: rows with the same faults, and the last of them.
type auditRow struct {
	Audited
	end string
}

// add adds what one statement found.
func (p *AuditPage) add(tables []int, found []auditRow, q AuditQuery) error {
	rows, last := map[int]int{}, map[int]string{}
	for _, g := range found {
		rows[g.Table] += g.Rows
		last[g.Table] = max(last[g.Table], g.end)
		p.Groups = append(p.Groups, g.Audited)
		p.Rows += g.Rows
	}
	for _, table := range tables {
		if rows[table] < q.Limit || q.Status > tocsin.Dead {
			continue
		}
		entry, err := readEnd(last[table])
		if err != nil {
			return err
		}
		p.Full = append(p.Full, FullTable{table, entry})
	}
	return nil
}

func scanAudited(rows *sql.Rows) (g auditRow, err error) {
	var examples string
	if err := rows.Scan(&g.Table, &g.Type, &g.Faults, &g.Rows, &examples, &g.end); err != nil {
		return g, err
	}
	for _, word := range strings.FieldsFunc(examples, func(r rune) bool { return r == ',' }) {
		id, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return g, fmt.Errorf("example of an audit: %w", err)
		}
		g.Examples = append(g.Examples, tocsin.JobID(id))
	}
	return g, nil
}

// readEnd reads the last column of audit: 23 characters of time, 20 of biz type,
// 20 of job_id.
func readEnd(text string) (e duequeue.Entry, err error) {
	if len(text) != 63 {
		return e, fmt.Errorf("end of an audit %q: want 63 characters", text)
	}
	at, err := time.Parse("2006-01-02 15:04:05.000", text[:23])
	if err != nil {
		return e, fmt.Errorf("end of an audit: %w", err)
	}
	typeCode, err := strconv.ParseUint(text[23:43], 10, 64)
	if err != nil {
		return e, fmt.Errorf("end of an audit: %w", err)
	}
	id, err := strconv.ParseUint(text[43:], 10, 64)
	return duequeue.Entry{JobID: tocsin.JobID(id), Type: typeCode, Due: at.UnixMilli()}, err
}

// auditSlots are the same for all tables of a query, but for {no_schedule}.
func (s *Store) auditSlots(q AuditQuery) slots {
	rows := auditOdd.render(nil, nil)
	if q.Status <= tocsin.Dead {
		span := peekRange(PeekQuery{From: q.From, Until: maxMilli, After: q.After})
		rows = auditStatus.render(nil, slots{"status": q.Status, "range": span}.fill)
	}
	crashes := MaxCrashes
	if s.ByRows() {
		crashes = MaxCrashesSession
	}
	return slots{
		"total": s.layout.Total(), "rows": rows, "limit": q.Limit, "examples": auditExamples, "grace": int(q.Grace / time.Second),
		"types": q.Types, "paused": q.Paused, "crashes": crashes, "attempts": q.attempts(nil),
		"no_schedule": func(table int) []byte {
			database := s.layout.DatabaseOf(table)
			if q.Unscheduled[database] {
				return []byte("0")
			}
			return noSchedule.render(nil, s.ofDatabase(database, nil))
		},
	}
}

// noLimit is more than the column attempts can hold.
const noLimit = 65536

// attempts appends the attempts that a row's policy grants.
func (q AuditQuery) attempts(b []byte) []byte {
	if len(q.Attempts) == 0 {
		return appendInt(b, noLimit)
	}
	b = append(b, "CASE biz_type"...)
	for _, typeCode := range slices.Sorted(maps.Keys(q.Attempts)) {
		b = append(b, " WHEN "...)
		b = strconv.AppendUint(b, typeCode, 10)
		b = append(b, " THEN "...)
		b = appendInt(b, q.Attempts[typeCode])
	}
	b = append(b, " ELSE "...)
	return append(appendInt(b, noLimit), " END"...)
}
