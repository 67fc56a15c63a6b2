package api

import (
	"context"
	"net/http"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// tasks registers the operations that add and look up tasks.
func (a *API) tasks() {
	register(a, operation{
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
			"earliest first; done, cancelled and dead ones from the latest on. Pages may be short, or empty: go on until there is no next_cursor.",
		errors: []int{http.StatusNotFound},
	}, a.listTasks)
	register(a, operation{
		id: "get_task", method: http.MethodGet, path: "/tasks/{id}", tag: "tasks", needs: apitoken.Read,
		summary: "Get a task", errors: []int{http.StatusNotFound},
	}, a.getTask)
}

// byID names a task in a path.
type byID struct {
	ID ID `path:"id" doc:"The task's job_id"`
}

// jobID reads the id. One beyond 63 bits is no task.
func (in byID) jobID() (tocsin.JobID, error) {
	id, err := tocsin.ParseJobID(string(in.ID))
	if err != nil {
		return 0, problem(http.StatusNotFound, "not_found", "there is no task %s that you may see", in.ID)
	}
	return id, nil
}

// visible reads a task that the caller may see.
func (a *API) visible(ctx context.Context, c *call, in byID) (*tocsin.Client, tocsin.Info, error) {
	c.object = "task " + string(in.ID)
	id, err := in.jobID()
	if err != nil {
		return nil, tocsin.Info{}, err
	}
	client, err := a.backend.client.get(ctx)
	if err != nil {
		return nil, tocsin.Info{}, err
	}
	info, err := a.read(ctx, c, client, id)
	return client, info, err
}

// read reads a task that the caller may see.
func (a *API) read(ctx context.Context, c *call, client *tocsin.Client, id tocsin.JobID) (tocsin.Info, error) {
	if id.Table() >= client.Layout().Total() {
		return tocsin.Info{}, noTask(id)
	}
	info, err := client.Get(ctx, id)
	switch {
	case err != nil && problemOf(err).Status == http.StatusNotFound, err == nil && !c.sees(info.BizType):
		return tocsin.Info{}, noTask(id)
	case err != nil:
		return info, err
	}
	c.object = "task " + id.String() + " of " + info.BizType
	return info, nil
}

func (a *API) getTask(ctx context.Context, c *call, in *byID) (*body[Task], error) {
	_, info, err := a.visible(ctx, c, *in)
	if err != nil {
		return nil, err
	}
	people, err := a.backend.people.get(ctx)
	if err == nil {
		err = people.NameSchedule(ctx, &info)
	}
	if err != nil {
		return nil, err
	}
	return &body[Task]{taskOf(info)}, nil
}
