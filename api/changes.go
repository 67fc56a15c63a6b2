package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// changes registers the operations that cancel and reschedule tasks.
func (a *API) changes() {
	register(a, operation{
		id: "cancel_task", method: http.MethodPost, path: "/tasks/{id}:cancel", tag: "tasks", needs: apitoken.Write,
		summary: "Cancel a task",
		about: "Cancels a task that has not ended, and returns it. A delivery that is under way settles nothing any more, and its callback is cut off within about two seconds; " +
			"of a strict biz type nothing is changed then (in_delivery). A task that is cancelled already is returned as it is.",
		errors: []int{http.StatusNotFound, http.StatusConflict},
	}, a.cancelTask)
	register(a, operation{
		id: "reschedule_task", method: http.MethodPost, path: "/tasks/{id}:reschedule", tag: "tasks", needs: apitoken.Write,
		summary: "Give a task another time",
		about:   "Gives a task that has not ended another action time, and returns it. Its attempts begin anew. A delivery that is under way is treated as by :cancel.",
		errors:  []int{http.StatusNotFound, http.StatusConflict},
	}, a.rescheduleTask)
	register(a, operation{
		id: "cancel_tasks", method: http.MethodPost, path: "/tasks:cancel", tag: "tasks", needs: apitoken.Write,
		summary: "Cancel the tasks of a biz type that are about a biz_id or key",
		about:   "Cancels those that have not ended, as cancel_task does, and counts them. If there are none, the answer is 200 with zeros.",
		errors:  []int{http.StatusNotFound, http.StatusConflict},
	}, a.cancelTasks)
	register(a, operation{
		id: "reschedule_tasks", method: http.MethodPost, path: "/tasks:reschedule", tag: "tasks", needs: apitoken.Write,
		summary: "Give the tasks of a biz type that are about a biz_id or key another time",
		about:   "Reschedules those that have not ended, as reschedule_task does, and counts them. If there are none, the answer is 200 with zeros.",
		errors:  []int{http.StatusNotFound, http.StatusConflict},
	}, a.rescheduleTasks)
}

// Subject is what tasks are about.
type Subject struct {
	BizType string `json:"biz_type" minLength:"1" maxLength:"64" doc:"Name of the biz type" example:"order.close"`
	BizID   ID     `json:"biz_id,omitempty" doc:"This, or biz_key"`
	BizKey  string `json:"biz_key,omitempty" minLength:"1" maxLength:"64" doc:"This, or biz_id" example:"ord_01J8Z3"`
}

// SubjectTime is another time for the tasks of a subject.
type SubjectTime struct {
	Subject
	NewTime
}

// Changed counts what a change of the tasks of a subject has met.
type Changed struct {
	Changed    int `json:"changed" doc:"Were changed"`
	InDelivery int `json:"in_delivery" doc:"Of the changed ones, a delivery of these may be under way"`
	Final      int `json:"final" doc:"Were done, cancelled or dead before, and were not changed"`
}

// ref names the tasks of a subject, if the caller may change them.
func (s Subject) ref(c *call) (ref tocsin.Ref, err error) {
	c.object = NewTask{BizType: s.BizType, BizID: s.BizID, BizKey: s.BizKey}.object()
	of := tocsin.Define[string](s.BizType)
	switch {
	case !c.sees(s.BizType):
		return ref, noType(s.BizType)
	case (s.BizID == "") == (s.BizKey == ""):
		return ref, invalid("biz_id", "name one of biz_id and biz_key")
	case s.BizKey != "":
		return of.OfKey(s.BizKey), nil
	}
	id, err := s.BizID.number()
	if err != nil {
		return ref, invalid("biz_id", "biz_id is above 2^64-1")
	}
	return of.Of(id), nil
}

func (a *API) cancelTasks(ctx context.Context, c *call, in *struct{ Body Subject }) (*body[Changed], error) {
	return a.changeOf(ctx, c, in.Body, func(client *tocsin.Client, ref tocsin.Ref) (tocsin.Change, error) { return client.Cancel(ctx, ref) })
}

func (a *API) rescheduleTasks(ctx context.Context, c *call, in *struct{ Body SubjectTime }) (*body[Changed], error) {
	when, err := whenOf(in.Body.DueTime, in.Body.DelayMS)
	if err != nil {
		return nil, err
	}
	return a.changeOf(ctx, c, in.Body.Subject, func(client *tocsin.Client, ref tocsin.Ref) (tocsin.Change, error) {
		return client.Reschedule(ctx, ref, when)
	})
}

// changeOf changes the tasks of a subject that have not ended.
func (a *API) changeOf(ctx context.Context, c *call, s Subject, do func(*tocsin.Client, tocsin.Ref) (tocsin.Change, error)) (*body[Changed], error) {
	ref, err := s.ref(c)
	if err != nil {
		return nil, err
	}
	client, err := a.backend.client.get(ctx)
	if err != nil {
		return nil, err
	}
	done, err := do(client, ref)
	if err != nil {
		return nil, addProblem(err, s.BizType, "")
	}
	c.outcome = fmt.Sprintf("%d changed, %d in delivery, %d final", done.Changed, done.InDelivery, done.Final)
	return &body[Changed]{Changed{done.Changed, done.InDelivery, done.Final}}, nil
}

// NewTime says when to act.
type NewTime struct {
	DueTime *Time `json:"due_time,omitempty" doc:"When to act: this, or delay_ms"`
	DelayMS *Int  `json:"delay_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"Act after this many milliseconds: this, or due_time" example:"1800000"`
}

func (a *API) cancelTask(ctx context.Context, c *call, in *byID) (*body[Task], error) {
	return a.change(ctx, c, *in, "cancelled", func(client *tocsin.Client, ref tocsin.Ref) (tocsin.Change, error) {
		return client.Cancel(ctx, ref)
	})
}

func (a *API) rescheduleTask(ctx context.Context, c *call, in *struct {
	ID   ID `path:"id" doc:"The task's job_id"`
	Body NewTime
}) (*body[Task], error) {
	when, err := whenOf(in.Body.DueTime, in.Body.DelayMS)
	if err != nil {
		return nil, err
	}
	return a.change(ctx, c, byID{in.ID}, "rescheduled", func(client *tocsin.Client, ref tocsin.Ref) (tocsin.Change, error) {
		return client.Reschedule(ctx, ref, when)
	})
}

// change changes a task that has not ended, and returns it.
func (a *API) change(ctx context.Context, c *call, in byID, done string, do func(*tocsin.Client, tocsin.Ref) (tocsin.Change, error)) (*body[Task], error) {
	client, info, err := a.visible(ctx, c, in)
	if err != nil {
		return nil, err
	}
	changed, err := do(client, tocsin.ByID(info.JobID))
	if err != nil {
		return nil, err
	}
	if info, err = a.read(ctx, c, client, info.JobID); err != nil {
		return nil, err
	}
	switch already := done == "cancelled" && info.Status == tocsin.Cancelled; {
	case changed.Changed > 0:
		c.outcome = done
	case already:
		c.outcome = "cancelled already"
	default:
		return nil, problem(http.StatusConflict, "wrong_status", "task %s is %s: only a task that has not ended can be %s", info.JobID, info.Status, done)
	}
	task := taskOf(info)
	task.InDelivery = changed.InDelivery > 0
	return &body[Task]{task}, nil
}
