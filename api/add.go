package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// NewTask is a task to be added.
type NewTask struct {
	BizType  string            `json:"biz_type" minLength:"1" maxLength:"64" doc:"Name of the biz type" example:"order.close"`
	BizID    ID                `json:"biz_id,omitempty" doc:"What the task is about, an order number for instance: this, or biz_key"`
	BizKey   string            `json:"biz_key,omitempty" minLength:"1" maxLength:"64" doc:"A business key that is no number, at most 64 bytes: this, or biz_id" example:"ord_01J8Z3"`
	DueTime  *Time             `json:"due_time,omitempty" doc:"When to act, at most ten years ahead: this, or delay_ms. A time in the past is due at once"`
	DelayMS  *int64            `json:"delay_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"Act after this many milliseconds, by the database's clock: this, or due_time" example:"1800000"`
	DedupKey string            `json:"dedup_key,omitempty" minLength:"1" maxLength:"64" doc:"Key that only one task of this biz type and biz_id may have, at most 64 bytes" example:"close"`
	Payload  string            `json:"payload,omitempty" maxLength:"8192" doc:"Text that the handler gets as it is" example:"{\"order\":42}"`
	Headers  map[string]string `json:"headers,omitempty" doc:"Texts by name that travel beside the payload, at most 1024 characters as JSON"`
}

// Added is what became of a task that was to be added.
type Added struct {
	JobID    ID     `json:"job_id"`
	Status   Status `json:"status" doc:"pending, unless the task existed"`
	Existing bool   `json:"existing" doc:"A task with this dedup_key was there; job_id and status are that one's"`
}

// addedTask is the answer of add_task.
type addedTask struct {
	Status   int
	Location string `header:"Location" doc:"Path of the task"`
	Body     Added
}

// task returns the task that is asked for, if the caller may add it.
func (n NewTask) task(c *call) (task tocsin.NewTask, err error) {
	if !c.sees(n.BizType) {
		return task, noType(n.BizType)
	}
	when, err := whenOf(n.DueTime, n.DelayMS)
	if err != nil {
		return task, err
	}
	of := tocsin.Define[string](n.BizType)
	switch {
	case (n.BizID == "") == (n.BizKey == ""):
		return task, invalid("biz_id", "name one of biz_id and biz_key")
	case n.BizKey != "":
		task = of.NewKey(n.BizKey, n.Payload, when)
	default:
		id, err := n.BizID.number()
		if err != nil {
			return task, invalid("biz_id", "biz_id is above 2^64-1")
		}
		task = of.New(id, n.Payload, when)
	}
	if strings.HasPrefix(n.DedupKey, "\x00") {
		return task, invalid("dedup_key", "a dedup_key that begins with the character 0 is reserved")
	}
	for name, text := range n.Headers {
		task = task.Header(name, text)
	}
	return task.Dedup(n.DedupKey), nil
}

// object names the task in the log.
func (n NewTask) object() string {
	if n.BizKey != "" {
		return fmt.Sprintf("%s of key %s", line(n.BizType), line(n.BizKey))
	}
	return fmt.Sprintf("%s of biz_id %s", line(n.BizType), n.BizID)
}

// invalid is a problem with one value of a body.
func invalid(where, format string, args ...any) *Problem {
	p := problem(http.StatusUnprocessableEntity, "invalid", format, args...)
	p.Errors = []Fault{{Location: "body." + where, Message: p.Detail}}
	return p
}

// whenOf reads the pair of fields that say when to act.
func whenOf(at *Time, delay *int64) (tocsin.When, error) {
	switch {
	case (at == nil) == (delay == nil):
		return tocsin.When{}, invalid("due_time", "name one of due_time and delay_ms")
	case at != nil:
		return tocsin.At(at.Time), nil
	case *delay > math.MaxInt64/int64(time.Millisecond):
		return tocsin.When{}, invalid("delay_ms", "delay_ms is more than ten years")
	}
	return tocsin.In(time.Duration(*delay) * time.Millisecond), nil
}

