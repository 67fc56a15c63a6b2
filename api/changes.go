package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/operator"
)

// changes registers the operations that cancel, reschedule, redrive and bury tasks.
func (a *API) changes() {
	a.acts()
	register(a, operation{
		id: "cancel_task", method: http.MethodPost, path: "/tasks/{id}:cancel", tag: "tasks", needs: apitoken.Write,
		summary: "Cancel a task",
		about: "Cancels a task that has not ended, and returns it. A delivery that is under way settles nothing any more, and its callback is cut off within about two seconds; " +
			"of a strict biz type nothing is changed then (in_delivery). A task that is cancelled already is returned as it is.",
		errors: []int{http.StatusNotFound, http.StatusConflict},
	}, func(ctx context.Context, c *call, in *ByTask) (Task, error) {
		return a.change(ctx, c, *in, "cancelled", (*tocsin.Client).Cancel)
	})
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
	}, func(ctx context.Context, c *call, in *struct{ Body Subject }) (Changed, error) {
		return a.changeOf(ctx, c, in.Body, nil, (*tocsin.Client).Cancel)
	})
	register(a, operation{
		id: "reschedule_tasks", method: http.MethodPost, path: "/tasks:reschedule", tag: "tasks", needs: apitoken.Write,
		summary: "Give the tasks of a biz type that are about a biz_id or key another time",
		about:   "Reschedules those that have not ended, as reschedule_task does, and counts them. If there are none, the answer is 200 with zeros.",
		errors:  []int{http.StatusNotFound, http.StatusConflict},
	}, a.rescheduleTasks)
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

// Reason says why something is changed.
type Reason struct {
	Reason string `json:"reason,omitempty" maxLength:"255" doc:"Why, for the log and GET /v1/acts" example:"the shop is away"`
}

