package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// record stores runs of one database. {values} are in the order of the columns; an output that is not plain is an argument.
var record = prepare(`
INSERT /* tocsin record */ INTO {database}.run
    (job_id, schedule_id, biz_type, version, attempt, node, started, lateness_ms, duration_ms, outcome, output)
VALUES {values};`)

// runColumns are what a Run is read from.
const runColumns = `
    run_id,
    job_id,
    IFNULL(schedule_id, 0),
    biz_type,
    version,
    attempt,
    node,
    started,
    lateness_ms,
    duration_ms,
    outcome,
    output`

// runsOf reads the runs of one task or schedule from the latest on. {of} and {index} name it. The index ends in the primary
// key, so that a page deep in the history costs no more than the first.
var runsOf = prepare(`
SELECT /* tocsin runs */` + runColumns + `
FROM {database}.run FORCE INDEX ({index})
WHERE {of} = {id}
  AND run_id < {before}
ORDER BY run_id DESC
LIMIT {limit}`)

// The outcomes of runs: what was stored for the attempt, or why there was none.
const (
	RunCompleted   = "completed"
	RunRetried     = "retried"
	RunSnoozed     = "snoozed"
	RunBuried      = "buried"
	RunCancelled   = "cancelled"   // the task was cancelled in flight
	RunRescheduled = "rescheduled" // the task was rescheduled, or redriven, in flight
	RunLost        = "lost"        // another attempt claimed or settled the task first, or it was purged
	RunCutOff      = "cut_off"     // the end of the node cut the delivery off; the task is delivered again
	RunMissed      = "missed"      // a schedule's run that was not delivered as it was too late
	RunSkipped     = "skipped"     // a schedule's run that was not delivered as an earlier one was open
)

// RunEnded are the outcomes by verb, if the verb was stored.
var RunEnded = [...]string{tocsin.Completed: RunCompleted, tocsin.Retried: RunRetried, tocsin.Snoozed: RunSnoozed, tocsin.Buried: RunBuried}

// Run is one attempt in the history, or a run of a schedule that was not delivered.
type Run struct {
	ID       uint64 // run_id; 0 before it is stored
	JobID    tocsin.JobID
	Schedule uint64 // schedule_id; 0: no run of a schedule
	Type     uint64 // number of the biz type
	Version  uint32
	Attempt  int    // from 1
	Node     string // who delivered
	Started  int64  // Unix ms by the server's clock
	Lateness int64  // ms
	Took     int64  // ms
	Outcome  string
	Output   string // valid UTF-8 of at most tocsin.MaxOutput characters, or the server may refuse it
	Name     string // of the schedule, as RecentRuns reads it; otherwise ""
}

// scanRun reads runColumns.
var scanRun = into(func(r *Run) []any {
	return []any{&r.ID, &r.JobID, &r.Schedule, &r.Type, &r.Version, &r.Attempt, &r.Node, (*instant)(&r.Started), &r.Lateness, &r.Took, &r.Outcome, &r.Output}
})

// RecordRuns stores runs of one server's databases in one transaction, all of them or none. It sorts runs. sent says, with an
// error, that they may be stored all the same.
func (s *Store) RecordRuns(ctx context.Context, server int, runs []*Run) (sent bool, err error) {
	sv := s.servers[server]
	for i := range runs {
		if err := s.refuse(server, runs[i].JobID.Table()); err != nil {
			return false, fmt.Errorf("record a run of job_id %s on %s: %w", runs[i].JobID, sv.Name, err)
		}
	}
	if len(runs) == 0 {
		return false, nil
	}
	slices.SortStableFunc(runs, func(a, b *Run) int {
		return cmp.Or(cmp.Compare(s.RunsIn(a.JobID), s.RunsIn(b.JobID)), cmp.Compare(a.JobID, b.JobID))
	})
	text, args, databases := s.recordText(runs)
	err = s.transactIn(ctx, sv, databases, func(conn *sql.Conn) error {
		sent = false
		_, err := s.write(ctx, conn, record.name, text, args...)
		sent = err == nil
		return err
	})
	if err != nil {
		return sent && mysql.ClassOf(err) == mysql.Lost, s.wrap(err, fmt.Sprintf("record %d runs in", len(runs)), sv, runs[0].JobID.Table())
	}
	return true, nil
}

// RunsIn returns the database that holds the runs of a task, or of a schedule by its id.
func (s *Store) RunsIn(id tocsin.JobID) int { return s.layout.DatabaseOf(id.Table()) }

// recordText is a statement for each database and at most maxIDs of its runs, which are in order.
func (s *Store) recordText(runs []*Run) (b []byte, args []any, databases []int) {
	size := 256
	for _, r := range runs {
		size += perRun + len(r.Output)
	}
	b = make([]byte, 0, size)
	for start := 0; start < len(runs); {
		database, end := s.RunsIn(runs[start].JobID), start
		for end < len(runs) && end-start < maxIDs && s.RunsIn(runs[end].JobID) == database {
			end++
		}
		b = record.render(b, func(b []byte, slot string) []byte {
			if slot == "database" {
				return append(b, s.layout.Database(database)...)
			}
			b, args = appendRuns(b, args, runs[start:end])
			return b
		})
		if n := len(databases); n == 0 || databases[n-1] != database {
			databases = append(databases, database)
		}
		start = end
	}
	return b, args, databases
}

