package store

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"math"
	"slices"
)

// MaxRecent is how many runs of each database RecentRuns looks at: the newest.
const MaxRecent = 2000

// recentBefore reads the newest run of one database that RecentRuns does not look at: it passes {looked} entries of the
// primary key. Zero rows: it looks at all.
var recentBefore = prepare(`
(SELECT /* tocsin recent_before */
    {database_no},
    run_id,
    started,
    duration_ms
FROM {database}.run FORCE INDEX (PRIMARY)
ORDER BY run_id DESC
LIMIT 1 OFFSET {looked})`)

// recentRuns reads some of the runs of one database behind a run_id, the latest start first: a range of the primary key, of
// at most MaxRecent rows, which it sorts. {which} are conditions or nothing. {named} says which schedules are named.
var recentRuns = prepare(`
(SELECT /* tocsin recent_runs */ STRAIGHT_JOIN
    r.run_id,
    r.job_id,
    IFNULL(r.schedule_id, 0),
    r.biz_type,
    r.version,
    r.attempt,
    r.node,
    r.started,
    r.lateness_ms,
    r.duration_ms,
    r.outcome,
    r.output,
    IFNULL(s.name, '')
FROM {database}.run AS r FORCE INDEX (PRIMARY)
LEFT JOIN {database}.schedule AS s FORCE INDEX (PRIMARY) ON s.schedule_id = r.schedule_id {named}
WHERE r.run_id > {behind}
  {which}
ORDER BY r.started DESC, r.run_id DESC
LIMIT {limit})`)

// The {which} and {named} of recentRuns.
var (
	recentTypes   = prepare(`AND r.biz_type IN ({types})`)
	recentNamed   = prepare(`AND s.biz_type IN ({types})`)
	recentFrom    = prepare(`AND r.started >= {from}`)
	recentTo      = prepare(`AND r.started < {to}`)
	recentAfter   = prepare(`AND (r.started < {started} OR r.started = {started} AND r.run_id < {run_id})`)
	recentOutcome = prepare(`AND r.outcome = ?`)
	recentFailed  = prepare(`AND r.outcome IN ('` + RunRetried + `', '` + RunBuried + `', '` + RunCutOff + `', '` + RunMissed + `')`)
	recentApp     = prepare(`AND s.app = ?`)
	recentName    = prepare(`AND s.name = ?`)
)

// RunFailed stands for all outcomes of attempts that did not do what was to be done.
const RunFailed = "failed"

// RecentQuery names some of the newest runs of each database.
type RecentQuery struct {
	Types    []uint64     // numbers of biz types; nil: any
	Named    []uint64     // numbers of the biz types whose schedules are named, and found by App and Schedule; nil: all
	Outcome  string       // or RunFailed; "": any
	App      string       // of the schedule whose run it is; "": any
	Schedule string       // its name; "": any
	From     int64        // started then or later, Unix ms; 0: any
	To       int64        // started before then; 0: any
	After    *RecentPlace // where the page before ended; nil: from the latest start on
	Limit    int          // of each server
}

// RecentPlace is a run's place in the order of RecentRuns.
type RecentPlace struct {
	Started  int64 // Unix ms
	Database int
	ID       uint64 // run_id
}

// Recent are runs of one server, the latest start first.
type Recent struct {
	Runs     []Run
	Complete int64 // Unix ms: runs that had ended by then may be missing, as others are newer; 0: all were looked at
}

// RecentRuns looks at the newest MaxRecent runs of each database of a server, and returns those that are asked for. What
// could be read stands beside the error, which names databases.
func (s *Store) RecentRuns(ctx context.Context, server int, q RecentQuery) (found Recent, err error) {
	sv := s.servers[server]
	databases := sv.refused().without(sv.Databases)
	behind := map[int]uint64{}
	ends, failed, err := eachDatabase(ctx, s, s.gated(sv), databases, question[int64]{
		statement: recentBefore, in: slots{"looked": MaxRecent},
		scan: func(rows *sql.Rows) (int64, error) {
			var database int
			var id uint64
			var started instant
			var took int64
			err := rows.Scan(&database, &id, &started, &took)
			behind[database] = id
			return int64(started) + took, err
		},
	})
	if err != nil {
		return found, s.unread(sv, "runs", failed, err)
	}
	if len(ends) > 0 {
		found.Complete = slices.Max(ends)
	}
	databases = slices.DeleteFunc(slices.Clone(databases), func(database int) bool { return failed[database] != nil })
	runs, unread, err := eachDatabase(ctx, s, s.gated(sv), databases, question[Run]{
		statement: recentRuns, args: q.args(),
		text: func(b []byte, database int) []byte {
			return recentRuns.render(b, s.ofDatabase(database, q.slots(database, behind[database])))
		},
		scan: into(func(r *Run) []any {
			return []any{&r.ID, &r.JobID, &r.Schedule, &r.Type, &r.Version, &r.Attempt, &r.Node, (*instant)(&r.Started), &r.Lateness, &r.Took, &r.Outcome, &r.Output, &r.Name}
		}),
	})
	maps.Copy(failed, unread)
	slices.SortFunc(runs, s.CompareRecent)
	found.Runs = runs[:min(len(runs), q.Limit)]
	return found, s.unread(sv, "runs", failed, err)
}

// CompareRecent is the order of RecentRuns: the latest start first.
func (s *Store) CompareRecent(a, b Run) int {
	return cmp.Or(cmp.Compare(b.Started, a.Started), cmp.Compare(s.RunsIn(a.JobID), s.RunsIn(b.JobID)), cmp.Compare(b.ID, a.ID))
}

// slots are those of recentRuns in a database, behind a run_id.
func (q RecentQuery) slots(database int, behind uint64) slots {
	in := slots{"behind": behind, "limit": q.Limit, "named": ""}
	var which []byte
	add := func(part statement, in slots) { which = part.render(append(which, ' '), in.fill) }
	if q.Named != nil {
		in["named"] = recentNamed.render(nil, slots{"types": q.Named}.fill)
	}
	if q.Types != nil {
		add(recentTypes, slots{"types": q.Types})
	}
	if q.From != 0 {
		add(recentFrom, slots{"from": instant(q.From)})
	}
	if q.To != 0 {
		add(recentTo, slots{"to": instant(q.To)})
	}
	if q.Outcome == RunFailed {
		add(recentFailed, nil)
	}
	if p := q.After; p != nil {
		before := p.ID
		switch { // of one start, those of the databases before it came on that page, and those of the others follow
		case database < p.Database:
			before = 0
		case database > p.Database:
			before = math.MaxUint64
		}
		add(recentAfter, slots{"started": instant(p.Started), "run_id": before})
	}
	for _, text := range q.texts() {
		if text.is != "" {
			add(text.condition, nil)
		}
	}
	in["which"] = which
	return in
}

// recentText is a condition with a text that somebody has written.
type recentText struct {
	condition statement
	is        string // "": any
}

// texts are the conditions with arguments.
func (q RecentQuery) texts() []recentText {
	outcome := q.Outcome
	if outcome == RunFailed {
		outcome = ""
	}
	return []recentText{{recentOutcome, outcome}, {recentApp, q.App}, {recentName, q.Schedule}}
}

// args are the arguments for one database.
func (q RecentQuery) args() (args []any) {
	for _, text := range q.texts() {
		if text.is != "" {
			args = append(args, text.is)
		}
	}
	return args
}
