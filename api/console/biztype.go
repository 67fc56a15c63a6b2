package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin/api"
)

// start lists the biz types, from which all else is a click away.
func (v *visit) start() *page {
	types, problem := ask[api.BizTypes](v, call{path: "/biz-types"})
	p := &page{name: "start", Nav: "start", Title: v.T("start"), Data: types, Problem: problem, Shell: []string{v.curl("GET", "/biz-types", ""), "tocsin biz list"}}
	if types.Incomplete {
		p.Lacks = []string{v.T("lacks.policy")}
	}
	return p
}

// bizTypePage is what is known of a biz type.
type bizTypePage struct {
	BizType     api.BizType
	Nodes       []typeNode
	NodeProblem *api.Problem
	Counted     *api.Redriven // what a redrive would do
	Until       string        // of what was counted
	Unconfirmed string        // why nothing was redriven
	Redriven    *api.Redriven // what one has done
	Dead        *api.DeadGroups
	DeadProblem *api.Problem

	Lane         string              // state; "": not known
	Faults       []api.OverviewFault // of the biz type
	Reading      bool                // there may be more
	FaultProblem *api.Problem        // why none are known
}

// Default reports whether a field of the policy has its default.
func (b *bizTypePage) Default(field string) bool { return slices.Contains(b.BizType.Defaults, field) }

// typeNode is a node of the biz type's group.
type typeNode struct {
	api.Node

	Delivers bool
	Lacks    string // why it can't deliver the biz type; "": it can
}

// bizType shows a biz type.
func (v *visit) bizType() *page { return v.bizTypePage(v.r.PathValue("name")) }

func (v *visit) bizTypePage(name string) *page {
	b := &bizTypePage{Redriven: v.redriven()}
	var problem *api.Problem
	var nodes api.Nodes
	together(
		func() { b.BizType, problem = ask[api.BizType](v, call{path: "/biz-types/" + name}) },
		func() { v.faultsOf(b, name) },
		func() {
			if v.who.SeesAll() { // the API refuses others
				nodes, b.NodeProblem = ask[api.Nodes](v, call{path: "/cluster/nodes"})
			}
		},
		func() {
			if v.r.URL.Query().Get("dead") == "groups" { // of a link, since it reads an index of every table
				dead, refused := ask[api.DeadGroups](v, call{path: "/tasks:deadgroups", query: url.Values{"biz_type": {name}}})
				if b.DeadProblem = refused; refused == nil {
					b.Dead = &dead
				}
			}
		},
	)
	if problem != nil {
		return v.failed(problem)
	}
	for _, g := range nodes.Groups {
		if g.Group == b.BizType.Group {
			b.Nodes = append(b.Nodes, nodesOf(g, name)...)
		}
	}
	turn := "tocsin biz pause"
	if b.BizType.Paused {
		turn = "tocsin biz resume"
	}
	p := &page{
		name: "biztype", Nav: "start", Title: v.T("biztype.title", v.Shown(name)), Data: b, Said: v.said(),
		Shell: append([]string{v.curl("GET", pathOf("biz-types", name), ""), words("tocsin biz show", name), words(turn, name)}, v.redriveShell(name)...),
	}
	if nodes.Incomplete {
		p.Lacks = []string{v.T("lacks.nodes")}
	}
	if b.Redriven != nil {
		p.Lacks = append(p.Lacks, b.Redriven.Incomplete...)
	}
	if b.Dead != nil {
		p.Lacks = append(p.Lacks, b.Dead.Incomplete...)
		p.Shell = append(p.Shell, v.curl("GET", "/tasks:deadgroups?"+url.Values{"biz_type": {name}}.Encode(), ""), words("tocsin task dead", "--type", name))
	}
	return p
}

// faultsOf finds what the overview says of a biz type.
func (v *visit) faultsOf(b *bizTypePage, name string) {
	now, problem := ask[api.Overview](v, call{path: "/overview"})
	b.FaultProblem, b.Reading = problem, reading(now)
	b.Faults = slices.DeleteFunc(now.Faults, func(f api.OverviewFault) bool { return f.BizType != name })
	if i := slices.IndexFunc(now.BizTypes, func(t api.OverviewType) bool { return t.BizType == name }); i >= 0 {
		b.Lane = now.BizTypes[i].State
	}
}

