package schedule

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// RunsConfig is where Runs reports what it decides.
type RunsConfig struct {
	Missed     func(MissedRun)       // called for each run that is missed and each schedule that is paused, concurrently, must be quick; nil: not called
	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: unregistered
}

// MissedRun reports a run that was not delivered because it was too late, or a schedule that was paused.
type MissedRun struct {
	BizType  uint64    // number
	Schedule string    // its name
	Time     time.Time // nominal; zero: the schedule was paused
	Why      string
}

// Runs decides which runs of schedules are delivered, for nodes and sweepers. See Look, Begin and Settle. Safe for concurrent use.
type Runs struct {
	maker   *maker
	cfg     RunsConfig
	metrics *metrics
	limit   loop.LogLimit

	mu         sync.Mutex
	young, old map[tocsin.JobID]*known // by schedule_id: what was read lately; old gives way when young is full
	wary       map[int]time.Time       // by server: until then no lock of a schedule is waited for
}

// How long a schedule that was read counts, and how many are kept, twice as many for a while. A schedule of one revision never changes,
// unless a fail-over loses an edit and another one gets its revision.
const (
	knownFor  = time.Minute
	knownMost = 20_000
)

// NewRuns makes a Runs that sends its statements through the pools of a store.
func NewRuns(tables *store.Store, cfg RunsConfig) *Runs {
	cfg.Logger = loop.Logger(cfg.Logger)
	if cfg.Missed == nil {
		cfg.Missed = func(MissedRun) {}
	}
	return &Runs{maker: &maker{tables: tables}, cfg: cfg, metrics: newMetrics(cfg.Registerer), young: map[tocsin.JobID]*known{}, wary: map[int]time.Time{}}
}

// known is a schedule as it was read.
type known struct {
	*row
	read  time.Time
	times func() (*firetimes.Times, error)
}

func newKnown(r *row) *known {
	return &known{row: r, read: time.Now(), times: sync.OnceValues(r.Times)}
}

// Turn is a run that is about to be delivered, and what its schedule says of it.
type Turn struct {
	Name   string    // of the schedule; "": it was deleted
	Time   time.Time // the nominal fire time; zero: run-now
	Alone  bool      // Begin claims it: other runs of the schedule matter
	Counts bool      // its end is counted by the schedule, for pause_after

	key   ids.RunKey
	known *known // nil: the schedule was deleted
}

// Look returns the turns of those rows that are runs, by job_id. A schedule that was read within a minute costs no statement, unless
// it was changed since the run was made, or the run has waited or failed before. Rows whose schedule can't be read are left out.
func (r *Runs) Look(ctx context.Context, server int, rows []store.Row) map[tocsin.JobID]*Turn {
	var turns map[tocsin.JobID]*Turn
	var unknown []tocsin.JobID
	for i := range rows {
		key, is := ids.ParseRunKey(rows[i].DedupKey)
		if !is {
			continue
		}
		if turns == nil {
			turns = map[tocsin.JobID]*Turn{}
		}
		t := &Turn{key: key, Time: key.Nominal()}
		turns[rows[i].JobID] = t
		if t.known = r.lately(key, siblingOf(&rows[i], key)); t.known == nil {
			unknown = append(unknown, tocsin.JobID(key.Schedule))
		}
	}
	found := r.read(ctx, server, unknown)
	for id, t := range turns {
		if t.known == nil {
			k, read := found[tocsin.JobID(t.key.Schedule)]
			if !read {
				delete(turns, id)
				r.metrics.count(verdictFailed)
				continue
			}
			t.known = k
		}
		t.fill()
	}
	return turns
}

// fill fills in what follows from the schedule. Runs by hand, and those of another revision, need the schedule as it is when they begin.
func (t *Turn) fill() {
	if t.known == nil {
		return
	}
	t.Name = t.known.Name
	t.Alone = t.known.Overlap != OverlapAllow || t.key.Kind != ids.FireTime || t.known.Revision != t.key.Revision
	t.Counts = t.known.PauseAfter > 0 && t.key.Kind == ids.FireTime
}

// siblingOf is a row as the decisions see it.
func siblingOf(r *store.Row, key ids.RunKey) sibling {
	return sibling{
		id: r.JobID, status: r.Status, action: r.ActionTime.UnixMilli(), due: r.DueTime.UnixMilli(), created: r.Created.UnixMilli(),
		attempts: r.Attempts, crashes: r.Crashes, overdue: strings.HasPrefix(r.LastError, madeUpFor), key: r.DedupKey, of: key,
	}
}

// lately returns a schedule that was read before, if that is good enough for a run; else nil.
func (r *Runs) lately(key ids.RunKey, run sibling) *known {
	if !run.first() || run.waited() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := tocsin.JobID(key.Schedule)
	k := r.young[id]
	if k == nil {
		if k = r.old[id]; k != nil {
			r.keep(k)
		}
	}
	if k == nil || k.Revision < key.Revision || time.Since(k.read) > knownFor {
		return nil
	}
	return k
}

// keep is called under mu.
func (r *Runs) keep(k *known) {
	if len(r.young) >= knownMost {
		r.young, r.old = map[tocsin.JobID]*known{}, r.young
	}
	r.young[k.ID] = k
}

// schedulesAtOnce bounds the ids of one question.
const schedulesAtOnce = 500

// lookWithin is the time-out of one question.
const lookWithin = 5 * time.Second

