package console

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/apitoken"
)

// editSchedule shows the form of a schedule, what a change would do, or what others have changed meanwhile; and saves the change that was shown.
func (v *visit) editSchedule() *page {
	name := v.r.PathValue("name")
	if !v.Can(apitoken.Write) {
		return v.failed(v.refusal(http.StatusForbidden, "scope", "problem.write"))
	}
	if v.r.Method != http.MethodPost {
		e, problem := v.reading(name)
		if problem != nil {
			return v.failed(problem)
		}
		return e.show(v, nil, nil)
	}
	e, d, faults, problem := v.posted(name)
	if problem != nil || len(faults) > 0 {
		return e.refused(v, d, faults, problem)
	}
	put := call{method: http.MethodPut, path: "/schedules/" + name, match: e.Tag, body: d}
	if e.saves(v, d) {
		if _, problem = ask[api.ScheduleChange](v, put); problem == nil {
			return &page{to: pathOf("schedules", name) + v.did("schedule.edit")}
		}
	} else {
		faults, problem = e.changeAhead(v, d, put)
	}
	if problem != nil && problem.Status == http.StatusPreconditionFailed {
		problem = e.merge(v, d)
	}
	return e.show(v, faults, problem)
}

// changeAhead asks what a change would do.
func (e *editor) changeAhead(v *visit, d api.ScheduleDefinition, put call) ([]api.Fault, *api.Problem) {
	var change api.ScheduleChange
	put.query = url.Values{"dry_run": {"true"}}
	faults, problem := e.preview(v, d, func() (p *api.Problem) {
		change, p = ask[api.ScheduleChange](v, put)
		return p
	})
	if problem == nil && len(faults) == 0 {
		if e.Preview.Changes = change.Changes; len(change.Changes) > 0 {
			e.Seen = digest(d)
		}
	}
	return faults, problem
}

// newSchedule shows the form of a new schedule, or of a copy of another, and creates the one that was shown.
func (v *visit) newSchedule() *page {
	if !v.Can(apitoken.Write) {
		return v.failed(v.refusal(http.StatusForbidden, "scope", "problem.write"))
	}
	if v.r.Method != http.MethodPost {
		e := &editor{base: api.ScheduleDefinition{ScheduleFields: api.ScheduleFields{Zone: v.zone.String()}}}
		if from := v.r.FormValue("from"); from != "" && !noName(from) {
			copied, problem := v.reading(from)
			if problem != nil {
				return v.failed(problem)
			}
			e.base = copied.base
			if e.base.Name = ""; e.base.Key == from { // of a schedule without one it is the name
				e.base.Key = ""
			}
		}
		e.form = v.formOf(e.base)
		return e.show(v, nil, nil)
	}
	e, d, faults, problem := v.posted("")
	switch {
	case problem != nil || len(faults) > 0:
		return e.refused(v, d, faults, problem)
	case e.saves(v, d):
		if _, problem = ask[api.Schedule](v, call{method: http.MethodPost, path: "/schedules", body: d}); problem == nil {
			return &page{to: pathOf("schedules", d.Name) + v.did("schedule.new")}
		}
	default:
		if faults, problem = e.preview(v, d, func() *api.Problem { return nil }); problem == nil && len(faults) == 0 {
			e.Seen = digest(d)
		}
	}
	return e.show(v, faults, problem)
}

// reading begins an edit of a schedule.
func (v *visit) reading(name string) (*editor, *api.Problem) {
	e := &editor{Name: name}
	found, problem := ask[api.Schedule](v, call{path: "/schedules/" + name, tag: &e.Tag})
	e.base = found.Definition
	e.form = v.formOf(e.base)
	return e, problem
}

// posted reads what the form says.
func (v *visit) posted(name string) (*editor, api.ScheduleDefinition, []api.Fault, *api.Problem) {
	e := &editor{Name: name, Tag: v.form("tag")}
	var problem *api.Problem
	if json.Unmarshal([]byte(v.r.PostFormValue("base")), &e.base) != nil {
		problem = v.refusal(http.StatusBadRequest, "malformed", "problem.form")
	}
	if name != "" {
		e.base.Name = name
	}
	e.form = v.typedForm(e.base, name == "")
	d, faults := v.definitionOf(e.form)
	return e, d, faults, problem
}

