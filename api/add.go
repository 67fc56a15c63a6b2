package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/name"
)

// NewTask is a task to be added.
type NewTask struct {
	BizType        string            `json:"biz_type" minLength:"1" maxLength:"64" doc:"Name of the biz type" example:"order.close"`
	BizID          ID                `json:"biz_id,omitempty" doc:"What the task is about, an order number for instance: this, or biz_key"`
	BizKey         string            `json:"biz_key,omitempty" minLength:"1" maxLength:"64" doc:"A business key that is no number, at most 64 bytes: this, or biz_id" example:"ord_01J8Z3"`
	DueTime        *Time             `json:"due_time,omitempty" doc:"When to act, at most ten years ahead: this, or delay_ms. A time in the past is due at once"`
	DelayMS        *Int              `json:"delay_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"Act after this many milliseconds, by the database's clock: this, or due_time" example:"1800000"`
	DedupKey       string            `json:"dedup_key,omitempty" minLength:"1" maxLength:"130" doc:"Key that only one task of this biz type and biz_id may have, at most 64 bytes; \\x and hex digits stand for bytes" example:"close"`
	UniqueKey      string            `json:"unique_key,omitempty" minLength:"1" maxLength:"130" doc:"In place of dedup_key: a key that only one task of this biz type and biz_id may have while it is in a status of unique_while, at most 64 bytes" example:"remind"`
	UniqueWhile    []Status          `json:"unique_while,omitempty" maxItems:"4" doc:"Of unique_key; pending and claimed must be among them, and are meant if it is left out. done and dead may be"`
	OnConflict     string            `json:"on_conflict,omitempty" enum:"keep,reschedule" doc:"If the unique_key is taken: keep leaves the task that is there as it is (so if it is left out), reschedule gives it this due_time or delay_ms if it is pending"`
	Payload        *string           `json:"payload,omitempty" maxLength:"8192" doc:"Text that the handler gets as it is; null, the text, if it is left out" example:"{\"order\":42}"`
	PayloadVersion Int               `json:"payload_version,omitempty" minimum:"0" maximum:"9007199254740991" doc:"Of the payload, from 2 on: nodes whose handlers know only older ones leave the task alone"`
	Headers        map[string]string `json:"headers,omitempty" doc:"Texts by name that travel beside the payload, at most 1024 characters as JSON"`
}

// Added is what became of a task that was to be added.
type Added struct {
	JobID       ID     `json:"job_id"`
	Status      Status `json:"status" doc:"pending, unless the task existed"`
	Existing    bool   `json:"existing" doc:"A task with this dedup_key or unique_key was there; job_id and status are that one's"`
	Rescheduled bool   `json:"rescheduled,omitempty" doc:"on_conflict reschedule: the task that was there has the new time"`
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
	of, payload := tocsin.Define[string](n.BizType).Version(int(n.PayloadVersion)), nullPayload
	if n.Payload != nil {
		payload = *n.Payload
	}
	switch {
	case (n.BizID == "") == (n.BizKey == ""):
		return task, invalid("biz_id", "name one of biz_id and biz_key")
	case n.BizKey != "":
		task = of.NewKey(n.BizKey, payload, when)
	default:
		id, err := n.BizID.number()
		if err != nil {
			return task, invalid("biz_id", "biz_id is above 2^64-1")
		}
		task = of.New(id, payload, when)
	}
	for name, text := range n.Headers {
		task = task.Header(name, text)
	}
	return n.keyed(task)
}

// nullPayload is the payload of tasks that are added without one: Go handlers decode payloads as JSON.
const nullPayload = "null"

