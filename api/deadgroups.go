package api

import (
	"context"
	"net/http"
	"time"

	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
)

// deadGroups registers the operation that groups dead tasks.
func (a *API) deadGroups() {
	register(a, operation{
		id: "group_dead_tasks", method: http.MethodGet, path: "/tasks:deadgroups", tag: "tasks", needs: apitoken.Read, connects: true,
		summary: "Group the latest dead tasks by their error",
		about: "Reads the last errors of the latest 1000 dead tasks, and groups them by biz type and error. Numbers, ids, addresses and quoted text in an error count as equal. " +
			"If there may be more dead tasks, more is true: use until to look at those that died before. The part of a group is the error of redrive_tasks.",
		errors: []int{http.StatusNotFound},
	}, a.groupDeadTasks)
}

// deadQuery says which dead tasks to group.
type deadQuery struct {
	BizType string    `query:"biz_type" maxLength:"64" doc:"Of this biz type only"`
	Since   time.Time `query:"since" doc:"Only tasks that died then or later"`
	Until   time.Time `query:"until" doc:"Only tasks that died then or earlier"`
}

// DeadGroups are dead tasks by biz type and error.
type DeadGroups struct {
	Groups     []DeadGroup `json:"groups" doc:"The largest first"`
	Tasks      int         `json:"tasks" doc:"Tasks in all groups, 1000 at most"`
	More       bool        `json:"more" doc:"There may be more dead tasks, which died before these"`
	Incomplete []string    `json:"incomplete,omitempty" doc:"Servers that could not be asked in full: their tasks may be missing"`
}

// DeadGroup is one of the groups.
type DeadGroup struct {
	BizType string `json:"biz_type" doc:"Name of the biz type; #7 if number 7 has no name" example:"order.close"`
	Error   string `json:"error" doc:"The last error of all of them, with * for what differs or may differ" example:"callback answered 503 Service Unavailable: order * is locked"`
	Part    string `json:"part,omitempty" doc:"The longest part of error without *, which stands in the last error of each: the error of redrive_tasks. Other groups may have it too. Left out if there is none" example:"callback answered 503 Service Unavailable: order"`
	Example string `json:"example,omitempty" doc:"The last error of the latest of them, as it is" example:"callback answered 503 Service Unavailable: order 17 is locked"`
	Tasks   int    `json:"tasks"`
	First   Time   `json:"first" doc:"When the first of them died"`
	Last    Time   `json:"last" doc:"When the latest of them died"`
	JobIDs  []ID   `json:"job_ids" doc:"The latest of them, 5 at most"`
}

func (a *API) groupDeadTasks(ctx context.Context, c *call, in *deadQuery) (out DeadGroups, err error) {
	if in.BizType != "" && !c.sees(in.BizType) {
		return out, noType(in.BizType)
	}
	if !c.hold(pageBytes) {
		return out, full()
	}
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return out, err
	}
	found, err := widely(a, func() (operator.DeadGroups, error) {
		return people.DeadGroups(ctx, operator.DeadQuery{BizType: in.BizType, Sees: c.filter(), Since: in.Since, Until: in.Until})
	})
	out = DeadGroups{Groups: make([]DeadGroup, len(found.Groups)), Tasks: found.Tasks, More: found.More}
	if out.Incomplete, err = c.incomplete(err, found.Tasks > 0); err != nil {
		if p := problemOf(err); p.Code == "invalid" {
			return out, p.at("query.since")
		}
		return out, addProblem(err, in.BizType, "")
	}
	for i, g := range found.Groups {
		out.Groups[i] = DeadGroup{BizType: g.BizType, Error: g.Error, Part: g.Part, Example: g.Example, Tasks: g.Tasks, First: Time{g.First}, Last: Time{g.Last}}
		for _, id := range g.JobIDs {
			out.Groups[i].JobIDs = append(out.Groups[i].JobIDs, idOf(uint64(id)))
		}
	}
	return out, nil
}
