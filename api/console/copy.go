package console

import (
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/tocsinhq/tocsin/api"
)

// copied is the form for a copy of a task.
type copied struct {
	BizID, BizKey, Payload string
	Editable               bool   // no character of the payload is changed by a form, or can't be seen
	Once                   string // makes a second click add no second task
}

// copyOf is the form as it is before anybody has typed.
func (v *visit) copyOf(t api.Task) *copied {
	c := &copied{BizKey: t.BizKey, Payload: t.Payload, Editable: v.Shown(t.Payload) == t.Payload, Once: rand.Text()}
	if t.BizKey == "" {
		c.BizID = string(t.BizID)
	}
	return c
}

// copyTask adds a copy of a task with the changes of the form, and shows it.
func (v *visit) copyTask(id string) *page {
	row, problem := ask[api.Task](v, call{path: "/tasks/" + id})
	if problem != nil {
		return v.failed(problem)
	}
	typed := v.copyOf(row)
	typed.BizID, typed.BizKey, typed.Once = v.form("biz_id"), v.form("biz_key"), v.form("once")
	if _, given := v.r.PostForm["payload"]; given && typed.Editable {
		typed.Payload = strings.ReplaceAll(v.r.PostFormValue("payload"), "\r\n", "\n") // as browsers send a line's end
	}
	when, problem := v.newTime()
	var added api.Added
	if problem == nil {
		added, problem = ask[api.Added](v, call{method: http.MethodPost, path: "/tasks", body: api.NewTask{
			BizType: row.BizType, BizID: api.ID(typed.BizID), BizKey: typed.BizKey, DueTime: when.DueTime, DelayMS: when.DelayMS, DedupKey: typed.Once,
			Payload: &typed.Payload, PayloadVersion: api.Int(row.PayloadVersion), Headers: row.Headers,
		}})
	}
	if problem == nil {
		return &page{to: pathOf("tasks", added.JobID) + v.did("task.copy")}
	}
	p := v.taskPage(id)
	if t, ok := p.Data.(*taskPage); ok {
		p.Problem, p.Status, t.Act, t.Copy = problem, problem.Status, "copy", typed
	}
	return p
}
