package console

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/api"
)

// backfill is a span of the past whose fire times are to get runs.
type backfill struct {
	From, To time.Time
	Counted  *api.Backfilled // nil: nobody has asked
	Seen     string          // digest of the fire times that were counted
	Changed  bool            // since they were counted, so they were counted again in place of making runs
	Problem  *api.Problem
}

// First are the earliest fire times of the span.
func (b *backfill) First() []api.FireTime { return b.Counted.Times[:min(len(b.Counted.Times), 5)] }

// More is how many there are beside those.
func (b *backfill) More() int { return len(b.Counted.Times) - len(b.First()) }

// Make reports whether it was counted, and something is to be made.
func (b *backfill) Make() bool { return b.Counted.DryRun && len(b.Counted.Times) > 0 }

// backfillSchedule counts the fire times of a span, and makes runs for those that were counted. If somebody has changed the schedule since, they
// are counted again.
func (v *visit) backfillSchedule(name string) *page {
	b := &backfill{}
	for field, into := range map[string]*time.Time{"from": &b.From, "to": &b.To} {
		at, err := v.timeOf(v.form(field))
		if err != nil {
			b.Problem = v.refusal(http.StatusUnprocessableEntity, "invalid", "problem.instant")
		}
		*into = at
	}
	if b.Problem == nil {
		b.fill(v, name)
	}
	if b.Problem != nil && b.Problem.Status == http.StatusNotFound {
		return v.failed(b.Problem)
	}
	p := v.schedulePage(name)
	if s, ok := p.Data.(*schedulePage); ok {
		s.Backfill, p.Problem = b, b.Problem
		p.Shell = append(p.Shell, words("tocsin schedule backfill "+quoted(name), "--from", b.From.UTC().Format(time.RFC3339), "--to", b.To.UTC().Format(time.RFC3339)))
	}
	return p
}

// fill counts, and makes the runs if their fire times are those that were counted before.
func (b *backfill) fill(v *visit, name string) {
	asked := func(dryRun bool) bool {
		span := api.Backfill{From: api.Time{Time: b.From}, To: api.Time{Time: b.To}, DryRun: dryRun}
		done, problem := ask[api.Backfilled](v, call{method: http.MethodPost, path: "/schedules/" + name + ":backfill", body: span})
		if b.Problem = problem; problem == nil {
			b.Counted, b.Seen = &done, digest(done.Times)
		}
		return problem == nil
	}
	if !asked(true) || v.form("do") != "make" {
		return
	}
	if b.Changed = v.form("seen") != b.Seen; !b.Changed {
		asked(false)
	}
}

// Exact is a time as a form hands it on.
func (v *visit) Exact(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// deleteSchedule deletes a schedule whose name was typed, as it was when the page was read.
func (v *visit) deleteSchedule(name string) *api.Problem {
	if v.form("confirm") != name {
		return v.refusal(http.StatusUnprocessableEntity, "confirm", "problem.confirmschedule")
	}
	_, problem := ask[struct{}](v, call{method: http.MethodDelete, path: "/schedules/" + name, match: v.form("tag")})
	return problem
}

// scheduleFile is the definition of a schedule as a file.
func (v *visit) scheduleFile() *page {
	name := v.r.PathValue("name")
	found, problem := ask[api.Schedule](v, call{path: "/schedules/" + name})
	if problem != nil {
		return v.failed(problem)
	}
	return v.fileOf(name+".yaml", "", []api.Schedule{found})
}

// What a file of a list holds at most: pages of the list, which may be short, and bytes. To write a file takes many times its size.
const (
	filePage  = 1000
	filePages = 20
	fileBytes = 4 << 20
)

// notAll is a line of a file that lacks schedules.
const notAll = "# Not all: more schedules follow. Narrow the filter.\n"

// schedulesFile is a file of all schedules that a list is of. Its first line says so if some are missing.
func (v *visit) schedulesFile() *page {
	query := v.kept(scheduleFilters)
	query.Del("cursor")
	query.Set("limit", strconv.Itoa(filePage))
	var all []api.Schedule
	var lacks []string
	for n, room := 0, fileBytes; ; n++ {
		found, problem := ask[api.Schedules](v, call{path: "/schedules", query: query})
		if problem != nil {
			return v.failed(problem)
		}
		fit := 0
		fit, room = fitting(found.Schedules, room)
		all, lacks = append(all, found.Schedules[:fit]...), append(lacks, found.Incomplete...)
		switch {
		case fit < len(found.Schedules) || found.NextCursor != "" && n+1 == filePages:
			return v.fileOf("schedules.yaml", missing(lacks)+notAll, all)
		case found.NextCursor == "":
			return v.fileOf("schedules.yaml", missing(lacks), all)
		}
		query.Set("cursor", found.NextCursor)
	}
}

// fitting returns how many of the first schedules have room in a file, and what room is left.
func fitting(some []api.Schedule, room int) (fit, left int) {
	for i, s := range some {
		size := len(text(s.Definition))
		if size > room {
			return i, room
		}
		room -= size
	}
	return len(some), room
}

// missing is a line of a file that says which servers could not be asked; "" for none.
func missing(servers []string) string {
	if len(servers) == 0 {
		return ""
	}
	slices.Sort(servers)
	return "# Not all: schedules of these servers could not be read: " + strings.Join(slices.Compact(servers), ", ") + "\n"
}

// fileOf is a file of definitions.
func (v *visit) fileOf(name, head string, all []api.Schedule) *page {
	if len(all) == 0 {
		return v.failed(v.refusal(http.StatusNotFound, "not_found", "schedules.nofit"))
	}
	text, problem := v.yamlOf(all)
	if problem != nil {
		return v.failed(problem)
	}
	return &page{Title: name, file: []byte(head + text)}
}

// yamlOf writes definitions as a file that tocsin schedule apply takes.
func (v *visit) yamlOf(all []api.Schedule) (string, *api.Problem) {
	definitions := make([]api.ScheduleDefinition, len(all))
	for i, s := range all {
		definitions[i] = s.Definition
	}
	text, err := api.SchedulesYAML(definitions)
	if err != nil {
		v.faults.Of(v.log, "yaml").Error("schedules can't be written as YAML", "error", err)
		return "", v.refusal(http.StatusInternalServerError, "internal", "problem.internal")
	}
	return string(text), nil
}
