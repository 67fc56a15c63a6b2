package api

import (
	"cmp"
	"context"
	"encoding/binary"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
)

// recentRuns registers the list of the newest runs of all tasks and schedules.
func (a *API) recentRuns() {
	register(a, operation{
		id: "list_runs", method: http.MethodGet, path: "/runs", tag: "tasks", needs: apitoken.Read, connects: true,
		summary: "List the newest runs of all tasks and schedules",
		about: "The latest start first. Of each database only the newest 2000 runs are looked at, whatever the other parameters say: if there are older ones, complete_from " +
			"says since when none is missing. The history of one task or schedule goes back further.",
		errors: []int{http.StatusNotFound},
	}, a.listRuns)
}

// RunOutcome is what became of an attempt, or failed for all outcomes that are failures.
type RunOutcome string

// Schema describes a RunOutcome, for huma.
func (RunOutcome) Schema(r huma.Registry) *huma.Schema {
	outcomes := []any{operator.Failed}
	for _, outcome := range operator.Outcomes {
		outcomes = append(outcomes, outcome)
	}
	return oneOf(r, "RunOutcome", outcomes...)
}

// recentQuery says which of the newest runs to list.
type recentQuery struct {
	Outcome  RunOutcome `query:"outcome" doc:"With this outcome only; failed finds retried, buried, cut_off and missed"`
	App      string     `query:"app" maxLength:"64" doc:"Only runs of the schedules of this app"`
	BizType  string     `query:"biz_type" maxLength:"64" doc:"Of this biz type only"`
	Schedule string     `query:"schedule" maxLength:"64" doc:"Only runs of the schedule of this name"`
	From     Time       `query:"from" doc:"Only runs that started then or later"`
	To       Time       `query:"to" doc:"Only runs that started before then"`
	Limit    int        `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Runs of a page at most"`
	Cursor   string     `query:"cursor" maxLength:"200" doc:"next_cursor of the page before, with the same other parameters"`
}

// filter describes the list that a cursor is valid for.
func (q *recentQuery) filter() string {
	return strings.Join([]string{"newest runs", string(q.Outcome), q.App, q.BizType, q.Schedule, q.From.UTC().String(), q.To.UTC().String()}, "\n")
}

// RecentRuns is a page of the newest runs.
type RecentRuns struct {
	Runs       []Run    `json:"runs" doc:"Without fire_time"`
	NextCursor string   `json:"next_cursor,omitempty" doc:"Where the next page begins; left out on the last page"`
	Complete   *Time    `json:"complete_from,omitempty" doc:"Runs that had ended by then may be missing, as only the newest 2000 of a database are looked at; left out if none is missing"`
	Incomplete []string `json:"incomplete,omitempty" doc:"Servers that could not be asked in full: their runs may be missing"`
}

func (a *API) listRuns(ctx context.Context, c *call, in *recentQuery) (page RecentRuns, err error) {
	if in.BizType != "" && !c.sees(in.BizType) {
		return page, noType(in.BizType)
	}
	after, err := readRunPlace(in.Cursor, in.filter())
	if err != nil {
		return page, err
	}
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return page, err
	}
	found, err := widely(a, func() (operator.Recent, error) {
		return people.RecentRuns(ctx, operator.RecentQuery{
			Outcome: string(in.Outcome), App: in.App, Schedule: in.Schedule, BizType: in.BizType, Sees: c.filter(), From: in.From.Time, To: in.To.Time, After: after, Limit: in.Limit,
		})
	})
	if page.Incomplete, err = c.incomplete(err, len(found.Runs) > 0); err != nil {
		return page, addProblem(err, in.BizType, "")
	}
	page.Runs, page.Complete = make([]Run, len(found.Runs)), timeOf(found.Complete)
	for i, r := range found.Runs {
		page.Runs[i] = runOf(r)
	}
	if found.Next != nil {
		page.NextCursor = sealRunPlace(*found.Next, in.filter())
	}
	return page, nil
}

// sealRunPlace writes a place among the newest runs.
func sealRunPlace(p operator.RecentPlace, filter string) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.Started))
	b = binary.BigEndian.AppendUint32(b, uint32(p.Database))
	return seal(binary.BigEndian.AppendUint64(b, p.ID), filter)
}

// readRunPlace reads what sealRunPlace wrote; nil for "".
func readRunPlace(text, filter string) (*operator.RecentPlace, error) {
	if text == "" {
		return nil, nil
	}
	b, err := unseal(text, filter)
	if err != nil || len(b) != 8+4+8 {
		return nil, cmp.Or(err, badCursor(foreignCursor))
	}
	return &operator.RecentPlace{
		Started: int64(binary.BigEndian.Uint64(b)), Database: int(binary.BigEndian.Uint32(b[8:])), ID: binary.BigEndian.Uint64(b[8+4:]),
	}, nil
}
