package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
)

// dead registers the operations that redrive and bury tasks.
func (a *API) dead() {
	register(a, operation{
		id: "redrive_task", method: http.MethodPost, path: "/tasks/{id}:redrive", tag: "tasks", needs: apitoken.Operate, connects: true,
		summary: "Deliver a dead task once more",
		about: "Makes a dead task pending and due at once, and returns it. Its attempts begin anew, and so does its idempotency key, the webhook-id of callbacks, " +
			"unless same_key is set.",
		errors: []int{http.StatusNotFound, http.StatusConflict},
	}, a.redriveTask)
	register(a, operation{
		id: "bury_task", method: http.MethodPost, path: "/tasks/{id}:bury", tag: "tasks", needs: apitoken.Operate, connects: true,
		summary: "Give a task up",
		about:   "Makes a task dead that has not ended, and returns it. A delivery that is under way goes on, and may still complete it; of a strict biz type nothing is changed then (in_delivery).",
		errors:  []int{http.StatusNotFound, http.StatusConflict},
	}, a.buryTask)
	register(a, operation{
		id: "redrive_tasks", method: http.MethodPost, path: "/tasks:redrive", tag: "tasks", needs: apitoken.Operate, connects: true,
		summary: "Deliver all dead tasks of a biz type once more",
		about: "Redrives the dead tasks of a biz type, or with all those of every biz type that the token is for, as far as the other fields name them. Tasks that a restore of a database made dead, " +
			"or found dead, may have been delivered before: they are redriven only with restored. With dry_run it counts up to 10000; if there may be more, complete is false. If limit or the time-out of " +
			"the request ends it, or a server is away, what was redriven stays redriven, and complete is false: send the request again for the rest.",
		errors: []int{http.StatusNotFound},
	}, a.redriveTasks)
}

// Burial is the reason why a task is buried.
type Burial struct {
	Reason string `json:"reason,omitempty" maxLength:"255" doc:"For the task's last_error" example:"the order is void"`
}

// Revival says how a task is redriven.
type Revival struct {
	SameKey bool `json:"same_key,omitempty" doc:"Keep the idempotency key: a receiver that remembers keys takes the task once"`
}

func (a *API) redriveTask(ctx context.Context, c *call, in *struct {
	ID   ID `path:"id" doc:"The task's job_id"`
	Body *Revival
}) (*body[Task], error) {
	return a.rewrite(ctx, c, byID{in.ID}, "redriven", func(o *operator.Operator, id tocsin.JobID) (tocsin.Info, error) {
		if in.Body != nil && in.Body.SameKey {
			return o.RedriveSameKey(ctx, id)
		}
		return o.Redrive(ctx, id)
	})
}

func (a *API) buryTask(ctx context.Context, c *call, in *struct {
	ID   ID `path:"id" doc:"The task's job_id"`
	Body *Burial
}) (*body[Task], error) {
	reason := "buried by " + c.token.Name
	if in.Body != nil {
		reason = cmp.Or(in.Body.Reason, reason)
	}
	return a.rewrite(ctx, c, byID{in.ID}, "buried", func(o *operator.Operator, id tocsin.JobID) (tocsin.Info, error) { return o.Bury(ctx, id, reason) })
}

// rewrite changes a task, and returns it.
func (a *API) rewrite(ctx context.Context, c *call, in byID, done string, write func(*operator.Operator, tocsin.JobID) (tocsin.Info, error)) (*body[Task], error) {
	_, info, err := a.visible(ctx, c, in)
	if err != nil {
		return nil, err
	}
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return nil, err
	}
	if info, err = write(people, info.JobID); err != nil {
		return nil, err
	}
	c.outcome = done
	return &body[Task]{taskOf(info)}, nil
}

// Redrive names dead tasks.
type Redrive struct {
	BizType   string `json:"biz_type,omitempty" minLength:"1" maxLength:"64" doc:"The dead tasks of this biz type: this, or all" example:"order.close"`
	All       bool   `json:"all,omitempty" doc:"The dead tasks of every biz type that the token is for"`
	Since     *Time  `json:"since,omitempty" doc:"Only tasks that died then or later"`
	Until     *Time  `json:"until,omitempty" doc:"Only tasks that died then or earlier"`
	Error     string `json:"error,omitempty" minLength:"1" maxLength:"255" doc:"Only tasks with this text in their last_error; upper and lower case differ" example:"connection refused"`
	Restored  bool   `json:"restored,omitempty" doc:"Only tasks that a restore made dead, or found dead; without it only others"`
	Limit     Int    `json:"limit,omitempty" minimum:"1" maximum:"1000000000" doc:"Redrive at most this many tasks"`
	PerSecond Int    `json:"per_second,omitempty" minimum:"1" maximum:"1000000000" doc:"Redrive at most this many tasks a second"`
	SameKey   bool   `json:"same_key,omitempty" doc:"Keep the idempotency keys: a receiver that remembers keys takes each task once"`
	DryRun    bool   `json:"dry_run,omitempty" doc:"Only count"`
}

// Redriven is what became of them.
type Redriven struct {
	Redriven   int      `json:"redriven" doc:"Tasks that were redriven, or with dry_run would be"`
	Left       int      `json:"restored_left" doc:"Tasks that were seen and left because a restore made them dead, or found them dead: restored redrives them"`
	DryRun     bool     `json:"dry_run"`
	Complete   bool     `json:"complete" doc:"false: there may be more, send the request again"`
	Incomplete []string `json:"incomplete,omitempty" doc:"Servers that could not be asked in full"`
}

// query is what the operator is asked for.
func (r *Redrive) query(sees func(string) bool) operator.DeadQuery {
	q := operator.DeadQuery{
		BizType: r.BizType, Sees: sees, Error: r.Error, Restored: r.Restored, SameKey: r.SameKey,
		Limit: int(r.Limit), PerSecond: int(r.PerSecond), DryRun: r.DryRun,
	}
	if r.Since != nil {
		q.Since = r.Since.Time
	}
	if r.Until != nil {
		q.Until = r.Until.Time
	}
	return q
}

func (a *API) redriveTasks(ctx context.Context, c *call, in *struct{ Body Redrive }) (*body[Redriven], error) {
	of := in.Body
	c.object = "dead tasks of " + cmp.Or(line(of.BizType), "all biz types of the token")
	switch {
	case (of.BizType != "") == of.All:
		return nil, invalid("biz_type", "name a biz_type, or set all to true")
	case of.BizType != "" && !c.sees(of.BizType):
		return nil, noType(of.BizType)
	}
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return nil, err
	}
	redrive := func() (operator.Redriven, error) { return people.RedriveDead(ctx, of.query(c.filter())) }
	var n operator.Redriven
	if of.DryRun {
		n, err = widely(a, redrive)
	} else {
		n, err = redrive()
	}
	done := Redriven{Redriven: n.Tasks, Left: n.Left, DryRun: of.DryRun, Complete: !n.More && err == nil}
	if done.Incomplete, err = c.incomplete(err, n.Tasks > 0); err != nil {
		return nil, addProblem(err, of.BizType, "since")
	}
	c.outcome = fmt.Sprintf("%d redriven, complete %t, dry run %t", n.Tasks, done.Complete, of.DryRun)
	return &body[Redriven]{done}, nil
}