// nodesOf are the nodes of a group, as far as they are about one biz type.
func nodesOf(g api.NodeGroup, bizType string) []typeNode {
	all := make([]typeNode, len(g.Nodes))
	for i, n := range g.Nodes {
		all[i] = typeNode{n, slices.Contains(n.BizTypes, bizType), n.Lacks[bizType]}
	}
	return all
}

// changeBizType does what a button of the page says, and shows the biz type again.
func (v *visit) changeBizType() *page {
	name, act := v.r.PathValue("name"), v.r.PathValue("act")
	switch act {
	case "pause", "resume":
		_, problem := ask[api.BizType](v, call{method: http.MethodPost, path: "/biz-types/" + name + ":" + act, body: v.because()})
		if problem == nil {
			return &page{to: pathOf("biz-types", name) + v.did("biztype."+act)}
		}
		return v.bizTypeRefused(name, problem)
	case "redrive":
		return v.redriveDead(name)
	}
	return v.nowhere()
}

// bizTypeRefused shows the biz type, and why something was not done.
func (v *visit) bizTypeRefused(name string, problem *api.Problem) *page {
	p := v.bizTypePage(name)
	if p.Problem == nil {
		p.Problem, p.Status = problem, problem.Status
	}
	return p
}

// redriveDead counts the dead tasks that a form names, or redrives them once the name of the biz type has been typed.
func (v *visit) redriveDead(name string) *page {
	body, problem := v.redriveOf(name)
	unconfirmed := ""
	switch {
	case body.DryRun:
	case v.form("confirm") != name:
		unconfirmed = v.T("problem.confirm")
	case body.Reason.Reason == "":
		unconfirmed = v.T("problem.reason")
	}
	body.DryRun = body.DryRun || unconfirmed != ""
	var done api.Redriven
	if problem == nil {
		done, problem = ask[api.Redriven](v, call{method: http.MethodPost, path: "/tasks:redrive", body: body})
	}
	switch {
	case problem != nil:
		return v.bizTypeRefused(name, problem)
	case !done.DryRun:
		return &page{to: pathOf("biz-types", name) + query(v.redrivenQuery(done).Encode()) + "#redrive"} // reloading that redrives nothing
	}
	p := v.bizTypePage(name)
	if b, ok := p.Data.(*bizTypePage); ok {
		p.Lacks = append(p.Lacks, done.Incomplete...)
		b.Counted, b.Unconfirmed = &done, unconfirmed
		b.Until = cmp.Or(v.form("until"), v.Whole(api.Time{Time: v.now}, true)) // not what dies from now on
	}
	if unconfirmed != "" {
		p.Status = http.StatusUnprocessableEntity
	}
	return p
}

// redriveShell are the commands that count what the form of a redrive names, or all dead tasks.
func (v *visit) redriveShell(name string) []string {
	of, _ := v.redriveOf(name) // of a form that was refused, as far as it could be read
	of.DryRun, of.Reason = true, api.Reason{}
	if of.Until == nil && v.r.PathValue("act") == "redrive" {
		of.Until = &api.Time{Time: v.now.Truncate(time.Second).Add(time.Second)} // as the page has it
	}
	at := func(t *api.Time) string {
		if t == nil {
			return ""
		}
		return v.Exact(t.Time)
	}
	most := func(n api.Int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(int(n))
	}
	command := words("tocsin task redrive", "--type", name, "--since", at(of.Since), "--until", at(of.Until), "--error", of.Error, "--limit", most(of.Limit), "--per-second", most(of.PerSecond))
	if of.SameKey {
		command += " --same-key"
	}
	if of.Restored {
		command += " --restored"
	}
	return []string{v.curl("POST", "/tasks:redrive", text(of)), command + " --dry-run"}
}

// redrivenQuery is what a redrive has done, for the page that follows it.
func (v *visit) redrivenQuery(done api.Redriven) url.Values {
	q := url.Values{"redriven": {v.stamped(strconv.Itoa(done.Redriven))}, "left": {strconv.Itoa(done.Left)}, "lacks": done.Incomplete}
	if done.Complete {
		q.Set("complete", "1")
	}
	return q
}

// redriven is what the redrive before this page has done; nil: there was none, or not just now.
func (v *visit) redriven() *api.Redriven {
	q := v.r.URL.Query()
	n, err := strconv.Atoi(v.fresh("redriven"))
	if err != nil || n < 0 || v.r.Method != http.MethodGet {
		return nil
	}
	left, _ := strconv.Atoi(q.Get("left")) // 0: none
	return &api.Redriven{Redriven: n, Left: max(left, 0), Complete: q.Has("complete"), Incomplete: q["lacks"]}
}

