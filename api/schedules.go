package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/schedule"
)

// schedules registers the operations that look up schedules.
func (a *API) schedules() {
	registerWhole(a, operation{
		id: "get_schedule", method: http.MethodGet, path: "/schedules/{name}", tag: "schedules", needs: apitoken.Read,
		summary: "Get a schedule", errors: []int{http.StatusNotFound, http.StatusConflict},
	}, func(ctx context.Context, c *call, in *BySchedule) (*TaggedSchedule, error) {
		_, found, err := a.timer(ctx, c, *in)
		return taggedOf(found), err
	})
	register(a, operation{
		id: "list_fire_times", method: http.MethodGet, path: "/schedules/{name}/next", tag: "schedules", needs: apitoken.Read,
		summary: "List the next fire times of a schedule",
		about:   "Those from now on, by the clock of its database, that the schedule has if it is active. A schedule that ends has fewer.",
		errors:  []int{http.StatusNotFound, http.StatusConflict},
	}, a.listFireTimes)
}

// BySchedule names a schedule in a path.
type BySchedule struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the schedule" example:"report.daily"`
}

// timer reads a schedule that the caller may see.
func (a *API) timer(ctx context.Context, c *call, of BySchedule) (timers *schedule.Schedules, found schedule.Schedule, err error) {
	c.object = "schedule " + line(of.Name)
	if name.CheckLower("name", of.Name) != nil {
		return nil, found, noSchedule(of.Name)
	}
	if timers, err = a.backend.timers.get(ctx); err != nil {
		return nil, found, err
	}
	found, err = timers.Get(ctx, of.Name)
	switch {
	case errors.Is(err, schedule.ErrNotFound), err == nil && !c.sees(found.BizType):
		return nil, schedule.Schedule{}, noSchedule(of.Name)
	case err != nil:
		return nil, found, err
	}
	c.object += " of " + found.BizType
	return timers, found, nil
}

// FireTimes are fire times of a schedule.
type FireTimes struct {
	State ScheduleState `json:"state" doc:"Of the schedule: while it is inactive or paused, no runs are made for these times; when it has ended, they are made"`
	Times []FireTime    `json:"times"`
}

func (a *API) listFireTimes(ctx context.Context, c *call, in *struct {
	BySchedule
	N int `query:"n" minimum:"1" maximum:"100" default:"10" doc:"How many at most"`
}) (out FireTimes, err error) {
	_, found, err := a.timer(ctx, c, in.BySchedule)
	if err != nil {
		return out, err
	}
	fires, err := found.Following(found.ReadAt, in.N)
	return FireTimes{ScheduleState(found.State), fireTimesOf(fires)}, err
}

// Duration is a length of time as a policy file has it: 90s, 10m, 24h.
type Duration string

// Schema describes a Duration, for huma.
func (Duration) Schema(huma.Registry) *huma.Schema {
	longest := 64
	return &huma.Schema{Type: "string", MaxLength: &longest, Examples: []any{"90s"}}
}

// read reads a length; 0 for "".
func (d Duration) read() (into biztype.Duration, err error) {
	if d != "" && into.UnmarshalText([]byte(d)) != nil {
		return 0, errors.New("want a duration such as 30s, 10m or 24h")
	}
	return into, nil
}

// durationOf writes a length; "" for 0.
func durationOf(d biztype.Duration) Duration {
	if d == 0 {
		return ""
	}
	return Duration(d.String())
}

// ScheduleStates are all values of a ScheduleState.
var ScheduleStates = statesOf(schedule.States)

func statesOf(all []schedule.State) (states []string) {
	for _, s := range all {
		states = append(states, string(s))
	}
	return states
}

// ScheduleState says whether a schedule makes runs.
type ScheduleState string

// Schema describes a ScheduleState, for huma.
func (ScheduleState) Schema(r huma.Registry) *huma.Schema {
	var values []any
	for _, s := range ScheduleStates {
		values = append(values, s)
	}
	return oneOf(r, "ScheduleState", values...)
}

// ScheduleDefinition is a schedule as people write it. Its fields are those of a YAML file of schedules.
type ScheduleDefinition struct {
	Name string `json:"name,omitempty" minLength:"1" maxLength:"64" doc:"That of the path: it never changes" example:"report.daily"`
	ScheduleFields
}

