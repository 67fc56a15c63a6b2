package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin/api"
)

// selectedPage is what became of the tasks or schedules that were selected in a list, or the selection again, with why nothing was done.
type selectedPage struct {
	Of     string // tasks or schedules
	Field  string // of the form, that names one of them
	Names  []string
	Acted  []acted // empty: nothing was done
	Failed int
	Kept   url.Values // what the list was of
}

// acted is what became of one of them.
type acted struct {
	Name    string
	State   string // afterwards; "": not known
	Problem *api.Problem
}

// Done is how many did not fail.
func (s *selectedPage) Done() int { return len(s.Acted) - s.Failed }

// Back is the path of the list.
func (s *selectedPage) Back() string { return "/" + s.Of + query(s.Kept.Encode()) }

// Of a list: the parameters that say what it is of.
var (
	taskFilters     = []string{"q", "status", "biz_type", "from", "to", "all", "cursor"}
	scheduleFilters = []string{"q", "sort", "state", "app", "biz_type", "cursor"}
)

// kept are parameters of the request that are not empty.
func (v *visit) kept(names []string) url.Values {
	all := url.Values{}
	for _, name := range names {
		if value := v.r.FormValue(name); value != "" {
			all.Set(name, value)
		}
	}
	return all
}

// Picked reports whether something of a list is selected.
func (p *page) Picked(field string, value any) bool {
	return p.r.FormValue("pick") == "all" || slices.Contains(p.r.Form[field], fmt.Sprint(value))
}

// selection reads what was selected: at most what a page shows.
func (v *visit) selection(of, field string, filters []string) (*page, *selectedPage) {
	s := &selectedPage{Of: of, Field: field, Kept: v.kept(filters)}
	p := &page{name: "selected", Nav: of, Title: v.T("selected"), Data: s}
	s.Names = v.r.PostForm[field]
	switch {
	case len(s.Names) == 0:
		p.Problem = v.refusal(http.StatusUnprocessableEntity, "unselected", "problem.unselected")
	case len(s.Names) > pageSize:
		p.Problem, s.Names = v.refusal(http.StatusUnprocessableEntity, "toomany", "problem.toomany"), s.Names[:pageSize]
	}
	return p, s
}

// actOnTasks does the same with each task that was selected.
func (v *visit) actOnTasks() *page {
	p, s := v.selection("tasks", "job_id", taskFilters)
	if p.Problem != nil {
		return p
	}
	act := api.Act{Act: v.form("act"), Reason: v.form("reason"), SameKey: v.form("act") == "redrive" && v.form("same_key") != ""}
	for _, id := range s.Names {
		act.JobIDs = append(act.JobIDs, api.ID(id))
	}
	if act.Act == "reschedule" {
		if act.NewTime, p.Problem = v.newTime(); p.Problem != nil {
			return p
		}
	}
	var became api.ActedMany
	if became, p.Problem = ask[api.ActedMany](v, call{method: http.MethodPost, path: "/tasks:act", body: act}); p.Problem != nil {
		return p
	}
	s.Failed = became.Failed
	for _, one := range became.Results {
		s.Acted = append(s.Acted, acted{string(one.JobID), string(one.Status), one.Problem})
	}
	p.Shell = []string{v.curl("POST", "/tasks:act", text(act)), commandOf(act, s.Names)}
	return p
}

// text is a body as JSON.
func text(body any) string {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // they are structs of texts and numbers
	}
	return string(text)
}

// commandOf is the command that does the same.
func commandOf(act api.Act, ids []string) string {
	command := words("tocsin task "+act.Act, ids...)
	switch {
	case act.Act == "bury":
		command += words("", "--reason", act.Reason)
	case act.SameKey:
		command += " --same-key"
	case act.DelayMS != nil:
		command += words("", "--in", (time.Duration(*act.DelayMS) * time.Millisecond).String())
	case act.DueTime != nil:
		command += words("", "--at", act.DueTime.UTC().Format(time.RFC3339))
	}
	return command
}

// turnSchedules activates or deactivates each schedule that was selected.
func (v *visit) turnSchedules() *page {
	act := v.r.PathValue("act")
	if act != "activate" && act != "deactivate" {
		return v.nowhere()
	}
	p, s := v.selection("schedules", "name", scheduleFilters)
	if p.Problem != nil {
		return p
	}
	names := api.ScheduleNames{Names: s.Names, Reason: v.because()}
	if names.Reason.Reason == "" {
		p.Problem = v.refusal(http.StatusUnprocessableEntity, "reason", "problem.reason")
		return p
	}
	var became api.TurnedSchedules
	if became, p.Problem = ask[api.TurnedSchedules](v, call{method: http.MethodPost, path: "/schedules:" + act, body: names}); p.Problem != nil {
		return p
	}
	s.Failed = became.Failed
	for _, one := range became.Results {
		s.Acted = append(s.Acted, acted{one.Name, string(one.State), one.Problem})
	}
	p.Shell = []string{v.curl("POST", "/schedules:"+act, text(names)), words("tocsin schedule "+act, s.Names...)}
	return p
}

// window is the time of a list, as it was asked for. A list of tasks that have ended is of the last day, unless it names a time or asks for all.
type window struct {
	From, To time.Time
	Day      bool // nobody has named a time
}

// dayLong is how far back a list goes unless it names a time.
const dayLong = 24 * time.Hour

// windowOf reads the time of a list, and adds it to what is asked for.
func (v *visit) windowOf(query url.Values, ended bool) (w window, problem *api.Problem) {
	for name, into := range map[string]*time.Time{"from": &w.From, "to": &w.To} {
		if text := v.r.FormValue(name); text != "" {
			at, err := v.timeOf(text)
			if err != nil {
				return w, v.refusal(http.StatusUnprocessableEntity, "invalid", "problem.instant")
			}
			*into = at
		}
	}
	if w.Day = ended && w.From.IsZero() && w.To.IsZero() && v.r.FormValue("all") == ""; w.Day {
		w.From = v.now.Add(-dayLong).Truncate(time.Second)
	}
	for name, at := range map[string]time.Time{"from": w.From, "to": w.To} {
		if !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339))
		}
	}
	return w, nil
}

// Typed is a time as a field of a form has it; "" for none.
func (v *visit) Typed(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.In(v.zone).Format("2006-01-02T15:04:05")
}

// ISO is the first time of a window as a link has it, so that all pages of a list are of the same time.
func (w window) ISO() string {
	if w.From.IsZero() {
		return ""
	}
	return w.From.UTC().Format(time.RFC3339)
}

// listTasks lists the tasks in a status, without their payloads.
func (v *visit) listTasks(p *page, list *tasksPage, status, of string) {
	query := pageQuery(v.r.FormValue("cursor"))
	query.Set("status", status)
	query.Set("payload", "false")
	if of != "" {
		query.Set("biz_type", of)
	}
	if list.Window, p.Problem = v.windowOf(query, slices.Contains(finals, api.Status(status))); p.Problem != nil {
		return
	}
	var found api.Tasks
	found, p.Problem = ask[api.Tasks](v, call{path: "/tasks", query: query})
	list.Tasks, list.Next, p.Lacks = found.Tasks, found.NextCursor, found.Incomplete
	query.Del("cursor")
	p.Shell = []string{
		v.curl("GET", "/tasks?"+query.Encode(), ""),
		words("tocsin task list", "--status", status, "--limit", strconv.Itoa(pageSize), "--type", of, "--from", query.Get("from"), "--to", query.Get("to")),
	}
}
