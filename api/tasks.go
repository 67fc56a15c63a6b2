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

// tasks registers the operations that add tasks, look them up and explain them.
func (a *API) tasks() {
	a.deadGroups()
	registerWhole(a, operation{
		id: "add_task", method: http.MethodPost, path: "/tasks", tag: "tasks", needs: apitoken.Write, status: http.StatusCreated,
		summary: "Add a task",
		about: "Stores a task. dedup_key makes the request safe to repeat: if a task of this biz type and biz_id (or biz_key) has the key already, nothing is " +
			"stored, and the answer is 200 with that task.",
		also:   map[int]string{http.StatusOK: "The task was there already"},
		errors: []int{http.StatusNotFound, http.StatusConflict},
	}, a.addTask)
	register(a, operation{
		id: "add_tasks", method: http.MethodPost, path: "/tasks:batch", tag: "tasks", needs: apitoken.Write,
		summary: "Add up to 1000 tasks", batch: true,
		about: "Stores many tasks in few round trips. It is not atomic: results tells for each task, in the order given, what became of it. " +
			"The answer is 200 also if tasks failed: look at failed. Of a batch with many faults, errors names the first 20.",
	}, a.addTasks)
	register(a, operation{
		id: "list_tasks", method: http.MethodGet, path: "/tasks", tag: "tasks", needs: apitoken.Read, connects: true,
		summary: "List tasks of a biz_id, of a business key, or in a status",
		about: "Name one of biz_id, biz_key and status. Tasks of a biz_id or key come oldest first; pending and claimed ones of a status by action_time, the " +
			"earliest first; done, cancelled and dead ones from the latest on. from and to bound the action_time; without them the list is of all times. " +
			"Pages may be short, or empty: go on until there is no next_cursor.",
		errors: []int{http.StatusNotFound},
	}, a.listTasks)
	register(a, operation{
		id: "get_task", method: http.MethodGet, path: "/tasks/{id}", tag: "tasks", needs: apitoken.Read,
		summary: "Get a task", errors: []int{http.StatusNotFound},
	}, a.getTask)
	register(a, operation{
		id: "explain_task", method: http.MethodGet, path: "/tasks/{id}/why", tag: "tasks", needs: apitoken.Read, connects: true,
		summary: "Say where a task is and what it waits for",
		about: "Reads the row, the policies, etcd or the session tables, and the status pages of the nodes that may have the task, as `tocsin task why` does. " +
			"What could not be asked is named.",
		errors: []int{http.StatusNotFound},
	}, a.explainTask)
}

// ByTask names a task in a path.
type ByTask struct {
	ID ID `path:"id" doc:"The task's job_id"`
}

// jobID reads the id. One beyond 63 bits is no task.
func (in ByTask) jobID() (tocsin.JobID, error) {
	id, err := tocsin.ParseJobID(string(in.ID))
	if err != nil {
		return 0, noTask(string(in.ID))
	}
	return id, nil
}

// visible reads a task that the caller may see. If client is not nil, info has the job_id even beside an error.
func (a *API) visible(ctx context.Context, c *call, in ByTask) (client *tocsin.Client, info tocsin.Info, err error) {
	c.object = "task " + string(in.ID)
	id, err := in.jobID()
	if err != nil {
		return nil, info, err
	}
	if client, err = a.backend.client.get(ctx); err != nil {
		return nil, info, err
	}
	info, err = a.read(ctx, c, client, id)
	info.JobID = id
	return client, info, err
}

// read reads a task that the caller may see.
func (a *API) read(ctx context.Context, c *call, client *tocsin.Client, id tocsin.JobID) (tocsin.Info, error) {
	if id.Table() >= client.Layout().Total() {
		return tocsin.Info{}, noTask(id.String())
	}
	info, err := client.Get(ctx, id)
	switch {
	case err != nil && problemOf(err).Status == http.StatusNotFound, err == nil && !c.sees(info.BizType):
		return tocsin.Info{}, noTask(id.String())
	case err != nil:
		return info, err
	}
	c.object = "task " + id.String() + " of " + info.BizType
	return info, nil
}

func (a *API) getTask(ctx context.Context, c *call, in *ByTask) (task Task, err error) {
	_, info, err := a.visible(ctx, c, *in)
	if err != nil {
		return task, err
	}
	people, err := a.backend.people.get(ctx)
	if err == nil {
		err = people.NameSchedule(ctx, &info)
	}
	return taskOf(info), err
}

// listQuery says which tasks to list.
type listQuery struct {
	BizID   ID     `query:"biz_id" doc:"All tasks that are about this"`
	BizKey  string `query:"biz_key" maxLength:"64" doc:"All tasks that are about this business key"`
	Status  Status `query:"status" doc:"Tasks of all tables in this status; beside biz_id or biz_key: of those only the ones in it"`
	BizType string `query:"biz_type" maxLength:"64" doc:"Of this biz type only"`
	From    Time   `query:"from" doc:"With an action_time at this time or later"`
	To      Time   `query:"to" doc:"With an action_time at this time or earlier"`
	Payload bool   `query:"payload" default:"true" doc:"false: payloads are not read: payload is empty, headers and payload_version are left out"`
	Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Tasks of a page at most"`
	Cursor  string `query:"cursor" maxLength:"200" doc:"next_cursor of the page before, with the same other parameters"`
}

