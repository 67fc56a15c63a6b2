package api

import (
	"cmp"
	"context"
	"encoding/binary"
	"net/http"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/schedule"
)

// scheduleLists registers the list of schedules, and the preview of a definition.
func (a *API) scheduleLists() {
	register(a, operation{
		id: "list_schedules", method: http.MethodGet, path: "/schedules", tag: "schedules", needs: apitoken.Read,
		summary: "List schedules",
		about: "In the order of their names, or with sort=next_fire of next_fire, which active schedules alone have. With last=true each has its last_run, and a page at " +
			"most 50. A page looks through 2000 schedules of each database at most, so it may be short, or empty: go on until there is no next_cursor.",
		errors: []int{http.StatusNotFound},
	}, a.listSchedules)
	register(a, operation{
		id: "preview_schedule", method: http.MethodPost, path: "/schedules:preview", tag: "schedules", needs: apitoken.Read,
		summary: "Check a definition, and list its next fire times",
		about: "Of a schedule that is not stored, as if it were activated now by the clock of the node that answers. Nothing is read or stored, so it is not known " +
			"whether the name is free and the biz type is there. What is wrong with the body as such, as a text where a number belongs, is a 422.",
	}, a.previewSchedule)
}

// schedulesQuery says which schedules to list.
type schedulesQuery struct {
	App     string        `query:"app" maxLength:"64" doc:"Of this app only"`
	BizType string        `query:"biz_type" maxLength:"64" doc:"With runs of this biz type only"`
	State   ScheduleState `query:"state" doc:"In this state only"`
	Q       string        `query:"q" maxLength:"64" doc:"Only those with this text in their name" example:"report"`
	Sort    string        `query:"sort" enum:"name,next_fire" default:"name" doc:"The order. Runs are made up to 20 minutes ahead, and next_fire is the first fire time behind those"`
	Last    bool          `query:"last" doc:"With last_run"`
	Limit   int           `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Schedules of a page at most"`
	Cursor  string        `query:"cursor" maxLength:"200" doc:"next_cursor of the page before, with the same other parameters"`
}

// filter describes the list that a cursor is valid for.
func (q *schedulesQuery) filter() string {
	return strings.Join([]string{"schedules", q.App, q.BizType, string(q.State), q.Q, q.Sort}, "\n")
}

// Schedules is a page of schedules.
type Schedules struct {
	Schedules  []Schedule `json:"schedules"`
	NextCursor string     `json:"next_cursor,omitempty" doc:"Where the next page begins; left out on the last page"`
	Incomplete []string   `json:"incomplete,omitempty" doc:"Servers that could not be asked in full: their schedules, or last runs, may be missing"`
}

// LastRun is the latest entry in the history of a schedule.
type LastRun struct {
	JobID      ID     `json:"job_id" doc:"Of the task that the run is"`
	Outcome    string `json:"outcome" doc:"One word, as tocsin task runs --help lists them" example:"completed"`
	Started    Time   `json:"started" doc:"By the server's clock"`
	LatenessMS int64  `json:"lateness_ms" doc:"The start minus the action time"`
	DurationMS int64  `json:"duration_ms" doc:"Until the handler returned, or its time was over"`
}

func lastRunOf(r *schedule.LastRun) *LastRun {
	if r == nil {
		return nil
	}
	return &LastRun{idOf(uint64(r.JobID)), r.Outcome, Time{r.Started}, r.LatenessMS, r.DurationMS}
}

func (a *API) listSchedules(ctx context.Context, c *call, in *schedulesQuery) (page Schedules, err error) {
	byNext := in.Sort == "next_fire"
	switch {
	case in.BizType != "" && !c.sees(in.BizType):
		return page, noType(in.BizType)
	case byNext && in.State != "" && schedule.State(in.State) != schedule.Active:
		return page, problem(http.StatusUnprocessableEntity, "invalid", "only active schedules have a next fire time: list the others with sort=name").at("query.sort")
	}
	after, err := readPlace(in.Cursor, in.filter())
	if err != nil {
		return page, err
	}
	timers, err := a.backend.timers.get(ctx)
	if err != nil {
		return page, err
	}
	found, err := timers.Page(ctx, schedule.Query{
		App: in.App, BizType: in.BizType, Sees: c.filter(), State: schedule.State(in.State), Part: in.Q, ByNext: byNext, Last: in.Last, Limit: in.Limit,
	}, after)
	if page.Incomplete, err = c.incomplete(err, len(found.Schedules) > 0); err != nil {
		return page, addProblem(err, in.BizType, "")
	}
	page.Schedules = make([]Schedule, len(found.Schedules))
	for i, s := range found.Schedules {
		page.Schedules[i] = scheduleOf(s)
		page.Schedules[i].Fires = timeOf(s.Fires())
	}
	if found.Next != nil {
		page.NextCursor = sealPlace(*found.Next, in.filter())
	}
	return page, nil
}

// sealPlace writes a place in a list of schedules.
func sealPlace(p schedule.Place, filter string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(p.Windows))
	b = binary.BigEndian.AppendUint64(b, uint64(p.Fire.UnixMilli()))
	b = binary.BigEndian.AppendUint64(b, uint64(p.ID))
	return seal(append(b, p.Name...), filter)
}

// readPlace reads what sealPlace wrote; the place before all for "".
func readPlace(text, filter string) (p schedule.Place, err error) {
	if text == "" {
		return p, nil
	}
	b, err := unseal(text, filter)
	if err != nil || len(b) < 4+8+8 {
		return p, cmp.Or(err, badCursor(foreignCursor))
	}
	p = schedule.Place{
		Name: string(b[4+8+8:]), Fire: time.UnixMilli(int64(binary.BigEndian.Uint64(b[4:]))).UTC(),
		ID: tocsin.JobID(binary.BigEndian.Uint64(b[4+8:])), Windows: int(binary.BigEndian.Uint32(b)),
	}
	if p.Name != "" && name.CheckLower("name", p.Name) != nil || p.Fire.Year() < 1 || p.Fire.Year() > 9999 {
		return schedule.Place{}, badCursor(foreignCursor)
	}
	return p, nil
}

// Preview is what a definition would be as a schedule.
type Preview struct {
	Faults []Fault `json:"faults" doc:"What is wrong with its fields: with any, it can't be stored"`
	Times  []Time  `json:"times" doc:"Its next fire times; none if a field that they depend on is wrong. Runs are due later by a constant below jitter"`
}

func (a *API) previewSchedule(_ context.Context, c *call, in *struct {
	N    int `query:"n" minimum:"1" maximum:"100" default:"10" doc:"How many fire times at most"`
	Body ScheduleDefinition
}) (Preview, error) {
	d, faults := in.Body.read()
	if !c.sees(d.BizType) {
		faults = append(faults, Fault{Location: "body.biz_type", Message: noType(d.BizType).Detail})
	}
	times := schedule.Definition{Name: "preview", BizType: "preview", Cron: d.Cron, Zone: d.Zone, Start: d.Start, End: d.End, Jitter: d.Jitter}
	fires, _ := times.Next(time.Now(), in.N) // its error is among the faults
	out := Preview{Faults: faults, Times: make([]Time, len(fires))}
	for i, fire := range fires {
		out.Times[i] = Time{fire}
	}
	if out.Faults == nil {
		out.Faults = []Fault{}
	}
	return out, nil
}
