package operator

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/schedule"
)

// MaxRuns is the largest number of runs that Runs returns.
const MaxRuns = 1000

// Run is what became of one attempt of a task whose biz type keeps a history, or of a schedule's run that was not delivered.
type Run struct {
	ID         uint64       `json:"run_id,string"`
	JobID      tocsin.JobID `json:"job_id"`
	Schedule   uint64       `json:"schedule_id,string,omitempty"` // 0: no run of a schedule
	Name       string       `json:"schedule,omitempty"`           // of the schedule; "": it was deleted
	FireTime   time.Time    `json:"fire_time,omitzero"`           // the time that the run is for, without jitter; zero: for none, or its task was cancelled or purged
	For        schedule.Why `json:"for,omitempty"`                // what the run was made for; "": its task was cancelled or purged
	BizType    string       `json:"biz_type"`                     // its name; "#7" where number 7 has no name here
	Version    uint32       `json:"version"`                      // of the task, as delivered
	Attempt    int          `json:"attempt"`                      // from 1
	Node       string       `json:"node"`                         // who delivered
	Started    time.Time    `json:"started"`                      // by the server's clock
	LatenessMS int64        `json:"lateness_ms"`                  // the start minus the action time
	DurationMS int64        `json:"duration_ms"`                  // until the handler returned, or its time was over
	Outcome    string       `json:"outcome"`                      // store.RunCompleted or another
	Output     string       `json:"output"`                       // at most tocsin.MaxOutput characters; of a failed attempt, its error comes first
}

// RunsQuery names runs of one task or of one schedule, at most MaxRuns.
type RunsQuery = store.RunsQuery

// Runs returns runs, the latest first. They may outlive their task or schedule. An empty result may mean that the biz
// type keeps no history, or that the runs were purged.
func (o *Operator) Runs(ctx context.Context, q RunsQuery) ([]Run, error) {
	switch {
	case q.Limit < 1 || q.Limit > MaxRuns:
		return nil, client.Refuse(tocsin.ErrInvalid, "limit %d: use 1 to %d", q.Limit, MaxRuns)
	case (q.JobID == 0) == (q.Schedule == 0):
		return nil, client.Refuse(tocsin.ErrInvalid, "name a job_id or a schedule_id")
	}
	found, err := o.tables.Runs(ctx, q)
	if err != nil || len(found) == 0 {
		return []Run{}, err
	}
	policies, _, err := o.policies(ctx)
	if err != nil {
		return nil, err
	}
	runs := runsOf(policies, found)
	return runs, o.nameRuns(ctx, runs)
}

// runsOf are runs as users see them.
func runsOf(policies []biztype.Policy, found []store.Run) []Run {
	runs := make([]Run, len(found))
	for i, r := range found {
		runs[i] = Run{
			ID: r.ID, JobID: r.JobID, Schedule: r.Schedule, Name: r.Name, BizType: biztype.NameOf(policies, r.Type), Version: r.Version,
			Attempt: r.Attempt, Node: r.Node, Started: time.UnixMilli(r.Started).UTC(), LatenessMS: r.Lateness, DurationMS: r.Took,
			Outcome: r.Outcome, Output: r.Output,
		}
	}
	return runs
}

// Outcomes are all that may become of an attempt.
var Outcomes = []string{
	store.RunCompleted, store.RunRetried, store.RunSnoozed, store.RunBuried, store.RunCancelled, store.RunRescheduled, store.RunLost, store.RunCutOff,
	store.RunMissed, store.RunSkipped,
}

// Failed is the Outcome of a RecentQuery that finds runs which did not do what was to be done: retried, buried, cut_off and missed ones.
const Failed = "failed" // store.RunFailed

// RecentQuery names some of the newest runs of each database.
type RecentQuery struct {
	Outcome  string            // one of Outcomes, or Failed; "": any
	App      string            // of the schedule whose run it is; "": any
	Schedule string            // its name; "": any
	BizType  string            // "": any
	Sees     func(string) bool // the biz types that may be found, by name; nil: all, also those without a name
	From     time.Time         // started then or later; zero: any
	To       time.Time         // started before then; zero: any
	After    *RecentPlace      // where the page before ended; nil: from the latest start on
	Limit    int               // 1 to MaxRuns
}

// RecentPlace is a run's place in the order of RecentRuns.
type RecentPlace = store.RecentPlace

// Recent is a page of the newest runs.
type Recent struct {
	Runs     []Run        `json:"runs"`                   // the latest start first, without fire times
	Complete time.Time    `json:"complete_from,omitzero"` // runs that had ended by then may be missing, as others are newer; zero: none is
	Next     *RecentPlace `json:"-"`                      // where the page ended; nil: there is no more
}

