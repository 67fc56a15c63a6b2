package console

import (
	"net/url"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin/api"
)

// runsPage is a list of the newest runs.
type runsPage struct {
	Runs   api.RecentRuns
	Window window
}

// outcomes are those that have a text.
var outcomes = named("outcome")

// Outcomes are those that have a text.
func (*visit) Outcomes() []string { return outcomes }

// Since is a time that many hours ago, as a link has it.
func (v *visit) Since(hours int) string {
	return v.now.Add(-time.Duration(hours) * time.Hour).UTC().Format(time.RFC3339)
}

// runs lists the newest runs of all tasks and schedules.
func (v *visit) runs() *page {
	list := &runsPage{}
	p := &page{name: "runs", Nav: "schedules", Title: v.T("runs"), Data: list}
	query := pageQuery(v.r.FormValue("cursor"))
	if list.Window, p.Problem = v.windowOf(query, false); p.Problem != nil {
		return p
	}
	for name, values := range v.kept([]string{"outcome", "app", "biz_type", "schedule"}) {
		query.Set(name, values[0])
	}
	list.Runs, p.Problem = ask[api.RecentRuns](v, call{path: "/runs", query: query})
	p.Lacks = list.Runs.Incomplete
	query.Del("cursor")
	p.Shell = []string{v.curl("GET", "/runs?"+query.Encode(), ""), runsCommand(query)}
	return p
}

// runsCommand is the command that lists the same runs.
func runsCommand(query url.Values) string {
	return words("tocsin runs", "--outcome", query.Get("outcome"), "--app", query.Get("app"), "--type", query.Get("biz_type"), "--schedule", query.Get("schedule"),
		"--since", query.Get("from"), "--until", query.Get("to"), "--limit", strconv.Itoa(pageSize))
}
