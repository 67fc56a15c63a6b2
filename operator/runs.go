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
	runs := make([]Run, len(found))
	for i, r := range found {
		runs[i] = Run{
			ID: r.ID, JobID: r.JobID, Schedule: r.Schedule, BizType: biztype.NameOf(policies, r.Type), Version: r.Version,
			Attempt: r.Attempt, Node: r.Node, Started: time.UnixMilli(r.Started).UTC(), LatenessMS: r.Lateness, DurationMS: r.Took,
			Outcome: r.Outcome, Output: r.Output,
		}
	}
	return runs, o.nameRuns(ctx, runs)
}

// nameRuns adds the names of schedules and the fire times. Runs of one query are of one schedule at most, and of one server.
func (o *Operator) nameRuns(ctx context.Context, runs []Run) error {
	schedule := tocsin.JobID(runs[0].Schedule)
	if schedule == 0 {
		return nil
	}
	name, err := o.tables.ScheduleName(ctx, schedule)
	if err != nil {
		return err
	}
	fires := map[tocsin.JobID]time.Time{}
	for _, r := range runs {
		fires[r.JobID] = time.Time{}
	}
	server := o.tables.ServerOf(schedule.Table())
	for ids := range slices.Chunk(slices.Collect(maps.Keys(fires)), lookAtOnce) {
		tasks, err := o.tables.Look(ctx, server, ids)
		if err != nil {
			return err
		}
		for _, task := range tasks {
			_, fires[task.JobID] = runOfKey(task.DedupKey)
		}
	}
	for i := range runs {
		runs[i].Name, runs[i].FireTime = name, fires[runs[i].JobID]
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