// appendRuns appends the {values}.
func appendRuns(b []byte, args []any, runs []*Run) ([]byte, []any) {
	for i, r := range runs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(append(b, '('), uint64(r.JobID), 10)
		if b = append(b, ','); r.Schedule == 0 {
			b = append(b, "NULL"...)
		} else {
			b = strconv.AppendUint(b, r.Schedule, 10)
		}
		b = strconv.AppendUint(append(b, ','), r.Type, 10)
		b = strconv.AppendUint(append(b, ','), uint64(r.Version), 10)
		b = appendInt(append(b, ','), r.Attempt)
		b = appendName(append(b, ','), r.Node)
		b = appendTime(append(b, ','), r.Started)
		b = strconv.AppendInt(append(b, ','), r.Lateness, 10)
		b = strconv.AppendInt(append(b, ','), r.Took, 10)
		b = append(appendName(append(b, ','), r.Outcome), ',')
		if plain(r.Output) {
			b = append(append(append(b, '\''), r.Output...), "')"...)
			continue
		}
		b, args = append(b, "?)"...), append(args, r.Output)
	}
	return b, args
}

// plain reports whether a text is the same between quotes in every SQL mode. The driver copies arguments byte by byte, and
// takes each ? of the statement for one.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\n' && c != '\t' || c == '\'' || c == '\\' || c == '?' || c == 0x7f {
			return false
		}
	}
	return true
}

// perRun is about how many bytes of a statement a run takes, beside its output.
const perRun = 160

// appendName appends a name as a literal: as it is, or in hexadecimal if it holds more than letters, digits and "._-".
func appendName(b []byte, name string) []byte {
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return fmt.Appendf(b, "X'%x'", name)
		}
	}
	return append(append(append(b, '\''), name...), '\'')
}

// RunsQuery names runs of one task or one schedule.
type RunsQuery struct {
	JobID    tocsin.JobID // 0: of a schedule
	Schedule uint64
	Before   uint64 // run_id, exclusive; 0: from the latest on
	Limit    int
}

// id returns the id whose table says where the runs are.
func (q RunsQuery) id() tocsin.JobID {
	if q.JobID != 0 {
		return q.JobID
	}
	return tocsin.JobID(q.Schedule)
}

// Runs reads the runs of a task or schedule, the latest first. They may outlive its row.
func (s *Store) Runs(ctx context.Context, q RunsQuery) ([]Run, error) {
	table := q.id().Table()
	if s.ServerOf(table) < 0 {
		return nil, fmt.Errorf("read runs: %s names table %d, and the layout %s has none of that number", q.id(), table, s.layout)
	}
	database, of, index := s.layout.DatabaseOf(table), "job_id", "idx_job"
	if q.JobID == 0 {
		of, index = "schedule_id", "idx_schedule"
	}
	runs, err := inDatabase(ctx, s, database, question[Run]{
		statement: runsOf,
		in:        slots{"of": of, "index": index, "id": q.id(), "before": cmp.Or(q.Before, math.MaxUint64), "limit": q.Limit},
		scan:      scanRun,
	})
	return runs, s.wrap(err, "read runs of "+s.layout.Database(database), s.homeOf(database))
}

// LastRuns reads the latest run of each of some schedules of one server in one round trip. Each is one probe of
// idx_schedule. Schedules without runs are left out. What was read stands beside the error, which names databases.
func (s *Store) LastRuns(ctx context.Context, server int, schedules []tocsin.JobID) ([]Run, error) {
	of := map[int][]tocsin.JobID{}
	for _, id := range schedules {
		if err := s.refuse(server, id.Table()); err != nil {
			return nil, fmt.Errorf("read the last run of schedule %s: %w", id, err)
		}
		of[s.RunsIn(id)] = append(of[s.RunsIn(id)], id)
	}
	sv := s.servers[server]
	runs, failed, err := eachDatabase(ctx, s, s.gated(sv), slices.Sorted(maps.Keys(of)), question[Run]{
		statement: runsOf, scan: scanRun,
		text: func(b []byte, database int) []byte { return s.lastText(b, database, of[database]) },
	})
	return runs, s.unread(sv, "runs", failed, err)
}

// lastText is runsOf for the latest run of each of some schedules of a database.
func (s *Store) lastText(b []byte, database int, schedules []tocsin.JobID) []byte {
	for i, id := range schedules {
		if i > 0 {
			b = append(b, unionAll...)
		}
		in := slots{"of": "schedule_id", "index": "idx_schedule", "id": id, "before": uint64(math.MaxUint64), "limit": 1}
		b = append(runsOf.render(append(b, '('), s.ofDatabase(database, in)), ')')
	}
	return b
}

// scheduleName reads the name of a schedule, by primary key. Zero rows: it was deleted.
var scheduleName = prepare(`
SELECT /* tocsin schedule_name */
    name
FROM {database}.schedule FORCE INDEX (PRIMARY)
WHERE schedule_id = {schedule_id}`)

// ScheduleName reads the name of the schedule with the id that its runs' keys have; "": there is none.
func (s *Store) ScheduleName(ctx context.Context, schedule tocsin.JobID) (name string, err error) {
	table := schedule.Table()
	if s.ServerOf(table) < 0 {
		return "", s.refuse(0, table)
	}
	database := s.layout.DatabaseOf(table)
	sv, text := s.homeOf(database), scheduleName.render(nil, s.ofDatabase(database, slots{"schedule_id": schedule}))
	err = s.gated(sv)(ctx, []int{database}, scheduleName.name, text, scanOne(&name))
	return name, s.wrap(err, "read schedule "+schedule.String()+" of", sv, table)
}