// Tasks is a page of tasks.
type Tasks struct {
	Tasks      []Task   `json:"tasks"`
	NextCursor string   `json:"next_cursor,omitempty" doc:"Where the next page begins; left out on the last page"`
	Incomplete []string `json:"incomplete,omitempty" doc:"Servers that could not be asked in full: their tasks may be missing"`
}

func (a *API) listTasks(ctx context.Context, c *call, in *listQuery) (page Tasks, err error) {
	if in.BizType != "" && !c.sees(in.BizType) {
		return page, noType(in.BizType)
	}
	row := int64(8 << 10)
	if !in.Payload {
		row = 2 << 10
	}
	if !c.hold(min(int64(in.Limit)*row, pageBytes)) {
		return page, full()
	}
	switch {
	case !in.To.IsZero() && in.From.After(in.To.Time):
		return page, problem(http.StatusUnprocessableEntity, "invalid", "from is after to: swap them").at("query.to")
	case in.BizID != "" && in.BizKey != "":
		return page, problem(http.StatusUnprocessableEntity, "invalid", "name one of biz_id, biz_key and status").at("query.biz_key")
	case in.BizID != "" || in.BizKey != "":
		return a.listOf(ctx, c, in)
	case in.Status != "":
		return widely(a, func() (Tasks, error) { return a.listIn(ctx, c, in) })
	}
	return page, problem(http.StatusUnprocessableEntity, "invalid", "name the tasks by one of biz_id, biz_key and status").at("query.biz_id")
}

// filter describes the list that a cursor is valid for.
func (q *listQuery) filter() string {
	list := string(q.BizID) + "\n" + q.BizKey + "\n" + string(q.Status) + "\n" + q.BizType
	if !q.From.IsZero() || !q.To.IsZero() { // without, as cursors of former versions have it
		list += "\n" + q.From.Format(time.RFC3339Nano) + "\n" + q.To.Format(time.RFC3339Nano)
	}
	return list
}

// listOf lists tasks of a biz_id or key, as they stand in their index.
func (a *API) listOf(ctx context.Context, c *call, in *listQuery) (page Tasks, err error) {
	q := tocsin.ListQuery{
		BizKey: in.BizKey, BizType: in.BizType, Sees: c.filter(), Limit: in.Limit, From: in.From.Time, To: in.To.Time, NoPayload: !in.Payload,
	}
	if in.BizKey == "" {
		if q.BizID, err = in.BizID.number(); err != nil {
			return page, problem(http.StatusUnprocessableEntity, "invalid", "biz_id is above 2^64-1").at("query.biz_id")
		}
	}
	if in.Cursor != "" {
		if q.After, err = readListCursor(in.Cursor, in.filter()); err != nil {
			return page, err
		}
	}
	client, err := a.backend.client.get(ctx)
	if err != nil {
		return page, err
	}
	infos, next, err := client.ListPage(ctx, q)
	if err != nil {
		return page, err
	}
	page.Tasks = []Task{}
	for _, info := range infos {
		if in.Status == "" || info.Status.String() == string(in.Status) {
			page.Tasks = append(page.Tasks, taskOf(info))
		}
	}
	if next != nil {
		page.NextCursor = listCursor(*next, in.filter())
	}
	return page, nil
}

// listIn lists tasks of all tables in a status.
func (a *API) listIn(ctx context.Context, c *call, in *listQuery) (page Tasks, err error) {
	after, err := readCursor(in.Cursor, in.filter())
	if err != nil {
		return page, err
	}
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return page, err
	}
	q := operator.Query{
		BizType: in.BizType, Sees: c.filter(), After: after, Limit: in.Limit, From: in.From.Time, To: in.To.Time, NoPayload: !in.Payload,
	}
	_ = q.Status.UnmarshalText([]byte(in.Status)) // the schema has checked it
	found, err := people.FindPage(ctx, q)
	if page.Incomplete, err = c.incomplete(err, len(found.Tasks) > 0); err != nil {
		return page, addProblem(err, in.BizType, "")
	}
	page.Tasks = make([]Task, len(found.Tasks))
	for i, info := range found.Tasks {
		page.Tasks[i] = taskOf(info)
	}
	if found.Next != nil {
		page.NextCursor = cursor(*found.Next, in.filter())
	}
	return page, nil
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

	Parts ExplanationParts `json:"parts" doc:"The sentences in parts"`
}

func (a *API) explainTask(ctx context.Context, c *call, in *ByTask) (out Explanation, err error) {
	id, err := in.jobID()
	if err != nil {
		return out, err
	}
	answer, err := a.cfg.Cluster.Why(ctx, id, nil, c.filter())
	switch {
	case errors.Is(err, tocsin.ErrNotFound), err == nil && answer.State == operator.StateGone:
		return out, noTask(id.String())
	case err != nil:
		return out, err
	}
	out = Explanation{
		JobID: idOf(uint64(id)), State: string(answer.State), Says: answer.Says, Also: answer.Also, NotAsked: answer.Unasked, Table: answer.Table,
		Server: answer.Server, Group: answer.Group, Owner: answer.Owner, When: timeOf(answer.When), Since: timeOf(answer.Since),
		Parts: ExplanationParts{sentenceOf(answer.Parts.Says), sentencesOf(answer.Parts.Also), sentencesOf(answer.Parts.Unasked)},
	}
	if answer.Task != nil {
		answer.Task.Table = answer.Table
		task := taskOf(*answer.Task)
		out.Task = &task
	}
	return out, nil
}

// timeOf is nil for no time.
func timeOf(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	return &Time{t}
}
