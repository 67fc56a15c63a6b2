package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/schedule"
)

// schedules registers the operations that look up schedules.
func (a *API) schedules() {
	register(a, operation{
		id: "list_schedules", method: http.MethodGet, path: "/schedules", tag: "schedules", needs: apitoken.Read,
		summary: "List schedules",
		about:   "In the order of their names. Pages may be short: go on until there is no next_cursor.",
		errors:  []int{http.StatusNotFound},
	}, a.listSchedules)
	registerWhole(a, operation{
		id: "get_schedule", method: http.MethodGet, path: "/schedules/{name}", tag: "schedules", needs: apitoken.Read,
		summary: "Get a schedule", errors: []int{http.StatusNotFound, http.StatusConflict},
	}, a.getSchedule)
	register(a, operation{
		id: "list_fire_times", method: http.MethodGet, path: "/schedules/{name}/next", tag: "schedules", needs: apitoken.Read,
		summary: "List the next fire times of a schedule",
		about:   "Those from now on, by the clock of its database, that the schedule has if it is active. A schedule that ends has fewer.",
		errors:  []int{http.StatusNotFound, http.StatusConflict},
	}, a.listFireTimes)
}

// BySchedule names a schedule in a path.
type BySchedule struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the schedule" example:"report.daily"`
}

// schedulesQuery says which schedules to list.
type schedulesQuery struct {
	App     string        `query:"app" maxLength:"64" doc:"Of this app only"`
	BizType string        `query:"biz_type" maxLength:"64" doc:"With runs of this biz type only"`
	State   ScheduleState `query:"state" doc:"In this state only"`
	Limit   int           `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Schedules of a page at most"`
	Cursor  string        `query:"cursor" maxLength:"200" doc:"next_cursor of the page before, with the same other parameters"`
}

// filter describes the list that a cursor is valid for.
func (q *schedulesQuery) filter() string {
	return "schedules\n" + q.App + "\n" + q.BizType + "\n" + string(q.State)
}

// Schedules is a page of schedules.
type Schedules struct {
	Schedules  []Schedule `json:"schedules"`
	NextCursor string     `json:"next_cursor,omitempty" doc:"Where the next page begins; left out on the last page"`
	Incomplete []string   `json:"incomplete,omitempty" doc:"Servers that could not be asked in full: their schedules may be missing"`
}

func (a *API) listSchedules(ctx context.Context, c *call, in *schedulesQuery) (page Schedules, err error) {
	if in.BizType != "" && !c.sees(in.BizType) {
		return page, noType(in.BizType)
	}
	after := ""
	if in.Cursor != "" {
		place, err := unseal(in.Cursor, in.filter())
		if err != nil || name.CheckLower("name", string(place)) != nil {
			return page, cmp.Or(err, badCursor(foreignCursor))
		}
		after = string(place)
	}
	timers, err := a.backend.timers.get(ctx)
	if err != nil {
		return page, err
	}
	found, err := timers.List(ctx, schedule.Query{
		App: in.App, BizType: in.BizType, Sees: c.filter(), State: schedule.State(in.State), After: after, Limit: in.Limit + 1,
	})
	page.Schedules = make([]Schedule, min(len(found), in.Limit))
	if page.Incomplete, err = c.incomplete(err, len(found) > 0); err != nil {
		return page, addProblem(err, in.BizType, "")
	}
	for i := range page.Schedules {
		page.Schedules[i] = scheduleOf(found[i])
	}
	if len(found) > in.Limit {
		page.NextCursor = seal([]byte(found[in.Limit-1].Name), in.filter())
	}
	return page, nil
}

// timer reads a schedule that the caller may see.
func (a *API) timer(ctx context.Context, c *call, of BySchedule) (timers *schedule.Schedules, found schedule.Schedule, err error) {
	c.object = "schedule " + line(of.Name)
	if name.CheckLower("name", of.Name) != nil {
		return nil, found, noSchedule(of.Name)
	}
	if timers, err = a.backend.timers.get(ctx); err != nil {
		return nil, found, err
	}
	found, err = timers.Get(ctx, of.Name)
	switch {
	case errors.Is(err, schedule.ErrNotFound), err == nil && !c.sees(found.BizType):
		return nil, schedule.Schedule{}, noSchedule(of.Name)
	case err != nil:
		return nil, found, err
	}
	c.object += " of " + found.BizType
	return timers, found, nil
}

func (a *API) getSchedule(ctx context.Context, c *call, in *BySchedule) (*TaggedSchedule, error) {
	_, found, err := a.timer(ctx, c, *in)
	if err != nil {
		return nil, err
	}
	return taggedOf(found), nil
}

// FireTimes are fire times of a schedule.
type FireTimes struct {
	State ScheduleState `json:"state" doc:"Of the schedule: unless it is active, no runs are made for these times"`
	Times []FireTime    `json:"times"`
}

func (a *API) listFireTimes(ctx context.Context, c *call, in *struct {
	BySchedule
	N int `query:"n" minimum:"1" maximum:"100" default:"10" doc:"How many at most"`
}) (out FireTimes, err error) {
	_, found, err := a.timer(ctx, c, in.BySchedule)
	if err != nil {
		return out, err
	}
	fires, err := found.Following(found.ReadAt, in.N)
	return FireTimes{ScheduleState(found.State), fireTimesOf(fires)}, err
}
