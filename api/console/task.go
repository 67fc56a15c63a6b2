package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/name"
)

// taskPage is what is known of a task. Each part is there, or why it is not.
type taskPage struct {
	ID         string
	Task       *api.Task
	Why        *api.Explanation
	WhyProblem *api.Problem
	Runs       []api.Run
	MoreRuns   bool
	RunProblem *api.Problem
	Recorded   bool   // no attempt is there, although each is recorded
	Seen       string // what a refresh compares the row with; "": the task has ended, and is not read again
	Act        string // the form that was refused
	Copy       *copied
}

// runsShown is how many attempts a page of a task has at most.
const runsShown = 50

// finals are the statuses in which nothing more happens by itself.
var finals = []api.Status{"done", "cancelled", "dead"}

// Open reports whether the task has not ended.
func (t *taskPage) Open() bool { return t.Task != nil && !slices.Contains(finals, t.Task.Status) }

// seen tells two states of a task's row apart, and whether it is due.
func seen(t api.Task, now time.Time) string {
	return fmt.Sprintf("%s.%d.%d.%d.%t", t.Status, t.Version, t.Attempts, t.Modified.UnixMilli(), t.ActionTime.After(now))
}

// A page that was open when its task ended reads it twice more: the last attempt is written up to a second later.
const (
	endedOnce  = "ended.1"
	endedTwice = "ended.2"
)

// seenNow is what the next refresh of a task's page compares with; "": there is none.
func (v *visit) seenNow(t *taskPage) string {
	switch before := v.r.URL.Query().Get("seen"); {
	case t.Open():
		return seen(*t.Task, v.now)
	case before == "" || before == endedTwice || t.Task == nil || t.Task.Status == "cancelled":
		return ""
	case before == endedOnce:
		return endedTwice
	}
	return endedOnce
}

// Made is how many attempts of the task were made for certain.
func (t *taskPage) Made() int {
	made := t.Task.Attempts
	if t.Task.Status == "done" {
		made++
	}
	return made
}

// recorded reports whether the attempts of a task are recorded.
func (v *visit) recorded(t api.Task) bool {
	if t.Schedule != "" {
		return true
	}
	of, problem := ask[api.BizType](v, call{path: "/biz-types/" + t.BizType})
	return problem == nil && of.History
}

// task shows a task. A refresh reads its row alone, until that has changed.
func (v *visit) task() *page {
	id, before := v.r.PathValue("id"), v.r.URL.Query().Get("seen")
	if before == "" {
		return v.taskPage(id)
	}
	row, problem := ask[api.Task](v, call{path: "/tasks/" + id})
	switch {
	case problem != nil:
		return v.failed(problem)
	case seen(row, v.now) == before:
		return &page{name: "task", fragment: "row", Data: &taskPage{ID: id, Task: &row, Seen: before}}
	}
	p := v.taskPage(id)
	p.fragment, p.retarget = "live", "#live"
	return p
}

// taskPage reads all that is known of a task.
func (v *visit) taskPage(id string) *page {
	t := &taskPage{ID: id}
	var row api.Task
	var why api.Explanation
	var runs api.Runs
	var problem *api.Problem
	together(
		func() { row, problem = ask[api.Task](v, call{path: "/tasks/" + id}) },
		func() { why, t.WhyProblem = ask[api.Explanation](v, call{path: "/tasks/" + id + "/why"}) },
		func() {
			runs, t.RunProblem = ask[api.Runs](v, call{path: "/tasks/" + id + "/runs", query: url.Values{"limit": {strconv.Itoa(runsShown)}}})
		},
	)
	if problem != nil && problem.Status < http.StatusInternalServerError && t.RunProblem != nil {
		p := v.failed(problem)
		p.Nav = "tasks"
		return p
	}
	if problem == nil {
		t.Task, t.Copy = &row, v.copyOf(row)
	}
	if t.WhyProblem == nil {
		t.Why = &why
	}
	t.Runs, t.MoreRuns = runs.Runs, runs.NextCursor != ""
	t.Seen = v.seenNow(t)
	t.Recorded = t.Task != nil && t.RunProblem == nil && len(t.Runs) == 0 && v.recorded(row)
	p := &page{
		name: "task", Nav: "tasks", Title: v.T("task.title", v.Shown(id)), Problem: problem, Data: t, Said: v.said(),
		Shell: []string{v.curl("GET", "/tasks/"+id+"/why", ""), words("tocsin task why", id), v.curl("GET", "/tasks/"+id, ""), words("tocsin task get", id), words("tocsin task runs", id)},
	}
	if row.Status == "dead" {
		p.Shell = append(p.Shell, words("tocsin task redrive", id))
	}
	return p
}