// Whole is a time as a field of a form has it, and with up the next whole second unless it is one.
func (v *visit) Whole(at api.Time, up bool) string {
	if up {
		at.Time = at.Add(time.Second - time.Nanosecond)
	}
	return v.Typed(at.Time)
}

// redriveOf is what a form says of the tasks to redrive.
func (v *visit) redriveOf(name string) (api.Redrive, *api.Problem) {
	r := api.Redrive{Reason: v.because(), BizType: name, Error: v.form("error"), SameKey: v.form("same_key") != "", Restored: v.form("restored") != "", DryRun: v.form("do") != "redrive"}
	for field, into := range map[string]**api.Time{"since": &r.Since, "until": &r.Until} {
		if v.form(field) == "" {
			continue
		}
		at, err := v.timeOf(v.form(field))
		if err != nil {
			return r, v.refusal(http.StatusUnprocessableEntity, "invalid", "problem.time")
		}
		*into = &api.Time{Time: at}
	}
	for field, into := range map[string]*api.Int{"limit": &r.Limit, "per_second": &r.PerSecond} {
		n, err := strconv.Atoi(v.form(field))
		if v.form(field) != "" && (err != nil || n < 1) {
			return r, v.refusal(http.StatusUnprocessableEntity, "invalid", "problem.number")
		}
		*into = api.Int(n)
	}
	return r, nil
}

// clusterPage is what was asked of the cluster: each part is a button, since it asks etcd, and the counts every table.
type clusterPage struct {
	Show   string
	Nodes  *api.Nodes
	Tables *api.Tables
	Stats  *api.Stats
	TookMS int64
}

// Shows are what can be asked for.
func (*clusterPage) Shows() []string { return []string{"nodes", "tables", "counts", "stats"} }

// Counts reports whether the tasks of the tables were counted.
func (c *clusterPage) Counts() bool { return c.Show == "counts" }

// Count writes how many tasks of a biz type are in a status, and says so if there may be more.
func (c *clusterPage) Count(status api.Status, tasks int) string {
	text := grouped(tasks)
	if slices.Contains(c.Stats.AtLeast, status) {
		return "≥ " + text
	}
	return text
}

// Share is how long the bar of a node is that has some tables, in percent of the longest.
func (c *clusterPage) Share(tables int) int {
	most := 1
	if c.Nodes != nil {
		for _, g := range c.Nodes.Groups {
			for _, n := range g.Nodes {
				most = max(most, n.Tables)
			}
		}
	}
	if c.Tables != nil {
		for _, g := range c.Tables.Groups {
			for _, s := range g.Shares {
				most = max(most, s.Tables)
			}
		}
	}
	return tables * 100 / most
}

// grouped writes a number with a comma before each three digits.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// cluster shows nodes, tables or counts.
func (v *visit) cluster() *page {
	c := &clusterPage{Show: v.r.URL.Query().Get("show")}
	p := &page{name: "cluster", Nav: "cluster", Title: v.T("cluster"), Data: c}
	incomplete := false
	switch c.Show {
	case "nodes":
		nodes, problem := ask[api.Nodes](v, call{path: "/cluster/nodes"})
		if p.Problem = problem; problem == nil {
			c.Nodes, incomplete = &nodes, nodes.Incomplete
		}
		p.Shell = []string{v.curl("GET", "/cluster/nodes", ""), "tocsin cluster nodes"}
	case "tables", "counts":
		values := url.Values{}
		if c.Show == "counts" {
			values.Set("counts", "true")
		}
		tables, problem := ask[api.Tables](v, call{path: "/cluster/tables", query: values})
		if p.Problem = problem; problem == nil {
			c.Tables, incomplete = &tables, tables.Incomplete
		}
		p.Shell = []string{v.curl("GET", "/cluster/tables"+query(values.Encode()), ""), "tocsin cluster tables --counts=" + strconv.FormatBool(c.Show == "counts")}
	case "stats":
		stats, problem := ask[api.Stats](v, call{path: "/stats"})
		if p.Problem = problem; problem == nil {
			c.Stats, p.Lacks = &stats, stats.Incomplete
		}
		p.Shell = []string{v.curl("GET", "/stats", ""), "tocsin biz stats"}
	}
	if incomplete {
		p.Lacks = []string{v.T("lacks.nodes")}
	}
	c.TookMS = time.Since(v.now).Milliseconds()
	return p
}
