package api

import (
	"context"
	"net/http"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/schedule"
)

// scheduleRuns registers the operations that show the history of a schedule.
func (a *API) scheduleRuns() {
	register(a, operation{
		id: "list_schedule_runs", method: http.MethodGet, path: "/schedules/{name}/runs", tag: "schedules", needs: apitoken.Read, connects: true,
		summary: "Say what became of the runs of a schedule",
		about: "runs is the history: one entry for each attempt, the latest first. Pages may be short: go on until there is no next_cursor. unsettled, on the first page " +
			"alone, are runs that are pending or being delivered, the first to be delivered first, at most limit of them. A run that is tried again is in both.",
		errors: []int{http.StatusNotFound, http.StatusConflict},
	}, a.listScheduleRuns)
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
}) (*body[ScheduleRuns], error) {
	timers, found, err := a.timer(ctx, c, in.BySchedule)
	if err != nil {
		return nil, err
	}
	filter := "runs of schedule " + found.ID.String()
	after, err := readCursor(in.Cursor, filter)
	if err != nil {
		return nil, err
	}
	q := operator.RunsQuery{Schedule: uint64(found.ID), Limit: in.Limit}
	if after != nil {
		q.Before = uint64(after.JobID)
	}
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return nil, err
	}
	runs, err := people.Runs(ctx, q)
	if err != nil {
		return nil, err
	}
	page := ScheduleRuns{Runs: Runs{Runs: []Run{}}}
	if after == nil {
		if page.Unsettled, err = openRuns(ctx, timers, in.Name, in.Limit); err != nil {
			return nil, scheduleProblem(err, in.Name, found.BizType)
		}
	}
	for _, r := range runs {
		if c.sees(r.BizType) { // the schedule may have had another one
			page.Runs.Runs = append(page.Runs.Runs, runOf(r))
		}
	}
	if len(runs) == in.Limit {
		page.NextCursor = cursor(operator.Place{JobID: tocsin.JobID(runs[in.Limit-1].ID)}, filter)
	}
	return &body[ScheduleRuns]{page}, nil
}