// changeTask does what a button of the page says, and shows the task again.
func (v *visit) changeTask() *page {
	id, act := v.r.PathValue("id"), v.r.PathValue("act")
	if act == "copy" {
		return v.copyTask(id)
	}
	body, problem := v.changeOf(act)
	if problem == nil {
		_, problem = ask[api.Task](v, call{method: http.MethodPost, path: "/tasks/" + id + ":" + act, body: body})
	}
	if problem == nil {
		return &page{to: pathOf("tasks", id) + v.did("task."+act)}
	}
	if problem.Status == http.StatusNotFound {
		return v.failed(problem)
	}
	p := v.taskPage(id)
	if t, ok := p.Data.(*taskPage); ok {
		p.Problem, p.Status, t.Act = problem, problem.Status, act
	}
	return p
}

// changeOf is the body of a change of a task, as its form has it.
func (v *visit) changeOf(act string) (any, *api.Problem) {
	switch act {
	case "cancel":
		return nil, nil
	case "redrive":
		return api.Revival{SameKey: v.form("same_key") != "", Reason: v.because()}, nil
	case "bury":
		return api.Burial{Reason: v.form("reason")}, nil
	case "reschedule":
		at, problem := v.newTime()
		return at, problem
	}
	return nil, v.refusal(http.StatusNotFound, "no_such_path", "problem.nowhere")
}

// because is the reason of a form.
func (v *visit) because() api.Reason { return api.Reason{Reason: v.form("reason")} }

// newTime reads a time of the visit's zone, or a number of minutes from now.
func (v *visit) newTime() (at api.NewTime, problem *api.Problem) {
	if minutes := v.form("minutes"); minutes != "" {
		n, err := strconv.ParseFloat(minutes, 64)
		if !(err == nil && n >= 0 && n <= 10*366*24*60) {
			return at, v.refusal(http.StatusUnprocessableEntity, "invalid", "problem.minutes")
		}
		ms := api.Int(n * 60_000)
		return api.NewTime{DelayMS: &ms}, nil
	}
	due, err := v.timeOf(v.form("at"))
	if err != nil {
		return at, v.refusal(http.StatusUnprocessableEntity, "invalid", "problem.time")
	}
	return api.NewTime{DueTime: &api.Time{Time: due}}, nil
}

// timeOf reads a time as an input for dates has it, in the zone of the visit.
func (v *visit) timeOf(text string) (at time.Time, err error) {
	for _, form := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02 15:04:05"} {
		if at, err = time.ParseInLocation(form, text, v.zone); err == nil {
			return at, nil
		}
	}
	return name.ReadTime(text)
}

// own reports whether a request began at a page of the console, as far as the browser tells.
func (v *visit) own() bool {
	site := v.r.Header.Get("Sec-Fetch-Site")
	return site == "" || site == "same-origin"
}

// freshFor is how long a page says what was done, so that its address does not say so again an hour later.
const freshFor = time.Minute

// stamped is a parameter of a page that follows a change, with when that was.
func (v *visit) stamped(value string) string {
	return value + "@" + strconv.FormatInt(v.now.Unix(), 10)
}

// fresh returns a parameter that was stamped within freshFor; "" also of a link from elsewhere, which has done nothing.
func (v *visit) fresh(name string) string {
	value, at, _ := strings.Cut(v.r.URL.Query().Get(name), "@")
	when, err := strconv.ParseInt(at, 10, 64)
	if err != nil || !v.own() || v.now.Sub(time.Unix(when, 0)).Abs() > freshFor {
		return ""
	}
	return value
}

// did is the query of a page that says what was done, by its key.
func (v *visit) did(what string) string { return "?done=" + v.stamped(what) }

// said is what a button of the page before has done; "": nothing, or not just now.
func (v *visit) said() string {
	if pair, ok := texts["done."+v.fresh("done")]; ok {
		return pair[languages[v.lang].column]
	}
	return ""
}

// tasksPage is a list of tasks, or what a search has found.
type tasksPage struct {
	Searched bool
	Tasks    []api.Task
	Schedule *api.Schedule // of the name that was searched for
	Next     string        // cursor
	BizTypes []api.BizType
	Statuses []string
	Refused  bool // the text is no key
	Window   window
	Kept     url.Values // what the list is of
}