// because notes the reason of a write; nil: none was given.
func (c *call) because(r *Reason) {
	if r != nil {
		c.reason = line(r.Reason)
	}
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

func (a *API) rescheduleTasks(ctx context.Context, c *call, in *struct{ Body SubjectTime }) (Changed, error) {
	do, err := in.Body.NewTime.change()
	if err != nil {
		return Changed{}, err
	}
	return a.changeOf(ctx, c, in.Body.Subject, in.Body.DueTime, do)
}

// changeOf changes the tasks of a subject that have not ended, perhaps to a time.
func (a *API) changeOf(ctx context.Context, c *call, s Subject, due *Time, do changing) (out Changed, err error) {
	ref, err := s.ref(c)
	if err != nil {
		return out, err
	}
	client, err := a.backend.client.get(ctx)
	if err != nil {
		return out, err
	}
	done, err := do(client, ctx, ref)
	if err != nil {
		return out, addProblem(err, s.BizType, NewTask{BizType: s.BizType, BizKey: s.BizKey, DueTime: due}.at())
	}
	c.outcome = fmt.Sprintf("%d changed, %d in delivery, %d final", done.Changed, done.InDelivery, done.Final)
	return Changed{done.Changed, done.InDelivery, done.Final}, nil
}

// NewTime says when to act.
type NewTime struct {
	DueTime *Time `json:"due_time,omitempty" doc:"When to act: this, or delay_ms"`
	DelayMS *Int  `json:"delay_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"Act after this many milliseconds: this, or due_time" example:"1800000"`
}

// changing changes the tasks that a Ref names.
type changing func(*tocsin.Client, context.Context, tocsin.Ref) (tocsin.Change, error)

// change is the change to this time.
func (t NewTime) change() (changing, error) {
	when, err := whenOf(t.DueTime, t.DelayMS)
	return func(client *tocsin.Client, ctx context.Context, ref tocsin.Ref) (tocsin.Change, error) {
		return client.Reschedule(ctx, ref, when)
	}, err
}

func (a *API) rescheduleTask(ctx context.Context, c *call, in *struct {
	ByTask
	Body NewTime
}) (Task, error) {
	do, err := in.Body.change()
	if err != nil {
		return Task{}, err
	}
	return a.change(ctx, c, in.ByTask, "rescheduled", do)
}

// change changes a task that has not ended, and returns it.
func (a *API) change(ctx context.Context, c *call, in ByTask, done string, do changing) (task Task, err error) {
	client, info, err := a.visible(ctx, c, in)
	if err != nil {
		return task, err
	}
	changed, err := do(client, ctx, tocsin.ByID(info.JobID))
	if err != nil {
		return task, addProblem(err, info.BizType, "due_time")
	}
	info, err = a.read(ctx, c, client, info.JobID)
	if err != nil && changed.Changed > 0 {
		err = fmt.Errorf("%w: %w", tocsin.ErrUnknownOutcome, err)
	}
	if err != nil {
		return task, err
	}
	switch already := done == "cancelled" && info.Status == tocsin.Cancelled; {
	case changed.Changed > 0:
		c.outcome = done
	case already:
		c.outcome = "cancelled already"
	default:
		return task, problem(http.StatusConflict, "wrong_status", "task %s is %s: only a task that has not ended can be %s", info.JobID, info.Status, done)
	}
	task = taskOf(info)
	task.InDelivery = changed.InDelivery > 0
	return task, nil
}

// Burial is the reason why a task is buried.
type Burial struct {
	Reason string `json:"reason,omitempty" maxLength:"255" doc:"For the task's last_error" example:"the order is void"`
}

// Revival says how a task is redriven.
type Revival struct {
	SameKey bool `json:"same_key,omitempty" doc:"Keep the idempotency key: a receiver that remembers keys takes the task once"`
	Reason
}

func (a *API) redriveTask(ctx context.Context, c *call, in *struct {
	ByTask
	Body *Revival
}) (Task, error) {
	if in.Body != nil {
		c.because(&in.Body.Reason)
	}
	return a.rewrite(ctx, c, in.ByTask, "redriven", func(o *operator.Operator, id tocsin.JobID) (tocsin.Info, error) {
		if in.Body != nil && in.Body.SameKey {
			return o.RedriveSameKey(ctx, id)
		}
		return o.Redrive(ctx, id)
	})
}

func (a *API) buryTask(ctx context.Context, c *call, in *struct {
	ByTask
	Body *Burial
}) (Task, error) {
	reason := "buried by " + c.token.Name
	if a.cfg.Tokens == nil && c.token.Name == everyone.Name {
		reason = operator.ByHand
	}
	if in.Body != nil {
		reason, c.reason = name.Reason(in.Body.Reason, reason), line(in.Body.Reason)
	}
	return a.rewrite(ctx, c, in.ByTask, "buried", func(o *operator.Operator, id tocsin.JobID) (tocsin.Info, error) { return o.Bury(ctx, id, reason) })
}

// rewrite changes a task, and returns it.
func (a *API) rewrite(ctx context.Context, c *call, in ByTask, done string, write func(*operator.Operator, tocsin.JobID) (tocsin.Info, error)) (task Task, err error) {
	_, info, err := a.visible(ctx, c, in)
	if err != nil {
		return task, err
	}
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return task, err
	}
	c.outcome = done
	info, err = write(people, info.JobID)
	return taskOf(info), err
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
	Reason
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

func (a *API) redriveTasks(ctx context.Context, c *call, in *struct{ Body Redrive }) (done Redriven, err error) {
	of := in.Body
	c.object = "dead tasks of all biz types of the token"
	if of.BizType != "" {
		c.object = "biz type " + line(of.BizType) + ", dead tasks"
	}
	c.because(&of.Reason)
	switch {
	case (of.BizType != "") == of.All:
		return done, invalid("biz_type", "name a biz_type, or set all to true")
	case of.BizType != "" && !c.sees(of.BizType):
		return done, noType(of.BizType)
	}
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return done, err
	}
	redrive := func() (operator.Redriven, error) { return people.RedriveDead(ctx, of.query(c.filter())) }
	var n operator.Redriven
	if of.DryRun {
		n, err = widely(a, redrive)
	} else {
		n, err = redrive()
	}
	done = Redriven{Redriven: n.Tasks, Left: n.Left, DryRun: of.DryRun, Complete: !n.More && err == nil}
	if done.Incomplete, err = c.incomplete(err, n.Tasks > 0); err != nil {
		return done, addProblem(err, of.BizType, "since")
	}
	c.dry, c.outcome = of.DryRun, of.outcome(done)
	return done, nil
}

// outcome tells readers of the acts how many tasks were redriven, and by which filter.
func (r *Redrive) outcome(done Redriven) string {
	text := fmt.Sprintf("%d redriven", done.Redriven)
	if r.DryRun {
		text = fmt.Sprintf("%d would be redriven", done.Redriven)
	}
	if !done.Complete {
		text += ", there may be more"
	}
	if r.Restored {
		text += ", of a restore"
	}
	if r.Since != nil {
		text += ", since " + r.Since.UTC().Format(time.RFC3339)
	}
	if r.Until != nil {
		text += ", until " + r.Until.UTC().Format(time.RFC3339)
	}
	if r.Error != "" {
		text += ", error " + line(r.Error) // the last, since a long one is cut
	}
	return text
}
