package api

import (
	"context"
	"net/http"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
)

// listQuery says which tasks to list.
type listQuery struct {
	BizID   ID     `query:"biz_id" doc:"All tasks that are about this"`
	BizKey  string `query:"biz_key" maxLength:"64" doc:"All tasks that are about this business key"`
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
	if !c.hold(min(int64(in.Limit)<<13, pageBytes)) {
		return nil, full()
	}
	var page Tasks
	var err error
	switch {
	case in.BizID != "" && in.BizKey != "":
		return nil, problem(http.StatusUnprocessableEntity, "invalid", "name one of biz_id, biz_key and status").at("query.biz_key")
	case in.BizID != "" || in.BizKey != "":
		page, err = a.listOf(ctx, c, in)
	case in.Status != "":
		page, err = widely(a, func() (Tasks, error) { return a.listIn(ctx, c, in) })
	default:
		return nil, problem(http.StatusUnprocessableEntity, "invalid", "name the tasks by one of biz_id, biz_key and status").at("query.biz_id")
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

// listOf lists tasks of a biz_id or key, as they stand in their index.
func (a *API) listOf(ctx context.Context, c *call, in *listQuery) (page Tasks, err error) {
	q := tocsin.ListQuery{BizKey: in.BizKey, BizType: in.BizType, Sees: c.filter(), Limit: in.Limit}
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
	q := operator.Query{BizType: in.BizType, Sees: c.filter(), After: after, Limit: in.Limit}
	if err := q.Status.UnmarshalText([]byte(in.Status)); err != nil {
		return page, problem(http.StatusUnprocessableEntity, "invalid", "status: use pending, claimed, done, cancelled or dead").at("query.status")
	}
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
