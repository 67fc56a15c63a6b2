package operator

import (
	"context"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/store"
)

// MaxRuns is the largest number of runs that Runs returns.
const MaxRuns = 1000

// Run is what became of one attempt of a task whose biz type keeps a history, or of a schedule's run that was not delivered.
type Run struct {
	ID         uint64       `json:"run_id,string"`
	JobID      tocsin.JobID `json:"job_id"`
	Schedule   uint64       `json:"schedule_id,string,omitempty"` // 0: no run of a schedule
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

// RunsQuery names runs of one task or of one schedule.
type RunsQuery struct {
	JobID    tocsin.JobID // 0: those of a schedule
	Schedule uint64       // schedule_id
	Before   uint64       // only runs with a lower ID, to page on; 0: from the latest on
	Limit    int          // 1 to MaxRuns
}

// Runs returns runs, the latest first. They may outlive their task or schedule. An empty result may mean that the biz
// type keeps no history, or that the runs were purged.
func (o *Operator) Runs(ctx context.Context, q RunsQuery) ([]Run, error) {
	switch {
	case q.Limit < 1 || q.Limit > MaxRuns:
		return nil, refuse(tocsin.ErrInvalid, "limit %d: use 1 to %d", q.Limit, MaxRuns)
	case (q.JobID == 0) == (q.Schedule == 0):
		return nil, refuse(tocsin.ErrInvalid, "name a job_id or a schedule_id")
	}
	found, err := o.tables.Runs(ctx, store.RunsQuery(q))
	if err != nil || len(found) == 0 {
		return []Run{}, err
	}
	policies, err := biztype.Load(ctx, o.cfg)
	if err != nil && len(policies) == 0 {
		return nil, err
	}
	runs := make([]Run, len(found))
	for i, r := range found {
		runs[i] = runOf(policies, r)
	}
	return runs, nil
}

// runOf is a run as users see it.
func runOf(policies []biztype.Policy, r store.Run) Run {
	return Run{
		ID: r.ID, JobID: r.JobID, Schedule: r.Schedule, BizType: biztype.NameOf(policies, r.Type), Version: r.Version,
		Attempt: r.Attempt, Node: r.Node, Started: time.UnixMilli(r.Started).UTC(), LatenessMS: r.Lateness, DurationMS: r.Took,
		Outcome: r.Outcome, Output: r.Output,
	}
}
