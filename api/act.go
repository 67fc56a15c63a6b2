package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/operator"
)

// acts registers the operation that does the same with many tasks.
func (a *API) acts() {
	register(a, operation{
		id: "act_on_tasks", method: http.MethodPost, path: "/tasks:act", tag: "tasks", needs: apitoken.Write, connects: true,
		summary: "Redrive, bury, cancel or reschedule up to 500 tasks",
		about: "Does with each task what redrive_task, bury_task, cancel_task or reschedule_task does. It is not atomic: results tells for each task, in the order given, what became of it, and " +
			"the answer is 200 also if tasks failed: look at failed. If all failed for want of servers it is 503. The log has the reason. redrive and bury need a token of scope operate.",
	}, a.actOnTasks)
}

// Act names tasks, and what is to be done with each of them.
type Act struct {
	Act     string `json:"act" enum:"redrive,bury,cancel,reschedule" doc:"What to do with each task"`
	JobIDs  []ID   `json:"job_ids" minItems:"1" maxItems:"500" uniqueItems:"true" doc:"The tasks, each once"`
	Reason  string `json:"reason" minLength:"1" maxLength:"255" doc:"Why, for the log; of bury, for the last_error of the tasks too" example:"the shop was away"`
	SameKey bool   `json:"same_key,omitempty" doc:"Of redrive: keep the idempotency keys"`
	NewTime
}

// ActedMany is what became of the tasks of an Act.
type ActedMany struct {
	Done    int     `json:"done" doc:"Tasks with which it was done, or that were cancelled already"`
	Failed  int     `json:"failed" doc:"Were not changed, or may not be: see problem of each"`
	Results []Acted `json:"results" doc:"One for each task, in the order given"`
}

// Acted is what became of one task.
type Acted struct {
	JobID      ID       `json:"job_id"`
	BizType    string   `json:"biz_type,omitempty" doc:"Left out if it is not known" example:"order.close"`
	Status     Status   `json:"status,omitempty" doc:"Afterwards; left out if it is not known"`
	InDelivery bool     `json:"in_delivery,omitempty" doc:"Of cancel and reschedule: a delivery of the task may be under way"`
	Problem    *Problem `json:"problem,omitempty" doc:"Why the task was not changed, or may not be; left out if it was. Its code is wrong_status, not_found, in_delivery, outcome_unknown, or one of a server that can't be used"`
}

// act is what the operator is asked for, if the caller may do that.
func (in *Act) act(c *call) (act operator.Act, err error) {
	act = operator.Act{Deed: operator.Deed(in.Act), Sees: c.filter(), Reason: in.Reason, SameKey: in.SameKey}
	if act.Deed == operator.DeedRedrive || act.Deed == operator.DeedBury {
		c.needs = apitoken.Operate
		if p := (operation{id: "act_on_tasks with act " + in.Act, needs: apitoken.Operate}).allows(c.token); p != nil {
			return act, p
		}
	}
	timed := in.DueTime != nil || in.DelayMS != nil
	switch {
	case name.Blank(in.Reason):
		return act, invalid("reason", "say why: the log has the reason")
	case in.SameKey && act.Deed != operator.DeedRedrive:
		return act, invalid("same_key", "same_key is for redrive")
	case timed && act.Deed != operator.DeedReschedule:
		return act, invalid("due_time", "due_time and delay_ms are for reschedule")
	case act.Deed == operator.DeedReschedule:
		act.When, err = whenOf(in.DueTime, in.DelayMS)
	}
	return act, err
}

func (a *API) actOnTasks(ctx context.Context, c *call, in *struct{ Body Act }) (out ActedMany, err error) {
	c.object = fmt.Sprintf("%d tasks, %s the first", len(in.Body.JobIDs), in.Body.JobIDs[0])
	c.reason = line(in.Body.Reason)
	act, err := in.Body.act(c)
	if err != nil {
		return out, err
	}
	for _, text := range in.Body.JobIDs {
		if id, err := (ByTask{ID: text}).jobID(); err == nil {
			act.IDs = append(act.IDs, id)
		}
	}
	became := map[tocsin.JobID]operator.Acted{}
	if len(act.IDs) > 0 {
		people, err := a.backend.people.get(ctx)
		if err != nil {
			return out, err
		}
		all, err := people.Act(ctx, act)
		if err != nil {
			return out, addProblem(err, "", "due_time")
		}
		for _, one := range all {
			became[one.JobID] = one
		}
	}
	out.Results = make([]Acted, len(in.Body.JobIDs))
	for i, text := range in.Body.JobIDs {
		id, _ := ByTask{ID: text}.jobID()
		out.Results[i] = actedOf(text, became[id])
		if p := out.Results[i].Problem; p != nil && p.Status >= http.StatusInternalServerError && c.cause == nil {
			c.cause = became[id].Err
		}
	}
	return out, out.tally(c)
}

// actedOf is what the caller is told of a task; of a zero one, that it is not there.
func actedOf(id ID, one operator.Acted) Acted {
	is := Acted{JobID: id, BizType: one.BizType, Status: Status(one.Status), InDelivery: one.InDelivery}
	switch {
	case one.JobID == 0, errors.Is(one.Err, tocsin.ErrNotFound):
		is.Problem = noTask(string(id))
	case one.Err != nil:
		is.Problem = asProblem(one.Err)
	}
	return is
}

// tally counts the results, for the log too. It returns the problem of all of them if no server could be used.
func (m *ActedMany) tally(c *call) error {
	problems := make([]*Problem, len(m.Results))
	for i, r := range m.Results {
		if problems[i] = r.Problem; r.Problem != nil {
			m.Failed++
		}
	}
	m.Done = len(m.Results) - m.Failed
	c.outcome = fmt.Sprintf("%d done, %d failed", m.Done, m.Failed)
	return wholly(problems)
}
