package api

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
)

// runs registers the operations that show the attempts of tasks.
func (a *API) runs() {
	register(a, operation{
		id: "list_task_runs", method: http.MethodGet, path: "/tasks/{id}/runs", tag: "tasks", needs: apitoken.Read, connects: true,
		summary: "Say what became of each attempt of a task",
		about: "The latest first. The biz type must keep a history, or the task be a run of a schedule; otherwise there are none. Runs outlive the row of their " +
			"task, if that is purged first.",
		errors: []int{http.StatusNotFound},
	}, a.listTaskRuns)
}

// runsQuery says which runs of a task to list.
type runsQuery struct {
	ID     ID     `path:"id" doc:"The task's job_id"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Runs of a page at most"`
	Cursor string `query:"cursor" maxLength:"200" doc:"next_cursor of the page before"`
}

// Run is what became of one attempt.
type Run struct {
	RunID      ID     `json:"run_id"`
	JobID      ID     `json:"job_id"`
	ScheduleID ID     `json:"schedule_id,omitempty" doc:"Left out if the task is no run of a schedule"`
	Schedule   string `json:"schedule,omitempty" doc:"Name of the schedule; left out if it was deleted" example:"report.daily"`
	FireTime   *Time  `json:"fire_time,omitempty" doc:"The time that the run is for, without jitter; left out of a run by hand, and if the task was cancelled or purged"`
	BizType    string `json:"biz_type" example:"order.close"`
	Version    int64  `json:"version" doc:"Of the task, as delivered"`
	Attempt    int    `json:"attempt" doc:"From 1"`
	Node       string `json:"node" doc:"Who delivered" example:"host-1-4mzkq7ta"`
	Started    Time   `json:"started" doc:"By the server's clock"`
	LatenessMS int64  `json:"lateness_ms" doc:"The start minus the action time"`
	DurationMS int64  `json:"duration_ms" doc:"Until the handler returned, or its time was over"`
	Outcome    string `json:"outcome" doc:"One word, as tocsin task runs --help lists them" example:"completed"`
	Output     string `json:"output" doc:"Of the handler or the callback; of a failed attempt, its error comes first"`
}

func runOf(r operator.Run) Run {
	out := Run{
		RunID: idOf(r.ID), JobID: idOf(uint64(r.JobID)), BizType: r.BizType, Version: int64(r.Version), Attempt: r.Attempt, Node: r.Node,
		Started: Time{r.Started}, LatenessMS: r.LatenessMS, DurationMS: r.DurationMS, Outcome: r.Outcome, Output: r.Output,
	}
	if r.Schedule != 0 {
		out.ScheduleID, out.Schedule, out.FireTime = idOf(r.Schedule), r.Name, timeOf(r.FireTime)
	}
	return out
}

// Runs is a page of runs.
type Runs struct {
	Runs       []Run  `json:"runs"`
	NextCursor string `json:"next_cursor,omitempty" doc:"Where the next page begins; left out on the last page"`
}

func (a *API) listTaskRuns(ctx context.Context, c *call, in *runsQuery) (*body[Runs], error) {
	id, err := byID{in.ID}.jobID()
	if err != nil {
		return nil, err
	}
	filter := "runs of " + id.String()
	after, err := readCursor(in.Cursor, filter)
	if err != nil {
		return nil, err
	}
	page, err := a.runsOf(ctx, c, id, in.Limit, after)
	if err != nil {
		return nil, err
	}
	out := Runs{Runs: []Run{}}
	for _, r := range page {
		out.Runs = append(out.Runs, runOf(r))
	}
	if len(page) == in.Limit {
		out.NextCursor = cursor(operator.Place{JobID: tocsin.JobID(page[len(page)-1].ID)}, filter)
	}
	return &body[Runs]{out}, nil
}

// runsOf reads runs of a task that the caller may see. If its row has been purged, the biz type is read from its runs.
func (a *API) runsOf(ctx context.Context, c *call, id tocsin.JobID, limit int, after *operator.Place) ([]operator.Run, error) {
	client, err := a.backend.client.get(ctx)
	if err != nil {
		return nil, err
	}
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return nil, err
	}
	_, gone := a.read(ctx, c, client, id)
	if p := (*Problem)(nil); gone != nil && !errors.As(gone, &p) || id.Table() >= client.Layout().Total() {
		return nil, gone
	}
	q := operator.RunsQuery{JobID: id, Limit: limit}
	if after != nil {
		q.Before = uint64(after.JobID)
	}
	runs, err := people.Runs(ctx, q)
	runs = slices.DeleteFunc(runs, func(r operator.Run) bool { return !c.sees(r.BizType) })
	if err == nil && gone != nil && len(runs) == 0 && after == nil {
		err = gone
	}
	return runs, err
}