func (a *API) addTask(ctx context.Context, c *call, in *struct{ Body NewTask }) (*addedTask, error) {
	c.object = in.Body.object()
	task, err := in.Body.task(c)
	if err != nil {
		return nil, err
	}
	client, err := a.backend.client.get(ctx)
	if err != nil {
		return nil, err
	}
	done, err := client.Add(ctx, task)
	if err != nil {
		return nil, addProblem(err, in.Body.BizType)
	}
	c.object = "task " + done.JobID.String() + ", " + c.object
	c.outcome = "added"
	out := &addedTask{Status: http.StatusCreated, Location: "/v1/tasks/" + done.JobID.String(), Body: addedOf(done)}
	if done.Existing {
		out.Status, c.outcome = http.StatusOK, "existing"
	}
	return out, nil
}

func addedOf(done tocsin.Added) Added {
	return Added{JobID: idOf(uint64(done.JobID)), Status: Status(done.Status.String()), Existing: done.Existing}
}

// addProblem is problemOf, with the same words for a biz type that is not there as for one that the caller may not see.
func addProblem(err error, bizType string) error {
	if p := problemOf(err); p.Code == "unknown_biz_type" {
		return noType(bizType)
	}
	return err
}

// NewTasks are the tasks of a batch.
type NewTasks struct {
	Tasks []NewTask `json:"tasks" minItems:"1" maxItems:"1000"`
}

// AddedMany is what became of a batch.
type AddedMany struct {
	Added    int      `json:"added" doc:"Stored by this request"`
	Existing int      `json:"existing" doc:"Were there, by their dedup_key"`
	Failed   int      `json:"failed" doc:"Are not stored, or may not be: see problem of each"`
	Results  []Result `json:"results" doc:"One for each task, in the order given"`
}

// Result is what became of one task of a batch.
type Result struct {
	Added   *Added   `json:"task,omitempty" doc:"Left out if the task failed"`
	Problem *Problem `json:"problem,omitempty" doc:"Why the task is not stored, or may not be"`
}

func (a *API) addTasks(ctx context.Context, c *call, in *struct{ Body NewTasks }) (*body[AddedMany], error) {
	asked := in.Body.Tasks
	c.object = fmt.Sprintf("%d tasks", len(asked))
	client, err := a.backend.client.get(ctx)
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(asked))
	var tasks []tocsin.NewTask
	var at []int // of tasks: their places in asked
	for i, n := range asked {
		task, err := n.task(c)
		if err != nil {
			results[i].Problem = asProblem(err)
			continue
		}
		tasks, at = append(tasks, task), append(at, i)
	}
	if len(tasks) > 0 {
		done, err := client.AddMany(ctx, tasks)
		if len(done) != len(tasks) {
			return nil, err
		}
		for i, d := range done {
			results[at[i]] = resultOf(d, asked[at[i]].BizType)
		}
	}
	out := tally(results)
	if p := out.failed(); p != nil {
		return nil, p
	}
	c.outcome = fmt.Sprintf("%d added, %d existing, %d failed", out.Added, out.Existing, out.Failed)
	return &body[AddedMany]{out}, nil
}

func resultOf(done tocsin.Added, bizType string) Result {
	if done.Err != nil {
		return Result{Problem: asProblem(addProblem(done.Err, bizType))}
	}
	added := addedOf(done)
	return Result{Added: &added}
}

// failed returns the problem of a batch if all of its tasks failed for want of servers; nil if any of them has another answer.
func (m AddedMany) failed() error {
	for _, r := range m.Results {
		if r.Problem == nil || r.Problem.Status < http.StatusInternalServerError {
			return nil
		}
	}
	return m.Results[0].Problem
}

// tally counts the results.
func tally(results []Result) AddedMany {
	out := AddedMany{Results: results}
	for _, r := range results {
		switch {
		case r.Added == nil:
			out.Failed++
		case r.Added.Existing:
			out.Existing++
		default:
			out.Added++
		}
	}
	return out
}
