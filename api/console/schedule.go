package console

import (
	"cmp"
	"crypto/rand"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/quantile"
)

// schedulesPage is a list of schedules.
type schedulesPage struct {
	Schedules []api.Schedule
	Next      string // cursor
	Filtered  bool
	States    []string
	Orders    []string
	Kept      url.Values // what the list is of
}

// Filter is the query of a file with all that the list is of.
func (s *schedulesPage) Filter() string {
	of := maps.Clone(s.Kept)
	of.Del("cursor")
	return query(of.Encode())
}

// schedules lists schedules by name, or by their next fire time, with their last runs.
func (v *visit) schedules() *page {
	list := &schedulesPage{States: api.ScheduleStates, Orders: []string{"name", "next_fire"}, Kept: v.kept(scheduleFilters)}
	query := url.Values{"limit": {strconv.Itoa(pageSize)}, "last": {"true"}}
	for name, values := range list.Kept {
		query.Set(name, values[0])
		list.Filtered = list.Filtered || name != "sort"
	}
	found, problem := ask[api.Schedules](v, call{path: "/schedules", query: query})
	list.Schedules, list.Next = found.Schedules, found.NextCursor
	query.Del("cursor")
	order := strings.TrimSuffix(query.Get("sort"), "_fire") // the command's word
	return &page{
		name: "schedules", Nav: "schedules", Title: v.T("schedules"), Data: list, Lacks: found.Incomplete, Problem: problem, Said: v.said(),
		Shell: []string{v.curl("GET", "/schedules?"+query.Encode(), ""),
			words("tocsin schedule list --last", "--q", query.Get("q"), "--sort", order, "--app", query.Get("app"), "--type", query.Get("biz_type"), "--state", query.Get("state"), "--limit", strconv.Itoa(pageSize))},
	}
}

// schedulePage is what is known of a schedule. Each part is there, or why it is not.
type schedulePage struct {
	Schedule    api.Schedule
	Next        api.FireTimes
	NextProblem *api.Problem
	Runs        api.ScheduleRuns
	RunsProblem *api.Problem
	Sums        *sums
	Timeline    *timeline
	Backfill    *backfill // nil: none was asked for
	Tag         string    // ETag
	YAML        string    // the definition as a file
	Once        string    // makes a second click on "run now" make no second run
	First       bool      // the first page of the history
}

// sums are figures of the newest runs.
type sums struct {
	Runs, Failed int
	Total, P95   int64 // of durations, in milliseconds
	Late         int64 // lateness of the slowest in twenty
	Oldest       api.Time
}

// counted is how many runs sums is of, at most.
const counted = 200

// schedule shows a schedule.
func (v *visit) schedule() *page { return v.schedulePage(v.r.PathValue("name")) }

func (v *visit) schedulePage(name string) *page {
	s := &schedulePage{Once: rand.Text()}
	cursor := v.r.URL.Query().Get("cursor")
	s.First = cursor == ""
	path := "/schedules/" + name
	var problem, uncounted *api.Problem
	var newest api.ScheduleRuns
	together(
		func() { s.Schedule, problem = ask[api.Schedule](v, call{path: path, tag: &s.Tag}) },
		func() {
			s.Next, s.NextProblem = ask[api.FireTimes](v, call{path: path + "/next", query: url.Values{"n": {"10"}}})
		},
		func() {
			s.Runs, s.RunsProblem = ask[api.ScheduleRuns](v, call{path: path + "/runs", query: pageQuery(cursor)})
		},
		func() {
			if s.First {
				newest, uncounted = ask[api.ScheduleRuns](v, call{path: path + "/runs", query: url.Values{"limit": {strconv.Itoa(counted)}}})
			}
		},
	)
	if problem != nil {
		p := v.failed(problem)
		p.Nav = "schedules"
		return p
	}
	if s.First && uncounted == nil && len(newest.Runs.Runs) > 0 {
		s.Sums = sumsOf(newest.Runs.Runs)
		s.Timeline = timelineOf(newest.Runs.Runs, s.Sums.P95)
	}
	if text, problem := v.yamlOf([]api.Schedule{s.Schedule}); problem == nil {
		s.YAML = text
	}
	return &page{
		name: "schedule", Nav: "schedules", Title: v.T("schedule.title", v.Shown(name)), Data: s, Said: v.said(),
		Shell: []string{
			v.curl("GET", pathOf("schedules", name), ""), words("tocsin schedule show", name), v.curl("GET", pathOf("schedules", name, "runs"), ""), words("tocsin schedule runs", name),
			words("tocsin schedule next", name),
		},
	}
}

// failedOutcomes are those of attempts that did not do what was to be done.
var failedOutcomes = []string{"retried", "buried", "cut_off", "missed"}

// sumsOf adds up runs.
func sumsOf(runs []api.Run) *sums {
	s := &sums{Runs: len(runs), Oldest: runs[len(runs)-1].Started}
	var took, late []int64
	for _, r := range runs {
		s.Total += r.DurationMS
		took, late = append(took, r.DurationMS), append(late, r.LatenessMS)
		if slices.Contains(failedOutcomes, r.Outcome) {
			s.Failed++
		}
	}
	slices.Sort(took)
	slices.Sort(late)
	s.P95, s.Late = quantile.Of(took, 0.95), quantile.Of(late, 0.95)
	return s
}

// changeSchedule does what a button of the page says, and shows the schedule again.
func (v *visit) changeSchedule() *page {
	name, act := v.r.PathValue("name"), v.r.PathValue("act")
	change := call{method: http.MethodPost, path: "/schedules/" + name + ":" + act}
	to := pathOf("schedules", name)
	var problem *api.Problem
	switch act {
	case "run":
		change.key = v.form("once")
		var run api.RunByHand
		run, problem = ask[api.RunByHand](v, change)
		to = pathOf("tasks", run.JobID)
	case "activate", "deactivate":
		change.body = v.because()
		_, problem = ask[api.Schedule](v, change)
	case "backfill":
		return v.backfillSchedule(name)
	case "delete":
		problem = v.deleteSchedule(name)
		to = "/schedules"
	default:
		problem = v.refusal(http.StatusNotFound, "no_such_path", "problem.nowhere")
	}
	if problem == nil {
		return &page{to: to + v.did("schedule."+act)}
	}
	if problem.Status == http.StatusNotFound {
		return v.failed(problem)
	}
	p := v.schedulePage(name)
	p.Problem, p.Status = problem, problem.Status
	if s, ok := p.Data.(*schedulePage); ok {
		s.Once = cmp.Or(change.key, s.Once) // the run may have been made although the answer failed
	}
	return p
}