// NewSchedule is the definition of a schedule to be created.
type NewSchedule struct {
	Name string `json:"name" minLength:"1" maxLength:"64" doc:"Small letters, digits, dots, hyphens and underscores; no other schedule of the cluster has it. It never changes" example:"report.daily"`
	ScheduleFields
}

// ScheduleFields are a definition without the name.
type ScheduleFields struct {
	App            string            `json:"app,omitempty" maxLength:"64" doc:"Whose it is, for people" example:"billing"`
	BizType        string            `json:"biz_type" minLength:"1" maxLength:"64" doc:"Of its runs" example:"report.make"`
	BizID          ID                `json:"biz_id,omitempty" doc:"What its runs are about: this, or key. It never changes"`
	Key            string            `json:"key,omitempty" maxLength:"64" doc:"Business key of its runs; without biz_id and key it is the name. It never changes"`
	Cron           string            `json:"cron" minLength:"1" maxLength:"255" doc:"Five fields, @daily and the like, or @every 90s: see docs/schedules.md" example:"0 4 * * *"`
	Zone           string            `json:"zone,omitempty" maxLength:"64" doc:"IANA name of the time zone of cron; UTC if it is left out" example:"Europe/Berlin"`
	Start          *Time             `json:"start,omitempty" doc:"No fire time before"`
	End            *Time             `json:"end,omitempty" doc:"No fire time from then on"`
	Jitter         Duration          `json:"jitter,omitempty" doc:"Each run is due later by a constant below this, other schedules' runs by others"`
	Payload        *string           `json:"payload,omitempty" maxLength:"8192" doc:"Text that the handler of each run gets as it is; null, the text, if it is left out"`
	PayloadVersion Int               `json:"payload_version,omitempty" minimum:"0" maximum:"9007199254740991" doc:"Of the payload, from 2 on: nodes whose handlers know only older ones leave the runs alone"`
	Headers        map[string]string `json:"headers,omitempty" doc:"Of each run, at most 1024 characters as JSON"`
	StartWithin    Duration          `json:"start_within,omitempty" doc:"A run that starts later than this is missed; 10m if it is left out"`
	Missed         string            `json:"missed,omitempty" enum:"skip,once,all" doc:"What becomes of missed runs: they are passed over, the newest is made up for (so if it is left out), or the newest missed_most are"`
	MissedMost     Int               `json:"missed_most,omitempty" minimum:"0" maximum:"500" doc:"Of missed all; 0: 100"`
	Overlap        string            `json:"overlap,omitempty" enum:"allow,skip,queue,replace" doc:"What becomes of a run while an earlier one is open: it starts (so if it is left out), is skipped, waits, or replaces that one"`
	PauseAfter     Int               `json:"pause_after,omitempty" minimum:"0" maximum:"1000000" doc:"Failed runs in a row that pause it; 0: never"`
}

// definition reads a definition, if the caller may use its biz type. The problem names each field that is wrong.
func (d ScheduleDefinition) definition(c *call) (schedule.Definition, error) {
	if !c.sees(d.BizType) {
		return schedule.Definition{}, noType(d.BizType)
	}
	def, faults := d.read()
	if len(faults) == 0 {
		return def, nil
	}
	p := problem(http.StatusUnprocessableEntity, "invalid", "%s", faults[0].Message)
	p.Errors = faults
	return def, p
}

// read reads a definition, and says what is wrong with its fields.
func (d ScheduleDefinition) read() (def schedule.Definition, faults []Fault) {
	note := func(field, text string) {
		faults = append(faults, Fault{Location: "body." + field, Message: line(text)})
	}
	def = schedule.Definition{
		Name: d.Name, App: d.App, BizType: d.BizType, Key: d.Key, Cron: d.Cron, Zone: d.Zone, Start: d.Start.orZero(), End: d.End.orZero(), Payload: nullPayload,
		PayloadVersion: int(d.PayloadVersion), Headers: d.Headers, Missed: schedule.Missed(d.Missed), MissedMost: int(d.MissedMost), Overlap: schedule.Overlap(d.Overlap), PauseAfter: int(d.PauseAfter),
	}
	if d.Payload != nil {
		def.Payload = *d.Payload
	}
	var err error
	if d.BizID != "" {
		if def.BizID, err = d.BizID.number(); err != nil {
			note("biz_id", "biz_id is above 2^64-1")
		}
	}
	if def.Jitter, err = d.Jitter.read(); err != nil {
		note("jitter", err.Error())
	}
	if def.StartWithin, err = d.StartWithin.read(); err != nil {
		note("start_within", err.Error())
	}
	for _, f := range def.Faults() {
		note(f.Field, f.Err.Error())
	}
	return def, faults
}

