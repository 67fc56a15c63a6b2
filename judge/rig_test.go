package judge

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/runkey"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/store"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// base is a fire time of the tests' schedules; their judge's clock stands ten seconds behind it.
var base = time.Date(2026, 11, 2, 3, 0, 0, 0, time.UTC)

const after = 10 * time.Second

// rig is a judge around a target, on one table of its own.
type rig struct {
	*testing.T
	*Judge
	layout  tocsin.Layout
	store   *store.Store
	db      *sql.DB
	seen    seen
	sink    Sink
	handler func(context.Context, tocsin.Info) error
	last    int // job_ids
	told    []Missed
}

// seen counts what the judge asks for. With away it gets nothing.
type seen struct {
	*store.Store
	away        atomic.Bool
	judged, row atomic.Int32
}

func (s *seen) Judged(ctx context.Context, id tocsin.JobID) (store.Judged, bool, error) {
	s.judged.Add(1)
	if s.away.Load() {
		return store.Judged{}, false, errors.New("connection refused")
	}
	return s.Store.Judged(ctx, id)
}

func (s *seen) RunsFrom(ctx context.Context, ranges ...store.RunRange) ([][]store.RunRow, error) {
	sets, err := s.Store.RunsFrom(ctx, ranges...)
	for _, rows := range sets {
		s.row.Add(int32(len(rows)))
	}
	return sets, err
}

func newRig(t *testing.T) *rig {
	t.Helper()
	layout := tocsin.Layout{Databases: 1, Tables: 1, Prefix: devtest.Prefix(t)}
	cfg := tocsin.Config{Layout: layout, Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}}}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{Cluster: "test"}); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", devtest.DSN(t)+"?parseTime=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = s.Close(), db.Close() })
	r := &rig{T: t, layout: layout, store: s, db: db, seen: seen{Store: s}, handler: func(context.Context, tocsin.Info) error { return nil }}
	r.Judge = r.another()
	r.sink = r.around(r.Judge)
	return r
}

// another makes a judge that knows nothing yet, as a node does that has started.
func (r *rig) another() *Judge {
	j, err := New(Config{Store: &r.seen, Pauser: schedule.NewMaker(r.store), Now: func(int) int64 { return base.Add(after).UnixMilli() }, ServerOf: r.store.ServerOf, Missed: func(m Missed) { r.told = append(r.told, m) }})
	if err != nil {
		r.Fatal(err)
	}
	return j
}

func (r *rig) around(j *Judge) Sink {
	return j.Around(biztype.Policy{Name: "report", Number: 1, Timeout: biztype.Duration(time.Minute)}, target(func(ctx context.Context, tasks []tocsin.Info) []error {
		errs := make([]error, len(tasks))
		for i, task := range tasks {
			errs[i] = r.handler(ctx, task)
		}
		return errs
	}))
}

type target func(context.Context, []tocsin.Info) []error

func (t target) Deliver(ctx context.Context, tasks []tocsin.Info) []error { return t(ctx, tasks) }

func (r *rig) exec(query string, args ...any) {
	r.Helper()
	if _, err := r.db.ExecContext(r.Context(), strings.ReplaceAll(query, "$", r.layout.Database(0)), args...); err != nil {
		r.Fatalf("%s: %v", query, err)
	}
}

// plan is a schedule of a test, of revision 3 unless it says otherwise.
type plan struct {
	cron     string        // "": each minute
	within   time.Duration // 0: a minute
	missed   string        // "": skip
	most     int
	overlap  string // "": allow
	pause    int    // failures in a row after which it is paused
	revision int
}

// schedule stores a schedule and returns its id.
func (r *rig) plan(p plan) uint64 {
	r.Helper()
	r.last++
	id := uint64(r.last) << 22
	r.exec(`INSERT INTO $.schedule (schedule_id, gmt_create, gmt_modified, name, table_no, biz_type, biz_id, cron, zone, start_within_ms, missed,
		missed_most, overlap, pause_after, state, revision, anchor, made_until, attribute)
		VALUES (?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), ?, 0, 1, 7, ?, 'UTC', ?, ?, ?, ?, ?, 'active', ?, '2026-01-01', UTC_TIMESTAMP(3), '')`,
		id, fmt.Sprintf("s%d", id), cmp.Or(p.cron, "* * * * *"), cmp.Or(p.within, time.Minute).Milliseconds(), cmp.Or(p.missed, "skip"), p.most,
		cmp.Or(p.overlap, "allow"), p.pause, cmp.Or(p.revision, 3))
	return id
}

