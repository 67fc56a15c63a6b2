package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
)

// why registers the operation that explains a task.
func (a *API) why() {
	register(a, operation{
		id: "explain_task", method: http.MethodGet, path: "/tasks/{id}/why", tag: "tasks", needs: apitoken.Read, connects: true,
		summary: "Say where a task is and what it waits for",
		about: "Reads the row, the policies, etcd or the node tables, and the status pages of the nodes that may have the task, as `tocsin task why` does. " +
			"What could not be asked is named.",
		errors: []int{http.StatusNotFound},
	}, a.explainTask)
}

// Explanation says where a task is and what it waits for.
type Explanation struct {
	JobID    ID       `json:"job_id"`
	State    string   `json:"state" doc:"One word, as tocsin task why --help lists them" example:"lane_full"`
	Says     string   `json:"says" doc:"The state in a sentence"`
	Also     []string `json:"also" doc:"Further sentences"`
	NotAsked []string `json:"not_asked" doc:"What could not be asked, and why"`
	Table    string   `json:"table" example:"toc_3.task_0517"`
	Server   string   `json:"server" doc:"In the config of the node that answers"`
	Group    string   `json:"group,omitempty" doc:"Of the task's biz type"`
	Owner    string   `json:"owner,omitempty" doc:"The node that owns the table, or looks at it first"`
	When     *Time    `json:"when,omitempty" doc:"Until when it waits or is claimed, or when it ended"`
	Since    *Time    `json:"since,omitempty" doc:"Since when the state lasts"`
	Task     *Task    `json:"task,omitempty" doc:"Left out if its row could not be read"`
}

func (a *API) explainTask(ctx context.Context, c *call, in *byID) (*body[Explanation], error) {
	id, err := in.jobID()
	if err != nil {
		return nil, err
	}
	answer, err := a.cfg.Cluster.Why(ctx, id, nil, c.filter())
	switch {
	case errors.Is(err, tocsin.ErrNotFound), err == nil && answer.State == operator.StateGone:
		return nil, noTask(id)
	case err != nil:
		return nil, err
	}
	out := Explanation{
		JobID: idOf(uint64(id)), State: string(answer.State), Says: answer.Says, Also: answer.Also, NotAsked: answer.Unasked, Table: answer.Table,
		Server: answer.Server, Group: answer.Group, Owner: answer.Owner, When: timeOf(answer.When), Since: timeOf(answer.Since),
	}
	if answer.Task != nil {
		answer.Task.Table = answer.Table
		task := taskOf(*answer.Task)
		out.Task = &task
	}
	return &body[Explanation]{out}, nil
}

// timeOf is nil for no time.
func timeOf(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	return &Time{t}
}