// orZero is the zero time for nil.
func (t *Time) orZero() time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func definitionOf(d schedule.Definition) ScheduleDefinition {
	out := ScheduleDefinition{d.Name, ScheduleFields{
		App: d.App, BizType: d.BizType, Key: d.Key, Cron: d.Cron, Zone: d.Zone, Start: timeOf(d.Start), End: timeOf(d.End),
		Jitter: durationOf(d.Jitter), Payload: &d.Payload, PayloadVersion: Int(d.PayloadVersion), Headers: d.Headers, StartWithin: durationOf(d.StartWithin), Missed: string(d.Missed),
		MissedMost: Int(d.MissedMost), Overlap: string(d.Overlap), PauseAfter: Int(d.PauseAfter),
	}}
	if d.BizID != 0 {
		out.BizID = idOf(d.BizID)
	}
	return out
}

// SchedulesYAML writes definitions, as they were read from an API, as a file for tocsin schedule apply.
func SchedulesYAML(all []ScheduleDefinition) ([]byte, error) {
	definitions := make([]schedule.Definition, len(all))
	for i, d := range all {
		definitions[i], _ = d.read() // what may be stored has no faults
	}
	return schedule.YAML(definitions)
}

// Schedule is a schedule as it stands in its database.
type Schedule struct {
	Definition ScheduleDefinition `json:"definition" doc:"With the defaults filled in: change it, and send it by PUT"`
	ID         ID                 `json:"schedule_id"`
	State      ScheduleState      `json:"state" doc:"active: makes runs; inactive: was deactivated; paused: after failed runs; ended: no run is left to make, and reason says whether the last one is to come"`
	Reason     string             `json:"reason,omitempty" doc:"Why it is paused or has ended"`
	Revision   int64              `json:"revision" doc:"Grows with each change"`
	NextFire   *Time              `json:"next_fire,omitempty" doc:"First fire time whose run is not made yet; left out unless it is active"`
	MadeUntil  Time               `json:"made_until" doc:"Runs of fire times up to this are made or passed over"`
	Anchor     Time               `json:"anchor" doc:"@every counts from this: the start, or else the activation"`
	Failures   int                `json:"failures" doc:"Failed runs in a row"`
	Made       int64              `json:"made" doc:"Runs made for fire times"`
	PassedOver int64              `json:"passed_over" doc:"Fire times that were missed, and no run was made for"`
	Created    Time               `json:"created"`
	Modified   Time               `json:"modified"`
	Fires      *Time              `json:"fires,omitempty" doc:"Of a list: when it fires next, also if that run is made; left out if it is inactive or paused, or has ended and its last run is not to come"`
	LastRun    *LastRun           `json:"last_run,omitempty" doc:"Of a list with last=true; left out if the history is empty"`
}

func scheduleOf(s schedule.Schedule) Schedule {
	return Schedule{
		Definition: definitionOf(s.Definition), ID: idOf(uint64(s.ID)), State: ScheduleState(s.State), Reason: s.Reason, Revision: int64(s.Revision),
		NextFire: timeOf(s.NextFire), MadeUntil: Time{s.MadeUntil}, Anchor: Time{s.Anchor}, Failures: s.Failures,
		Made: int64(s.Made), PassedOver: int64(s.PassedOver), Created: Time{s.Created}, Modified: Time{s.Modified}, LastRun: lastRunOf(s.Last),
	}
}

// TaggedSchedule is the answer of an operation on one schedule.
type TaggedSchedule struct {
	ETag string `header:"ETag" doc:"For the If-Match of a change"`
	Body Schedule
}

func taggedOf(s schedule.Schedule) *TaggedSchedule { return &TaggedSchedule{tagOf(s), scheduleOf(s)} }

// FireTime is one fire time.
type FireTime struct {
	FireTime Time `json:"fire_time"`
	DueTime  Time `json:"due_time" doc:"When its run is due: later by the jitter"`
}

func fireTimesOf(fires []schedule.Fire) []FireTime {
	all := make([]FireTime, len(fires))
	for i, f := range fires {
		all[i] = FireTime{Time{f.Time}, Time{f.Due}}
	}
	return all
}
