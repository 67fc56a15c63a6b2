package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
)

// listQuery says which tasks to list.
type listQuery struct {
	BizID   ID     `query:"biz_id" doc:"All tasks that are about this, oldest first"`
	BizKey  string `query:"biz_key" maxLength:"64" doc:"All tasks that are about this business key, oldest first"`
	Status  Status `query:"status" doc:"Tasks of all tables in this status; beside biz_id or biz_key: of those only the ones in it"`
	BizType string `query:"biz_type" maxLength:"64" doc:"Of this biz type only"`
	Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Tasks of a page at most"`
	Cursor  string `query:"cursor" maxLength:"200" doc:"next_cursor of the page before, with the same other parameters"`
}

// Tasks is a page of tasks.
type Tasks struct {
	Tasks      []Task   `json:"tasks"`
	NextCursor string   `json:"next_cursor,omitempty" doc:"Where the next page begins; left out on the last page"`
	Incomplete []string `json:"incomplete,omitempty" doc:"Servers that could not be asked in full: their tasks may be missing"`
}

func (a *API) listTasks(ctx context.Context, c *call, in *listQuery) (*body[Tasks], error) {
	if in.BizType != "" && !c.sees(in.BizType) {
		return nil, noType(in.BizType)
	}
	after, err := readCursor(in.Cursor, in.filter())
	if err != nil {
		return nil, err
	}
	var page Tasks
	switch {
	case in.BizID != "" && in.BizKey != "":
		return nil, problem(http.StatusUnprocessableEntity, "invalid", "name one of biz_id, biz_key and status")
	case in.BizID != "" || in.BizKey != "":
		page, err = a.listOf(ctx, c, in, after)
	case in.Status != "":
		page, err = a.listIn(ctx, c, in, after)
	default:
		return nil, problem(http.StatusUnprocessableEntity, "invalid", "name the tasks by one of biz_id, biz_key and status")
	}
	if err != nil {
		return nil, err
	}
	return &body[Tasks]{page}, nil
}

// filter describes the list that a cursor is valid for.
func (q *listQuery) filter() string {
	return string(q.BizID) + "\n" + q.BizKey + "\n" + string(q.Status) + "\n" + q.BizType
}

// listOf lists tasks of a biz_id or key. They are few; a page goes on after a job_id.
func (a *API) listOf(ctx context.Context, c *call, in *listQuery, after *operator.Place) (page Tasks, err error) {
	client, err := a.backend.client.get(ctx)
	if err != nil {
		return page, err
	}
	var infos []tocsin.Info
	if in.BizKey != "" {
		infos, err = client.ListKey(ctx, in.BizKey)
	} else {
		id, bad := in.BizID.number()
		if bad != nil {
			return page, problem(http.StatusUnprocessableEntity, "invalid", "biz_id is above 2^64-1")
		}
		infos, err = client.List(ctx, id)
	}
	if err != nil {
		return page, err
	}
	slices.SortFunc(infos, func(x, y tocsin.Info) int { return cmp.Compare(x.JobID, y.JobID) })
	page.Tasks = []Task{}
	for _, info := range infos {
		switch {
		case !c.sees(info.BizType), in.BizType != "" && info.BizType != in.BizType, in.Status != "" && info.Status.String() != string(in.Status):
		case after != nil && info.JobID <= after.JobID:
		case len(page.Tasks) == in.Limit:
			last := page.Tasks[in.Limit-1].JobID
			id, _ := last.number() // it was a number
			page.NextCursor = cursor(operator.Place{JobID: tocsin.JobID(id)}, in.filter())
			return page, nil
		default:
			page.Tasks = append(page.Tasks, taskOf(info))
		}
	}
	return page, nil
}

// listIn lists tasks of all tables in a status.
func (a *API) listIn(ctx context.Context, c *call, in *listQuery, after *operator.Place) (page Tasks, err error) {
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return page, err
	}
	q := operator.Query{BizType: in.BizType, Sees: c.filter(), After: after, Limit: in.Limit}
	if err := q.Status.UnmarshalText([]byte(in.Status)); err != nil {
		return page, problem(http.StatusUnprocessableEntity, "invalid", "status: use pending, claimed, done, cancelled or dead")
	}
	found, err := people.FindPage(ctx, q)
	if page.Incomplete, err = c.incomplete(err, len(found.Tasks) > 0); err != nil {
		return page, addProblem(err, in.BizType)
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