// saves reports whether the definition is to be saved: the button says so, and it is the one whose preview was shown.
func (e *editor) saves(v *visit, d api.ScheduleDefinition) bool {
	if v.form("do") != "save" {
		return false
	}
	e.Changed = v.form("seen") != digest(d)
	return !e.Changed
}

// refused shows what can't be read, and what else is wrong.
func (e *editor) refused(v *visit, d api.ScheduleDefinition, faults []api.Fault, problem *api.Problem) *page {
	if problem == nil {
		var more []api.Fault
		more, problem = e.preview(v, d, func() *api.Problem { return nil })
		e.Preview, faults = nil, append(faults, more...)
	}
	return e.show(v, faults, problem)
}

// preview asks what is wrong with a definition and when it fires, and beside that what else is to be known.
func (e *editor) preview(v *visit, d api.ScheduleDefinition, beside func() *api.Problem) ([]api.Fault, *api.Problem) {
	var ahead api.Preview
	var problem, other *api.Problem
	together(
		func() {
			ahead, problem = ask[api.Preview](v, call{method: http.MethodPost, path: "/schedules:preview", query: url.Values{"n": {"5"}}, body: d})
		},
		func() { other = beside() },
	)
	switch {
	case other != nil && other.Status != http.StatusUnprocessableEntity:
		return ahead.Faults, other
	case problem != nil || len(ahead.Faults) > 0:
		return ahead.Faults, problem
	case other != nil:
		return nil, other
	}
	e.Preview = &preview{Definition: d, Times: ahead.Times}
	return nil, nil
}

// merge is what somebody typed, and what others have saved since the schedule was read.
type merge struct {
	Mine, Theirs, Both []merged
}

// merged is a field in which they differ.
type merged struct {
	Field             string
	Was, Mine, Theirs string // Was is as it was read; Mine "": it was left alone
}

// merge puts what was typed and what others have saved together: fields that one side has changed are as that side has them, and those that
// both have changed as they were typed, with what others have beside it. What others have stays if a form can't have it. Nothing is saved. The next save is of what is stored now.
func (e *editor) merge(v *visit, mine api.ScheduleDefinition) *api.Problem {
	now, problem := v.reading(e.Name)
	if problem != nil {
		return problem
	}
	var typed, read api.ScheduleChange // from what is stored, so Old of each is theirs
	var typedProblem, readProblem *api.Problem
	dry := func(d api.ScheduleDefinition) (api.ScheduleChange, *api.Problem) {
		return ask[api.ScheduleChange](v, call{method: http.MethodPut, path: "/schedules/" + e.Name, query: url.Values{"dry_run": {"true"}}, match: now.Tag, body: d})
	}
	together(
		func() { typed, typedProblem = dry(mine) },
		func() { read, readProblem = dry(e.base) },
	)
	if typedProblem != nil {
		return typedProblem
	}
	if readProblem != nil {
		return readProblem
	}
	was := map[string]string{}
	for _, c := range read.Changes {
		was[c.Field] = c.New
	}
	e.Merge = &merge{}
	differs := map[string]bool{}
	for _, c := range typed.Changes {
		differs[c.Field] = true
		switch old, theirChange := was[c.Field]; {
		case !theirChange:
			e.Merge.Mine = append(e.Merge.Mine, merged{Field: c.Field, Was: c.Old, Mine: c.New})
		case old == c.New:
			e.Merge.Theirs = append(e.Merge.Theirs, merged{Field: c.Field, Was: old, Theirs: c.Old})
			e.form[c.Field] = now.form[c.Field]
		case v.Shown(now.form[c.Field]) != now.form[c.Field]: // the form can't have it
			e.Merge.Theirs = append(e.Merge.Theirs, merged{Field: c.Field, Was: old, Mine: c.New, Theirs: c.Old})
			e.form[c.Field] = now.form[c.Field]
		default:
			e.Merge.Both = append(e.Merge.Both, merged{Field: c.Field, Was: old, Mine: c.New, Theirs: c.Old})
		}
	}
	for _, c := range read.Changes {
		if !differs[c.Field] { // both have made the same of it
			e.Merge.Theirs = append(e.Merge.Theirs, merged{Field: c.Field, Was: c.New, Mine: c.Old, Theirs: c.Old})
		}
	}
	e.Tag, e.base, e.Seen, e.Preview = now.Tag, now.base, "", nil
	return nil
}