// is is a run of a test, pending and of revision 3 unless it says otherwise.
type is struct {
	at       time.Duration // its fire time, after base
	status   tocsin.Status
	attempts int
	crashes  int
	waited   bool // it was put off
	afterIt  bool // it was made when the judge looks, after its time
	revision uint32
	kind     runkey.Kind   // by hand
	made     time.Duration // by hand: when, after base
	stored   time.Duration // by hand: so long after that
	wrong    time.Duration // by hand: how far ahead the clock of the process that made its id is
}

// add stores a run and returns its id.
func (r *rig) add(schedule uint64, run is) tocsin.JobID {
	r.Helper()
	r.last++
	due := base.Add(run.at)
	made := due.Add(-15 * time.Minute)
	if run.kind != runkey.FireTime {
		made = base.Add(run.made)
	}
	id := tocsin.JobID(made.Add(run.wrong).Sub(tocsin.Epoch).Milliseconds())<<22 | tocsin.JobID(r.last%512)
	key := runkey.OfTime(schedule, cmp.Or(run.revision, 3), due)
	switch run.kind {
	case runkey.Backfill:
		key = runkey.OfBackfill(schedule, due)
	case runkey.Manual:
		key = runkey.OfManual(schedule, uint64(id))
	}
	made = made.Add(run.stored)
	action, by := due, ""
	switch {
	case run.afterIt:
		made = base.Add(after)
		action = made
	case run.status == tocsin.Claimed:
		action, by = base.Add(time.Hour), "other"
	case run.waited:
		action = due.Add(time.Second)
	}
	r.exec(`INSERT INTO $.task_0000 (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attempts, crashes,
		claimed_by, dedup_key, attribute) VALUES (?, ?, UTC_TIMESTAMP(3), 7, 1, ?, ?, ?, ?, ?, ?, ?, '')`,
		uint64(id), made, run.status, action, due, run.attempts, run.crashes, by, []byte(key.String()))
	return id
}

// load reads pending runs in this order.
func (r *rig) load(ids ...tocsin.JobID) []tocsin.Info {
	r.Helper()
	loaded, err := r.store.Load(r.Context(), 0, ids)
	if err != nil || len(loaded.Rows) != len(ids) {
		r.Fatalf("loaded %d of %d, %v", len(loaded.Rows), len(ids), err)
	}
	infos := make([]tocsin.Info, len(ids))
	for _, row := range loaded.Rows {
		infos[slices.Index(ids, row.JobID)] = row.Info
	}
	return infos
}

// deliver delivers runs by a sink in one call, and settles them.
func (r *rig) deliver(by Sink, infos []tocsin.Info) {
	r.Helper()
	r.settle(infos, by.Deliver(r.Context(), infos))
}

func (r *rig) settle(infos []tocsin.Info, errs []error) {
	r.Helper()
	for i, info := range infos {
		verb, in, reason := tocsin.AsOutcome(errs[i])
		outcome := store.Outcome{
			JobID: info.JobID, Verb: verb, Version: info.Version, Attempts: info.Attempts, Action: info.ActionTime.UnixMilli(),
			Next: base.Add(after + max(in, 0)).UnixMilli(), Reason: reason,
		}
		fates, err := r.store.Settle(r.Context(), 0, []store.Outcome{outcome})
		if err != nil {
			r.Fatal(err)
		}
		r.Settled(info.JobID, verb, fates[0] == store.Stored)
	}
}

// became says what a run is now: done, pending, or the reason why it was cancelled.
func (r *rig) became(id tocsin.JobID) string {
	r.Helper()
	rows, err := r.store.Look(r.Context(), 0, []tocsin.JobID{id})
	if err != nil || len(rows) != 1 {
		r.Fatalf("%v, %v", rows, err)
	}
	switch row := rows[0]; {
	case row.Status == tocsin.Cancelled:
		return row.LastError
	case row.Status == tocsin.Pending && row.Action > row.DueTime.UnixMilli():
		return "waits"
	default:
		return row.Status.String()
	}
}
