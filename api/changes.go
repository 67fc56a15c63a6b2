package api

import (
	"context"
	"net/http"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// changes registers the operations that cancel and reschedule tasks.
func (a *API) changes() {
	register(a, operation{
		id: "cancel_task", method: http.MethodPost, path: "/tasks/{id}:cancel", tag: "tasks", needs: apitoken.Write,
		summary: "Cancel a task",
		about:   "Cancels a pending task, and returns it. A task that is cancelled already is returned as it is.",
		errors:  []int{http.StatusNotFound, http.StatusConflict},
	}, a.cancelTask)
	register(a, operation{
		id: "reschedule_task", method: http.MethodPost, path: "/tasks/{id}:reschedule", tag: "tasks", needs: apitoken.Write,
		summary: "Give a task another time",
		about:   "Gives a pending task another action time, and returns it. Its attempts begin anew.",
		errors:  []int{http.StatusNotFound, http.StatusConflict},
	}, a.rescheduleTask)
}

// NewTime says when to act.
type NewTime struct {
	DueTime *Time  `json:"due_time,omitempty" doc:"When to act: this, or delay_ms"`
	DelayMS *int64 `json:"delay_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"Act after this many milliseconds: this, or due_time" example:"1800000"`
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

// change changes a pending task, and returns it.
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
	case changed.InDelivery > 0:
		return nil, problem(http.StatusConflict, "in_delivery", "task %s is being delivered at this moment, and was not %s: look at it again in a moment", info.JobID, done)
	default:
		return nil, problem(http.StatusConflict, "wrong_status", "task %s is %s: only a pending task can be %s", info.JobID, info.Status, done)
	}
	return &body[Task]{taskOf(info)}, nil
}
