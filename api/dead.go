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
		id: "redrive_task", method: http.MethodPost, path: "/tasks/{id}:redrive", tag: "tasks", needs: apitoken.Operate,
		summary: "Deliver a dead task once more",
		about:   "Makes a dead task pending and due at once, and returns it. Its attempts begin anew, and so does its idempotency key.",
		errors:  []int{http.StatusNotFound, http.StatusConflict},
	}, a.redriveTask)
	register(a, operation{
		id: "bury_task", method: http.MethodPost, path: "/tasks/{id}:bury", tag: "tasks", needs: apitoken.Operate,
		summary: "Give a task up",
		about:   "Makes a task dead that has not ended, and returns it. A delivery that is under way goes on, and may still complete it; of a strict biz type nothing is changed then (in_delivery).",
		errors:  []int{http.StatusNotFound, http.StatusConflict},
	}, a.buryTask)
	register(a, operation{
		id: "redrive_tasks", method: http.MethodPost, path: "/tasks:redrive", tag: "tasks", needs: apitoken.Operate,
		summary: "Deliver all dead tasks of a biz type once more",
		about: "Redrives all dead tasks of a biz type, or with all those of every biz type that the token is for. With dry_run it counts them, up to about 10000; if there are more, complete is false. If the time-out of " +
			"the request ends it, or a server is away, what was redriven stays redriven, and complete is false: send the request again.",
		errors: []int{http.StatusNotFound},
	}, a.redriveTasks)
}

// Burial is the reason why a task is buried.
type Burial struct {
	Reason string `json:"reason,omitempty" maxLength:"255" doc:"For the task's last_error" example:"the order is void"`
}

func (a *API) redriveTask(ctx context.Context, c *call, in *byID) (*body[Task], error) {
	return a.rewrite(ctx, c, *in, "redriven", func(o *operator.Operator, id tocsin.JobID) (tocsin.Info, error) { return o.Redrive(ctx, id) })
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
	BizType string `json:"biz_type,omitempty" minLength:"1" maxLength:"64" doc:"All dead tasks of this biz type: this, or all" example:"order.close"`
	All     bool   `json:"all,omitempty" doc:"All dead tasks of every biz type that the token is for"`
	DryRun  bool   `json:"dry_run,omitempty" doc:"Only count"`
}

// Redriven is what became of them.
type Redriven struct {
	Redriven   int      `json:"redriven" doc:"Tasks that were redriven, or with dry_run would be"`
	DryRun     bool     `json:"dry_run"`
	Complete   bool     `json:"complete" doc:"false: there may be more, send the request again"`
	Incomplete []string `json:"incomplete,omitempty" doc:"Servers that could not be asked in full"`
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
	n, complete := 0, true
	if of.DryRun {
		n, err = widely(a, func() (n int, err error) {
			n, complete, err = countDead(ctx, people, of.BizType, c.filter())
			return n, err
		})
	} else {
		n, err = people.RedriveSeen(ctx, of.BizType, c.filter(), nil)
	}
	done := Redriven{Redriven: n, DryRun: of.DryRun, Complete: complete && err == nil}
	if done.Incomplete, err = c.incomplete(err, n > 0); err != nil {
		return nil, addProblem(err, of.BizType, "")
	}
	c.outcome = fmt.Sprintf("%d redriven, complete %t, dry run %t", n, done.Complete, of.DryRun)
	return &body[Redriven]{done}, nil
}

// countDead counts what RedriveSeen would redrive, and reports whether that is all.
func countDead(ctx context.Context, o *operator.Operator, bizType string, sees func(string) bool) (n int, all bool, err error) {
	counts, more, err := o.StatsUpTo(ctx, tocsin.Dead)
	known := bizType == ""
	for _, s := range counts {
		if (bizType == "" || s.BizType == bizType) && (sees == nil || sees(s.BizType)) {
			n, known = n+s.Dead, true
		}
	}
	if !known && err == nil {
		err = noType(bizType)
	}
	return n, len(more) == 0, err
}
