package api

import (
	"context"
	"net/http"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
)

// scheduleRuns registers the operations that show the history of a schedule.
func (a *API) scheduleRuns() {
	register(a, operation{
		id: "list_schedule_runs", method: http.MethodGet, path: "/schedules/{name}/runs", tag: "schedules", needs: apitoken.Read,
		summary: "Say what became of the runs of a schedule",
		about: "One entry for each attempt, the latest first. Pages may be short: go on until there is no next_cursor. Runs that are still to come are tasks: list " +
			"those of the schedule's biz_id or key.",
		errors: []int{http.StatusNotFound, http.StatusConflict},
	}, a.listScheduleRuns)
}

func (a *API) listScheduleRuns(ctx context.Context, c *call, in *struct {
	BySchedule
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Runs of a page at most"`
	Cursor string `query:"cursor" maxLength:"200" doc:"next_cursor of the page before"`
}) (*body[Runs], error) {
	_, found, err := a.timer(ctx, c, in.BySchedule)
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
	page := Runs{Runs: []Run{}}
	for _, r := range runs {
		if c.sees(r.BizType) { // the schedule may have had another one
			page.Runs = append(page.Runs, runOf(r))
		}
	}
	if len(runs) == in.Limit {
		page.NextCursor = cursor(operator.Place{JobID: tocsin.JobID(runs[in.Limit-1].ID)}, filter)
	}
	return &body[Runs]{page}, nil
}