// RecentRuns returns runs of all tasks and schedules, the latest start first. It looks at the newest 2,000 rows of each
// database, whatever is asked for. A schedule that Sees does not allow is not named. If not all servers answer, what was
// found stands beside an error, a Partial.
func (o *Operator) RecentRuns(ctx context.Context, q RecentQuery) (Recent, error) {
	page := Recent{Runs: []Run{}}
	if q.Limit < 1 || q.Limit > MaxRuns {
		return page, client.Refuse(tocsin.ErrInvalid, "limit %d: use 1 to %d", q.Limit, MaxRuns)
	}
	if err := client.CheckSpan("from", q.From, "to", q.To); err != nil {
		return page, err
	}
	policies, only, err := o.types(ctx, q.BizType, q.Sees)
	if err != nil {
		return page, err
	}
	of := store.RecentQuery{Types: only, Named: seen(policies, q.Sees), Outcome: q.Outcome, App: q.App, Schedule: q.Schedule, After: q.After, Limit: q.Limit + 1}
	if !q.From.IsZero() {
		of.From = q.From.UnixMilli()
	}
	if !q.To.IsZero() {
		of.To = q.To.UnixMilli()
	}
	found := make([]store.Recent, len(o.tables.Servers()))
	errs := o.tables.Everywhere(ctx, func(server int) (err error) {
		found[server], err = o.tables.RecentRuns(ctx, server, of)
		return err
	})
	var runs []store.Run
	for _, some := range found {
		runs = append(runs, some.Runs...)
		if end := time.UnixMilli(some.Complete).UTC(); some.Complete != 0 && end.After(page.Complete) && end.After(q.From) {
			page.Complete = end
		}
	}
	slices.SortFunc(runs, o.tables.CompareRecent)
	if len(runs) > q.Limit {
		runs = runs[:q.Limit]
		last := runs[q.Limit-1]
		page.Next = &RecentPlace{Started: last.Started, Database: o.tables.RunsIn(last.JobID), ID: last.ID}
	}
	page.Runs = runsOf(policies, runs)
	return page, store.Lacking(o.tables.Servers(), errs)
}

// seen are the numbers of the biz types that sees allows; nil, which means all, if it is nil.
func seen(policies []biztype.Policy, sees func(string) bool) []uint64 {
	if sees == nil {
		return nil
	}
	numbers := []uint64{}
	for _, p := range policies {
		if sees(p.Name) {
			numbers = append(numbers, p.Number)
		}
	}
	return numbers
}

// nameRuns adds the names of schedules, the fire times and what runs were made for. Runs of one query are of one schedule at most, and of one server.
func (o *Operator) nameRuns(ctx context.Context, runs []Run) error {
	of := tocsin.JobID(runs[0].Schedule)
	if of == 0 {
		return nil
	}
	name, err := o.tables.ScheduleName(ctx, of)
	if err != nil {
		return err
	}
	keys := map[tocsin.JobID]ids.RunKey{}
	for _, r := range runs {
		keys[r.JobID] = ids.RunKey{}
	}
	server := o.tables.ServerOf(of.Table())
	for some := range slices.Chunk(slices.Collect(maps.Keys(keys)), lookAtOnce) {
		tasks, err := o.tables.Look(ctx, server, some)
		if err != nil {
			return err
		}
		for _, task := range tasks {
			keys[task.JobID], _ = ids.ParseRunKey(task.DedupKey)
		}
	}
	for i := range runs {
		runs[i].Name = name
		if key := keys[runs[i].JobID]; key.Schedule != 0 {
			runs[i].FireTime, runs[i].For = key.Nominal(), schedule.Why(key.Kind.String())
		}
	}
	return nil
}

// NameSchedule sets Schedule and FireTime of a task that is the run of a schedule, if its row tells: one that was cancelled has
// lost its dedup_key. The name of a schedule that was deleted is "".
func (o *Operator) NameSchedule(ctx context.Context, task *tocsin.Info) error {
	schedule, fire := runOfKey(task.DedupKey)
	if schedule == 0 {
		return nil
	}
	name, err := o.tables.ScheduleName(ctx, schedule)
	task.Schedule, task.FireTime = name, fire
	return err
}

// runOfKey returns which schedule a run is of, and its fire time; 0: a task with this dedup_key is no run.
func runOfKey(dedupKey string) (schedule tocsin.JobID, fire time.Time) {
	if key, ok := ids.ParseRunKey(dedupKey); ok {
		return tocsin.JobID(key.Schedule), key.Nominal()
	}
	return 0, time.Time{}
}