// keyed gives a task its dedup_key or unique key.
func (n NewTask) keyed(task tocsin.NewTask) (tocsin.NewTask, error) {
	keys := map[string]string{"dedup_key": n.DedupKey, "unique_key": n.UniqueKey}
	for field, text := range keys {
		key, err := name.ReadKey(text)
		switch {
		case err != nil:
			return task, invalid(field, "%s", err)
		case strings.HasPrefix(key, "\x00"):
			return task, invalid(field, "a %s that begins with the character 0 is reserved", field)
		case len(key) > tocsin.MaxDedupKey:
			return task, invalid(field, "%s has %d bytes: at most %d", field, len(key), tocsin.MaxDedupKey)
		}
		keys[field] = key
	}
	switch {
	case n.UniqueKey == "" && n.OnConflict != "":
		return task, invalid("on_conflict", "on_conflict is for tasks with a unique_key")
	case n.UniqueKey == "" && n.UniqueWhile != nil:
		return task, invalid("unique_while", "unique_while is for tasks with a unique_key")
	case n.UniqueKey == "":
		return task.Dedup(keys["dedup_key"]), nil
	case n.DedupKey != "":
		return task, invalid("unique_key", "name one of dedup_key and unique_key")
	}
	while := []tocsin.Status{tocsin.Pending, tocsin.Claimed}
	for _, status := range n.UniqueWhile {
		var s tocsin.Status
		_ = s.UnmarshalText([]byte(status)) // it is one
		while = append(while, s)
	}
	if n.UniqueWhile != nil && (!slices.Contains(n.UniqueWhile, "pending") || !slices.Contains(n.UniqueWhile, "claimed") || slices.Contains(n.UniqueWhile, "cancelled")) {
		return task, invalid("unique_while", "unique_while has pending and claimed, and perhaps done and dead")
	}
	task = task.Unique(keys["unique_key"], tocsin.While(while...))
	if n.OnConflict == "reschedule" {
		task = task.OnConflict(tocsin.Reschedule)
	}
	return task, nil
}

// at names the field that an error of package tocsin, which knows none, is about.
func (n NewTask) at() string {
	_, headers := tocsin.HeadersOf(n.Headers)
	marked := n.PayloadVersion > 1 && len(n.Headers) > 0 // the version is stored with them, and counts
	switch {
	case name.CheckLower("biz type", n.BizType) != nil:
		return "biz_type"
	case headers != nil, marked && n.DueTime == nil:
		return "headers"
	case len(n.BizKey) > tocsin.MaxKey:
		return "biz_key"
	case n.DueTime != nil && !marked:
		return "due_time"
	}
	return "" // not known
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
	return problem(http.StatusUnprocessableEntity, "invalid", format, args...).at("body." + where)
}

// whenOf reads the pair of fields that say when to act.
func whenOf(at *Time, delay *Int) (tocsin.When, error) {
	switch {
	case (at == nil) == (delay == nil):
		return tocsin.When{}, invalid("due_time", "name one of due_time and delay_ms")
	case at != nil:
		return tocsin.At(at.Time), nil
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
		return nil, addProblem(err, in.Body.BizType, in.Body.at())
	}
	c.object = "task " + done.JobID.String() + ", " + c.object
	c.outcome = "added"
	out := &addedTask{Status: http.StatusCreated, Location: "/v1/tasks/" + done.JobID.String(), Body: addedOf(done)}
	if done.Existing {
		out.Status, c.outcome = http.StatusOK, "existing"
		if done.Rescheduled {
			c.outcome = "rescheduled"
		}
	}
	return out, nil
}

func addedOf(done tocsin.Added) Added {
	return Added{JobID: idOf(uint64(done.JobID)), Status: Status(done.Status.String()), Existing: done.Existing, Rescheduled: done.Rescheduled}
}

// addProblem is problemOf, with the same words for a biz type that is not there as for one that the caller may not see, and with
// the field of the body that is wrong; "" if it is not known.
func addProblem(err error, bizType, field string) error {
	switch p := problemOf(err); {
	case p.Code == "unknown_biz_type":
		return noType(bizType)
	case p.Code == "invalid" && field != "":
		p.Errors[0].Location = "body." + field
		return p
	}
	return err
}

// maxItems is how many tasks a batch has at most.
const maxItems = 1000

// NewTasks are the tasks of a batch.
type NewTasks struct {
	Tasks []NewTask `json:"tasks" minItems:"1" maxItems:"1000" doc:"Each is checked by itself: a wrong one has a problem in results, and the others are added"`
}

// unreadTasks are NewTasks that the operation reads one by one.
type unreadTasks struct{}

// UnmarshalJSON leaves the text in the call.
func (unreadTasks) UnmarshalJSON([]byte) error { return nil }

// Schema is that of NewTasks, for huma.
func (unreadTasks) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[NewTasks](), true, "")
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