// read reads schedules. One that is not there is nil; what can't be read is left out.
func (r *Runs) read(ctx context.Context, server int, ids []tocsin.JobID) map[tocsin.JobID]*known {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	found := map[tocsin.JobID]*known{}
	layout := r.maker.tables.Layout()
	byDatabase := map[int][]any{}
	for _, id := range ids {
		if r.maker.tables.ServerOf(id.Table()) == server {
			byDatabase[layout.DatabaseOf(id.Table())] = append(byDatabase[layout.DatabaseOf(id.Table())], uint64(id))
		}
	}
	for _, database := range slices.Sorted(maps.Keys(byDatabase)) {
		for part := range slices.Chunk(byDatabase[database], schedulesAtOnce) {
			if err := r.readSome(ctx, server, database, part, found); err != nil && ctx.Err() == nil {
				r.limit.Of(r.cfg.Logger, "look").Warn("schedules can't be read; their runs are put off", "error", err, "schedules", len(part))
			}
		}
	}
	return found
}

func (r *Runs) readSome(ctx context.Context, server, database int, ids []any, found map[tocsin.JobID]*known) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	rows, err := store.Gather(ctx, r.maker.tables, server, []int{database}, "schedules known", readByID(len(ids)), scanRow, ids...)
	if err != nil {
		return err
	}
	for _, id := range ids {
		found[tocsin.JobID(id.(uint64))] = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range rows {
		k := newKnown(row)
		found[k.ID] = k
		r.keep(k)
	}
	return nil
}

// readByID reads schedules by their ids, in one of the databases of a union, without payloads and headers. Primary key. Parameters: the ids.
func readByID(n int) string {
	return `SELECT /* tocsin schedules known */` + strings.Replace(columns, "attribute, headers", "'', NULL", 1) + `
FROM {database}.schedule FORCE INDEX (PRIMARY)
WHERE schedule_id IN (` + list("?", n) + `)`
}

// taskIn fills the name of a task table into a question.
func taskIn(layout tocsin.Layout, table int, question string) string {
	return strings.Replace(question, "{task}", layout.Table(table), 1)
}

// Refused returns why a run that is not Alone is not delivered at a time of its server, in Unix ms; "": it is. The run then ends as cancelled.
func (t *Turn) Refused(row *store.Row, now int64) string {
	switch run := siblingOf(row, t.key); {
	case t.known == nil:
		return reasonDeleted
	case t.key.Kind == ids.FireTime && run.first():
		return t.known.missed(&run, now)
	}
	return ""
}

// Late reports whether a run that was not missed when it was claimed is so now: its delivery must not begin.
func (t *Turn) Late(row *store.Row, now int64) bool {
	return t.known != nil && t.Refused(row, now) != ""
}

// Count counts a run that is not Alone: it was refused for a reason, which is stored, or "" if its delivery begins.
func (r *Runs) Count(t *Turn, row *store.Row, reason string) {
	if reason == "" {
		r.metrics.count(verdictDelivered)
		return
	}
	if strings.HasPrefix(reason, "missed") {
		r.missed(t.known, t.Time, row.Type, reason)
		return
	}
	r.metrics.count(verdictOutdated)
}

func (r *Runs) missed(k *known, at time.Time, bizType uint64, why string) {
	r.metrics.count(verdictMissed)
	r.cfg.Missed(MissedRun{BizType: bizType, Schedule: k.Name, Time: at, Why: why})
}

const reasonDeleted = "cancelled: its schedule was deleted"

// missed returns why a run for a fire time is missed at a time; "": it is not. Lateness counts from the run's time, or of one that has waited, from
// when its turn came. Times are Unix ms.
func (k *known) missed(run *sibling, now int64) string {
	from := run.due
	if run.waited() {
		from = run.action
	}
	late := time.Duration(now-from) * time.Millisecond
	if now == 0 || late <= k.StartWithin.D() {
		return ""
	}
	nominal := run.of.Nominal()
	switch k.Definition.Missed {
	case MissedOnce:
		if k.later(nominal, now, 0, 1) > 0 {
			return fmt.Sprintf("missed: %s late, and a later run is due", late)
		}
		return ""
	case MissedAll:
		if k.later(nominal, now, k.StartWithin.D()+time.Millisecond, k.MissedMost) < k.MissedMost {
			return ""
		}
		return fmt.Sprintf("missed: %s late, and the latest %d of the missed runs are made up for", late, k.MissedMost)
	}
	return fmt.Sprintf("missed: %s late", late)
}

// onTime is how late a run may come before a schedule that makes up for all runs makes up for it, if start_within is longer. A short outage loses no
// more runs than a long one.
const onTime = 5 * time.Second

// madeUpFor begins the last_error of a run that is made up for while it waits for its turn.
const madeUpFor = "made up for: "

// madeUp reports whether a run for a fire time comes so late that it is made up for: now, when it was made, or when it was first put off. It waits for
// its turn, as one by hand does. A run that came on time and has waited since is none.
func (k *known) madeUp(run *sibling, now int64) bool {
	within := k.StartWithin.D()
	switch k.Definition.Missed {
	case MissedSkip:
		return false
	case MissedAll:
		within = min(within, onTime)
	}
	late := func(at int64) bool { return time.Duration(at-run.due)*time.Millisecond > within }
	return !run.byHand() && run.first() && (run.overdue || late(run.created) || !run.waited() && late(now))
}

// later counts the fire times after one that are due for at least overdue at now, up to most. It depends on no row: a
// run may be settled and purged by now.
func (k *known) later(nominal time.Time, now int64, overdue time.Duration, most int) int {
	times, err := k.times()
	if err != nil {
		return 0
	}
	until := time.UnixMilli(now).Add(-overdue - times.Offset())
	return len(between(times, nominal, until.Add(time.Nanosecond), most))
}
