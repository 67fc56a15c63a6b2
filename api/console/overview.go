package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tocsinhq/tocsin/api"
)

// overviewPage is what is wrong, and how each biz type does, as the nodes and a walk over the tables said last.
type overviewPage struct {
	Problem *api.Problem // why nothing is known; the page goes on asking
	api.Overview

	Reading               bool     // a verdict needs what is not read yet
	MoreFaults, MoreTypes int      // beside those that are shown
	Unasked               []string // nodes, servers and tables
	WalkAgeMS             *int64   // of what is overdue; nil: not known yet
}

// What an overview shows at most, so that a refresh stays small however many there are.
const (
	faultsShown = 30
	typesShown  = 50
)

// overview shows what is wrong. A refresh has the part that changes alone.
func (v *visit) overview() *page {
	o := &overviewPage{}
	p := &page{
		name: "overview", Nav: "overview", Title: v.T("overview"), Data: o, Said: v.said(),
		Shell: []string{v.curl("GET", "/overview", ""), "tocsin top", "tocsin biz pause BIZ_TYPE", "tocsin biz resume BIZ_TYPE"},
	}
	o.Overview, o.Problem = ask[api.Overview](v, call{path: "/overview", query: url.Values{"past": {"true"}}})
	if o.Problem != nil {
		p.Status = o.Problem.Status
	}
	if v.r.URL.Query().Get("part") == "now" {
		p.fragment = "now"
	}
	o.Unasked, o.WalkAgeMS, o.Reading = v.unasked(o.Overview), walkAge(o.Servers), reading(o.Overview)
	if o.MoreFaults = max(0, len(o.Faults)-faultsShown); o.MoreFaults > 0 {
		o.Faults = o.Faults[:faultsShown]
	}
	if o.MoreTypes = max(0, len(o.BizTypes)-typesShown); o.MoreTypes > 0 {
		o.BizTypes = o.BizTypes[:typesShown]
	}
	slices.SortStableFunc(o.BizTypes, func(a, b api.OverviewType) int { // by how busy they are, rows would change places at each refresh
		return cmp.Or(cmp.Compare(b.OldestMS, a.OldestMS), strings.Compare(a.BizType, b.BizType))
	})
	return p
}

// unasked names what could not be asked.
func (v *visit) unasked(o api.Overview) (all []string) {
	for _, n := range o.Nodes.Silent {
		all = append(all, v.T("overview.node", v.Shown(n.ID)))
	}
	if silent := o.Nodes.Known - o.Nodes.Answering; o.Nodes.Silent == nil && silent > 0 { // their names are not for this token
		all = append(all, v.T("overview.nodes", silent))
	}
	for _, s := range o.Servers {
		switch {
		case s.Away:
			all = append(all, v.T("overview.server", v.Shown(s.Name)))
		case s.Unread > 0:
			all = append(all, v.T("overview.unread", v.Shown(s.Name), s.Unread))
		}
	}
	return all
}

// walkAge is the age of the oldest of the walks over the servers' tables that have ended; nil: none has.
func walkAge(servers []api.OverviewServer) (age *int64) {
	for _, s := range servers {
		if s.OverdueAgeMS != nil && (age == nil || *s.OverdueAgeMS > *age) {
			age = s.OverdueAgeMS
		}
	}
	return age
}

// reading reports whether something is not read yet that comes by itself: rates, which take two answers of a node, or what is overdue.
func reading(o api.Overview) bool {
	if o.Nodes.Answering > 0 && o.RatesOverMS == 0 {
		return true
	}
	for _, s := range o.Servers {
		if s.OverdueAgeMS == nil && !s.Away {
			return true
		}
	}
	return walkAge(o.Servers) != nil && slices.ContainsFunc(o.BizTypes, func(t api.OverviewType) bool { return t.Overdue == nil })
}

// Known reports whether what is overdue has been read.
func (o *overviewPage) Known() bool {
	return o.WalkAgeMS != nil && !slices.ContainsFunc(o.BizTypes, func(t api.OverviewType) bool { return t.Overdue == nil })
}

// Rate writes how often something happens in a second.
func (*overviewPage) Rate(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0"
	case perSecond < 0.1:
		return "< 0.1"
	case perSecond < 100:
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return strconv.FormatFloat(perSecond, 'f', 0, 64)
}

// changeOverview pauses or resumes a biz type, and shows the overview again.
func (v *visit) changeOverview() *page {
	name, act := v.form("biz_type"), v.form("do")
	if act != "pause" && act != "resume" || noName(name) {
		return v.nowhere()
	}
	_, problem := ask[api.BizType](v, call{method: http.MethodPost, path: "/biz-types/" + name + ":" + act, body: v.because()})
	if problem == nil {
		return &page{to: "/" + v.did("overview."+act)}
	}
	p := v.overview()
	p.Problem, p.Status = problem, problem.Status
	return p
}