// pageSize is how many rows a list has at most.
const pageSize = 50

// statuses are those that a list can be of.
var statuses = []string{"pending", "claimed", "dead", "done", "cancelled"}

// tasks finds a task by what somebody has in hand, or lists those in a status.
func (v *visit) tasks() *page {
	q, status, of := v.r.FormValue("q"), v.r.FormValue("status"), v.r.FormValue("biz_type")
	list := &tasksPage{Statuses: statuses, Kept: v.kept(taskFilters)}
	p := &page{name: "tasks", Nav: "tasks", Title: v.T("tasks"), Data: list}
	if types, problem := ask[api.BizTypes](v, call{path: "/biz-types"}); problem == nil {
		list.BizTypes = types.BizTypes
	}
	switch {
	case q != "":
		list.Searched = true
		v.search(p, list, q)
		if len(list.Tasks) == 0 && list.Schedule == nil && p.Problem == nil && p.to == "" && v.r.FormValue("cursor") == "" {
			p.to = v.elsewhere(list, strings.TrimSpace(q))
		}
	case status != "":
		list.Searched = true
		v.listTasks(p, list, status, of)
	}
	return p
}

// maxKey is the longest biz_key, in bytes.
const maxKey = 64

// numberIn returns an id without the spaces that were copied with it, or another text as it is.
func numberIn(text string) (string, bool) {
	id := strings.TrimSpace(text)
	if _, err := strconv.ParseUint(id, 10, 64); err != nil || id[0] == '0' {
		return text, false
	}
	return id, true
}

// search asks for a job_id, a biz_id, a biz_key and a schedule of a text. One task alone is shown at once.
func (v *visit) search(p *page, list *tasksPage, q string) {
	if len(q) > maxKey {
		list.Refused = true
		return
	}
	var about api.Tasks
	var task api.Task
	var schedule api.Schedule
	problems := [3]*api.Problem{}
	q, number := numberIn(q)
	flag, name := "--key", "biz_key"
	if number {
		flag, name = "--biz-id", "biz_id"
	}
	cursor := v.r.FormValue("cursor")
	query := pageQuery(cursor)
	query.Set(name, q)
	query.Set("payload", "false")
	together(
		func() {
			if number && cursor == "" {
				task, problems[0] = ask[api.Task](v, call{path: "/tasks/" + q})
			}
		},
		func() { about, problems[1] = ask[api.Tasks](v, call{path: "/tasks", query: query}) },
		func() {
			if !noName(q) {
				schedule, problems[2] = ask[api.Schedule](v, call{path: "/schedules/" + q})
			}
		},
	)
	if task.JobID != "" {
		list.Tasks = append(list.Tasks, task)
	}
	list.Tasks, list.Next = append(list.Tasks, about.Tasks...), about.NextCursor
	if schedule.ID != "" {
		list.Schedule = &schedule
	}
	for _, problem := range problems {
		if problem != nil && problem.Status != http.StatusNotFound {
			p.Problem = problem
		}
	}
	if len(list.Tasks) == 1 && list.Schedule == nil && p.Problem == nil && cursor == "" && list.Next == "" {
		p.to = pathOf("tasks", list.Tasks[0].JobID)
	}
	if number {
		p.Shell = []string{v.curl("GET", "/tasks/"+q, ""), words("tocsin task get", q)}
	}
	p.Shell = append(p.Shell, v.curl("GET", "/tasks?"+url.Values{name: {q}}.Encode(), ""), words("tocsin task list "+flag, q))
}

// numbers are those in a text.
var numbers = regexp.MustCompile(`[0-9]+`)

// elsewhere is the path of what a text means that is no key: a biz type, or the only number in it, as in "order 42"; "" for none.
func (v *visit) elsewhere(list *tasksPage, q string) string {
	if slices.ContainsFunc(list.BizTypes, func(t api.BizType) bool { return t.Name == q }) {
		return pathOf("biz-types", q)
	}
	all := numbers.FindAllString(q, -1)
	if len(all) != 1 || all[0] == q || list.Refused {
		return ""
	}
	p, found := &page{}, &tasksPage{}
	if v.search(p, found, all[0]); len(found.Tasks) == 0 {
		return ""
	}
	return cmp.Or(p.to, "/tasks"+query(url.Values{"q": {all[0]}}.Encode()))
}

// pageQuery asks for a page of a list.
func pageQuery(cursor string) url.Values {
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	return query
}
