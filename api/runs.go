package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/schedule"
)

// runs registers the operations that show the attempts of tasks, and the history of a schedule.
func (a *API) runs() {
	register(a, operation{
		id: "list_task_runs", method: http.MethodGet, path: "/tasks/{id}/runs", tag: "tasks", needs: apitoken.Read, connects: true,
		summary: "Say what became of each attempt of a task",
		about: "The latest first. The biz type must keep a history, or the task be a run of a schedule; otherwise there are none. Runs outlive the row of their " +
			"task, if that is purged first.",
		errors: []int{http.StatusNotFound},
	}, a.listTaskRuns)
	register(a, operation{
		id: "list_schedule_runs", method: http.MethodGet, path: "/schedules/{name}/runs", tag: "schedules", needs: apitoken.Read, connects: true,
		summary: "Say what became of the runs of a schedule",
		about: "runs is the history: one entry for each attempt, the latest first. Pages may be short: go on until there is no next_cursor. unsettled, on the first page " +
			"alone, are runs that are pending or being delivered, the first to be delivered first, at most limit of them. A run that is tried again is in both.",
		errors: []int{http.StatusNotFound, http.StatusConflict},
	}, a.listScheduleRuns)
}

// runsQuery says which runs of a task to list.
type runsQuery struct {
	ByTask
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
	For        string `json:"for,omitempty" enum:"fire_time,backfill,run_now" doc:"Of the run of a schedule: what it was made for; left out if the task was cancelled or purged, and of GET /v1/runs"`
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
		out.ScheduleID, out.Schedule, out.FireTime, out.For = idOf(r.Schedule), r.Name, timeOf(r.FireTime), string(r.For)
	}
	return out
}

// Runs is a page of runs.
type Runs struct {
	Runs       []Run  `json:"runs"`
	NextCursor string `json:"next_cursor,omitempty" doc:"Where the next page begins; left out on the last page"`
}

func (a *API) listTaskRuns(ctx context.Context, c *call, in *runsQuery) (page Runs, err error) {
	client, info, gone := a.visible(ctx, c, in.ByTask) // the row may have been purged: then the biz type is read from the runs
	id := info.JobID
	if p := (*Problem)(nil); client == nil || gone != nil && !errors.As(gone, &p) || id.Table() >= client.Layout().Total() {
		return page, gone
	}
	page, err = a.pageOfRuns(ctx, c, operator.RunsQuery{JobID: id, Limit: in.Limit}, in.Cursor, "runs of "+id.String())
	if err == nil && gone != nil && len(page.Runs) == 0 { // nothing is said of runs that the caller may not see, not even how many there are
		if page.NextCursor = ""; in.Cursor == "" {
			err = gone
		}
	}
	return page, err
}

// pageOfRuns reads the runs that the caller may see.
func (a *API) pageOfRuns(ctx context.Context, c *call, q operator.RunsQuery, from, filter string) (page Runs, err error) {
	after, err := readCursor(from, filter)
	if err != nil {
		return page, err
	}
	if after != nil {
		q.Before = uint64(after.JobID)
	}
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return page, err
	}
	runs, err := people.Runs(ctx, q)
	page.Runs = []Run{}
	for _, r := range runs {
		if c.sees(r.BizType) { // a schedule may have had another one
			page.Runs = append(page.Runs, runOf(r))
		}
	}
	if len(runs) == q.Limit {
		page.NextCursor = cursor(operator.Place{JobID: tocsin.JobID(runs[q.Limit-1].ID)}, filter)
	}
	return page, err
}

// OpenRun is a run that is pending or being delivered.
type OpenRun struct {
	JobID      ID     `json:"job_id" doc:"Of the task that the run is"`
	For        string `json:"for" enum:"fire_time,backfill,run_now" doc:"What it was made for"`
	FireTime   *Time  `json:"fire_time,omitempty" doc:"The time that the run is for, without jitter; left out for run_now"`
	DueTime    Time   `json:"due_time" doc:"As it was made, with the schedule's jitter"`
	Status     string `json:"status" enum:"pending,claimed"`
	ActionTime Time   `json:"action_time" doc:"When it is delivered, or delivered again; while it is claimed, until when"`
	Attempts   int    `json:"attempts" doc:"That have ended"`
}

// ScheduleRuns is a page of the history of a schedule, and on the first page what comes before it.
type ScheduleRuns struct {
	Unsettled []OpenRun `json:"unsettled,omitzero" required:"false" doc:"Of the first page: runs that are not settled"`
	Runs
}

// openRuns reads the runs that are not settled.
func openRuns(ctx context.Context, timers *schedule.Schedules, name string, limit int) ([]OpenRun, error) {
	found, err := timers.OpenRuns(ctx, name, limit)
	open := make([]OpenRun, len(found))
	for i, r := range found {
		open[i] = OpenRun{
			JobID: idOf(uint64(r.JobID)), For: string(r.For), DueTime: Time{r.Due}, Status: r.Status.String(), ActionTime: Time{r.Action}, Attempts: r.Attempts,
		}
		if !r.Time.IsZero() {
			open[i].FireTime = &Time{r.Time}
		}
	}
	return open, err
}

func (a *API) listScheduleRuns(ctx context.Context, c *call, in *struct {
	BySchedule
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Runs of a page at most, and open ones"`
	Cursor string `query:"cursor" maxLength:"200" doc:"next_cursor of the page before"`
}) (page ScheduleRuns, err error) {
	timers, found, err := a.timer(ctx, c, in.BySchedule)
	if err != nil {
		return page, err
	}
	page.Runs, err = a.pageOfRuns(ctx, c, operator.RunsQuery{Schedule: uint64(found.ID), Limit: in.Limit}, in.Cursor, "runs of schedule "+found.ID.String())
	if err == nil && in.Cursor == "" {
		if page.Unsettled, err = openRuns(ctx, timers, in.Name, in.Limit); err != nil {
			err = scheduleProblem(err, in.Name, found.BizType)
		}
	}
	return page, err
}