func (a *API) addTasks(ctx context.Context, c *call, _ *struct{ Body unreadTasks }) (out AddedMany, err error) {
	texts, err := split(c.body)
	if err != nil {
		return out, err
	}
	c.object = fmt.Sprintf("%d tasks", len(texts))
	client, err := a.backend.client.get(ctx)
	if err != nil {
		return out, err
	}
	results := make([]Result, len(texts))
	tasks := make([]tocsin.NewTask, 0, len(texts))
	var at []int // of tasks: their places in the batch
	var read []NewTask
	faults := 0
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		n, task, err := a.readTask(c, text, i)
		if err != nil {
			p := asProblem(err)
			p.Errors = p.Errors[:min(len(p.Errors), maxFaults-faults)]
			faults += len(p.Errors)
			results[i].Problem = p
			continue
		}
		tasks, at, read = append(tasks, task), append(at, i), append(read, n)
	}
	if len(tasks) > 0 {
		done, err := client.AddMany(ctx, tasks)
		if over := (*tocsin.InsertLimitError)(nil); len(done) != len(tasks) || errors.As(err, &over) {
			return out, err
		}
		for i, d := range done {
			results[at[i]] = resultOf(d, read[i], at[i])
		}
	}
	out = tally(results)
	if p := out.failed(); p != nil {
		return out, p
	}
	c.outcome = fmt.Sprintf("%d added, %d existing, %d failed", out.Added, out.Existing, out.Failed)
	return out, nil
}

// split returns the texts of the tasks of a batch.
func split(body []byte) ([]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return nil, refused(http.StatusUnprocessableEntity, "", []error{fault("", "expected object")})
	}
	var found []error
	for name := range fields {
		if name != "tasks" {
			found = append(found, fault(jsontext.Pointer("").AppendToken(name), validation.MsgUnexpectedProperty))
		}
	}
	var tasks []json.RawMessage
	switch text, there := fields["tasks"]; {
	case !there:
		found = append(found, fault("", fmt.Sprintf(validation.MsgExpectedRequiredProperty, "tasks")))
	case json.Unmarshal(text, &tasks) != nil, tasks == nil:
		found = append(found, fault("/tasks", validation.MsgExpectedArray))
	case len(tasks) == 0:
		found = append(found, fault("/tasks", "expected array length >= 1"))
	}
	if len(found) > 0 {
		return nil, refused(http.StatusUnprocessableEntity, "", found)
	}
	return tasks, nil
}

// readTask reads task i of a batch.
func (a *API) readTask(c *call, text []byte, i int) (n NewTask, task tocsin.NewTask, err error) {
	all, at := a.huma.OpenAPI().Components.Schemas, huma.NewPathBuffer(nil, 0)
	at.Push("body")
	at.Push("tasks")
	at.PushIndex(i)
	tooLarge := refused(http.StatusUnprocessableEntity, "", []error{&huma.ErrorDetail{Location: at.String(), Message: "a number is too large"}})
	var parsed any
	if err := json.Unmarshal(text, &parsed); err != nil { // it is JSON, so a number is beyond float64
		return n, task, tooLarge
	}
	found := huma.ValidateResult{}
	huma.Validate(all, all.Map()["NewTask"], at, huma.ModeWriteToServer, parsed, &found)
	if len(found.Errors) > 0 {
		return n, task, refused(http.StatusUnprocessableEntity, "", found.Errors)
	}
	if err := json.Unmarshal(text, &n); err != nil { // the schema holds, so a number is beyond Int
		return n, task, tooLarge
	}
	task, err = n.task(c)
	if p := (*Problem)(nil); errors.As(err, &p) {
		p.under(at.String())
	}
	return n, task, err
}

func resultOf(done tocsin.Added, n NewTask, i int) Result {
	if done.Err != nil {
		p := asProblem(addProblem(done.Err, n.BizType, n.at()))
		return Result{Problem: p.under(fmt.Sprintf("body.tasks[%d]", i))}
	}
	added := addedOf(done)
	return Result{Added: &added}
}

// failed is wholly of the tasks of a batch.
func (m AddedMany) failed() error {
	problems := make([]*Problem, len(m.Results))
	for i, r := range m.Results {
		problems[i] = r.Problem
	}
	return wholly(problems)
}

// wholly returns the problem of many tasks if all of them failed for want of servers; nil if any of them has another answer, which
// is a nil problem if the task did not fail. If any task may be changed, it says so.
func wholly(problems []*Problem) error {
	p := problems[0]
	for _, one := range problems {
		if one == nil || one.Status < http.StatusInternalServerError {
			return nil
		}
		if one.Code == "outcome_unknown" {
			p = one
		}
	}
	return p
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
