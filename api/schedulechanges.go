package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/schedule"
)

// scheduleChanges registers the operations that create, change, delete, activate and deactivate schedules, and make runs by hand.
func (a *API) scheduleChanges() {
	registerWhole(a, operation{
		id: "create_schedule", method: http.MethodPost, path: "/schedules", tag: "schedules", needs: apitoken.Write, status: http.StatusCreated,
		summary: "Create a schedule",
		about: "It is active, and its first runs are made. Its name must be free, also among schedules of other biz types. A schedule that is there and says the same is " +
			"returned as it is, so that the request is safe to repeat.",
		also:   map[int]string{http.StatusOK: "The schedule was there, and says the same"},
		errors: []int{http.StatusNotFound, http.StatusConflict},
	}, a.createSchedule)
	registerWhole(a, operation{
		id: "put_schedule", method: http.MethodPut, path: "/schedules/{name}", tag: "schedules", needs: apitoken.Write,
		summary: "Change a schedule",
		about: "Makes a schedule be as the body says; what is left out gets its default. Its state stays, except that one that has ended goes on. A change cancels " +
			"the pending runs and makes them anew. With dry_run it only says what it would change.",
		errors: changeErrors,
	}, a.putSchedule)
	registerWhole(a, operation{
		id: "delete_schedule", method: http.MethodDelete, path: "/schedules/{name}", tag: "schedules", needs: apitoken.Write, status: http.StatusNoContent,
		summary: "Delete a schedule",
		about:   "Cancels its pending runs too, also those by hand and of backfills. Runs in delivery go on; the history of runs stays until it is purged.",
		errors:  changeErrors,
	}, a.deleteSchedule)
	missing := []int{http.StatusNotFound, http.StatusConflict}
	registerWhole(a, operation{
		id: "activate_schedule", method: http.MethodPost, path: "/schedules/{name}:activate", tag: "schedules", needs: apitoken.Write,
		summary: "Let a schedule make runs again",
		about:   "For fire times from now on; what was missed meanwhile is not made up for. A schedule that is active is returned as it is.",
		errors:  missing,
	}, a.turn((*schedule.Schedules).Activate, "activated", "active already"))
	registerWhole(a, operation{
		id: "deactivate_schedule", method: http.MethodPost, path: "/schedules/{name}:deactivate", tag: "schedules", needs: apitoken.Write,
		summary: "Keep a schedule from making runs",
		about:   "Cancels its pending runs. Those in delivery go on, and so do runs by hand and backfills. A schedule that is inactive is returned as it is.",
		errors:  missing,
	}, a.turn((*schedule.Schedules).Deactivate, "deactivated", "inactive already"))
	registerWhole(a, operation{
		id: "run_schedule", method: http.MethodPost, path: "/schedules/{name}:run", tag: "schedules", needs: apitoken.Write, status: http.StatusCreated,
		summary: "Make a run that is due now",
		about: "Whatever the state of the schedule is. Each request makes a run, except one that repeats the Idempotency-Key of another: as long as that run is stored and not " +
			"cancelled, the answer is 200 with it.",
		also:   map[int]string{http.StatusOK: "The run was made before"},
		errors: missing,
	}, a.runSchedule)
	register(a, operation{
		id: "backfill_schedule", method: http.MethodPost, path: "/schedules/{name}:backfill", tag: "schedules", needs: apitoken.Operate,
		summary: "Make runs for the fire times of a span of the past",
		about: "At most 1000 of them, all due now, whatever became of the runs that they had. A fire time that was backfilled before gets no other run until " +
			"that one is cancelled or purged, so the request is safe to repeat. With dry_run it lists the fire times.",
		errors: missing,
	}, a.backfillSchedule)
}

// changeErrors are refusals of conditional changes.
var changeErrors = []int{http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed, http.StatusPreconditionRequired}

// createdSchedule is the answer of create_schedule.
type createdSchedule struct {
	Status   int
	Location string `header:"Location" doc:"Path of the schedule"`
	ETag     string `header:"ETag" doc:"For the If-Match of a change"`
	Body     Schedule
}

func (a *API) createSchedule(ctx context.Context, c *call, in *struct{ Body NewSchedule }) (*createdSchedule, error) {
	c.object = "schedule " + line(in.Body.Name) + " of " + line(in.Body.BizType)
	wanted, err := ScheduleDefinition(in.Body).definition(c)
	if err != nil {
		return nil, err
	}
	timers, err := a.backend.timers.get(ctx)
	if err != nil {
		return nil, err
	}
	made, existing, err := timers.CreateOnce(ctx, wanted)
	if err != nil {
		return nil, addProblem(err, wanted.BizType, "")
	}
	status := http.StatusCreated
	if c.outcome = "created"; existing {
		status, c.outcome = http.StatusOK, "there already"
	}
	return &createdSchedule{status, "/v1/schedules/" + made.Name, tagOf(made), scheduleOf(made)}, nil
}

// ScheduleChange is what a PUT has changed, or would change.
type ScheduleChange struct {
	Changes  []FieldChange `json:"changes" doc:"None: the schedule is as the body says, and keeps its revision"`
	DryRun   bool          `json:"dry_run"`
	Schedule Schedule      `json:"schedule" doc:"As it is now; with dry_run it is unchanged"`
}

// FieldChange is one field of a definition that differs.
type FieldChange struct {
	Field string `json:"field" example:"cron"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// changedSchedule is the answer of put_schedule.
type changedSchedule struct {
	ETag string `header:"ETag" doc:"For the If-Match of the next change"`
	Body ScheduleChange
}

func (a *API) putSchedule(ctx context.Context, c *call, in *struct {
	BySchedule
	IfMatch
	DryRun bool `query:"dry_run" doc:"Only say what would be changed"`
	Body   ScheduleDefinition
}) (*changedSchedule, error) {
	timers, read, err := a.readToChange(ctx, c, in.BySchedule, in.IfMatch)
	stale := errors.Is(err, schedule.ErrRevision)
	if err != nil && !stale {
		return nil, err
	}
	in.Body.Name = cmp.Or(in.Body.Name, in.Name)
	wanted, err := in.Body.definition(c)
	if err != nil {
		return nil, err
	}
	if wanted.Name != in.Name {
		return nil, invalid("name", "the name never changes, and is that of the path")
	}
	after, changes, err := timers.Edit(ctx, read, wanted, in.DryRun || stale)
	if stale && (err != nil || len(changes) > 0) { // if it says the same already, RFC 9110, 13.1.1, lets the change succeed
		err = schedule.ErrRevision
	}
	if err != nil {
		return nil, scheduleProblem(err, in.Name, wanted.BizType)
	}
	c.dry = in.DryRun
	switch c.outcome = "changed"; {
	case len(changes) == 0:
		c.outcome = "unchanged"
	case in.DryRun:
		c.outcome = "dry run"
	}
	out := ScheduleChange{Changes: []FieldChange{}, DryRun: in.DryRun, Schedule: scheduleOf(after)}
	for _, change := range changes {
		out.Changes = append(out.Changes, FieldChange(change))
	}
	return &changedSchedule{tagOf(after), out}, nil
}

// readToChange reads a schedule that the caller may see and wants to change as it is.
func (a *API) readToChange(ctx context.Context, c *call, of BySchedule, m IfMatch) (*schedule.Schedules, schedule.Schedule, error) {
	c.object = "schedule " + line(of.Name)
	if err := m.check(); err != nil {
		return nil, schedule.Schedule{}, err
	}
	timers, read, err := a.timer(ctx, c, of)
	if err == nil && !m.met(read) {
		err = schedule.ErrRevision
	}
	return timers, read, err
}

// scheduleProblem is problemOf, with the same words for a schedule that is gone as for one that the caller may not see.
func scheduleProblem(err error, name, bizType string) error {
	if errors.Is(err, schedule.ErrNotFound) {
		return noSchedule(name)
	}
	return addProblem(err, bizType, "")
}

func (a *API) deleteSchedule(ctx context.Context, c *call, in *struct {
	BySchedule
	IfMatch
}) (*struct{}, error) {
	timers, read, err := a.readToChange(ctx, c, in.BySchedule, in.IfMatch)
	if err != nil {
		return nil, err
	}
	if err := timers.DeleteRead(ctx, read); err != nil {
		return nil, scheduleProblem(err, in.Name, read.BizType)
	}
	c.outcome = "deleted"
	return nil, nil
}

// tagOf returns the ETag of a schedule: its schedule_id and revision. A schedule that is deleted and created again gets
// another schedule_id, and so another ETag.
func tagOf(s schedule.Schedule) string { return fmt.Sprintf(`"%s.%d"`, s.ID, s.Revision) }

// tags matches a valid If-Match: a list of entity tags. A weak tag (W/"...") matches as a strong one does: a proxy that
// compresses answers makes them weak, and a tag names a revision, not bytes.
var (
	tag  = regexp.MustCompile(`(?:W/)?"[!#-~]*"`)
	tags = regexp.MustCompile(`^` + tag.String() + `(?:[ \t]*,[ \t]*` + tag.String() + `)*$`)
)

// IfMatch is the condition of a change.
type IfMatch struct {
	Tags string `header:"If-Match" maxLength:"1000" doc:"The ETag of the schedule as you have read it, with its quotes, so that nobody else's change is lost; or * for whatever it is now. Without it the answer is 428" example:"\"1523399873241099.3\""`
}

// check refuses a request without a condition.
func (m IfMatch) check() error {
	switch text := strings.TrimSpace(m.Tags); {
	case text == "":
		return problem(http.StatusPreconditionRequired, "if_match", "send the ETag of the schedule as you have read it, with its quotes: If-Match: \"...\"")
	case text != "*" && !tags.MatchString(text):
		return problem(http.StatusBadRequest, "malformed", "If-Match takes the ETag of a schedule as it was given, with its quotes, or *")
	}
	return nil
}

// met reports whether a schedule is as the caller has read it.
func (m IfMatch) met(s schedule.Schedule) bool {
	text := strings.TrimSpace(m.Tags)
	return text == "*" || slices.ContainsFunc(tag.FindAllString(text, -1), func(t string) bool { return strings.TrimPrefix(t, "W/") == tagOf(s) })
}

// turning changes the state of a schedule, and reports whether it had another.
type turning func(s *schedule.Schedules, ctx context.Context, name string) (schedule.Schedule, bool, error)

// becauseBySchedule names a schedule, and why it is changed.
type becauseBySchedule struct {
	BySchedule
	Body *Reason
}

// turn is the operation that does so.
func (a *API) turn(do turning, done, already string) func(context.Context, *call, *becauseBySchedule) (*TaggedSchedule, error) {
	return func(ctx context.Context, c *call, in *becauseBySchedule) (*TaggedSchedule, error) {
		c.because(in.Body)
		timers, read, err := a.timer(ctx, c, in.BySchedule)
		if err != nil {
			return nil, err
		}
		after, changed, err := do(timers, ctx, in.Name)
		if err != nil {
			return nil, scheduleProblem(err, in.Name, read.BizType)
		}
		if c.outcome = already; changed {
			c.outcome = done
		}
		if !c.sees(after.BizType) { // it was changed since it was read
			return nil, noSchedule(in.Name)
		}
		return taggedOf(after), nil
	}
}

// RunByHand is a run that a request made.
type RunByHand struct {
	JobID    ID   `json:"job_id" doc:"Of the task that the run is"`
	DueTime  Time `json:"due_time"`
	Existing bool `json:"existing" doc:"A request with this Idempotency-Key has made it before"`
}

// madeRun is the answer of run_schedule.
type madeRun struct {
	Status   int
	Location string `header:"Location" doc:"Path of the task"`
	Body     RunByHand
}

func (a *API) runSchedule(ctx context.Context, c *call, in *struct {
	BySchedule
	Key string `header:"Idempotency-Key" maxLength:"255" doc:"A text of yours that makes the request safe to repeat" example:"2030-01-02 payout"`
}) (*madeRun, error) {
	timers, read, err := a.timer(ctx, c, in.BySchedule)
	if err != nil {
		return nil, err
	}
	run, err := timers.RunOnce(ctx, in.Name, in.Key)
	if err != nil {
		return nil, scheduleProblem(err, in.Name, read.BizType)
	}
	out := &madeRun{http.StatusCreated, "/v1/tasks/" + run.JobID.String(), RunByHand{idOf(uint64(run.JobID)), Time{run.Due}, run.Existing}}
	if c.outcome = "made task " + run.JobID.String(); run.Existing {
		out.Status, c.outcome = http.StatusOK, "existing task "+run.JobID.String()
		client, err := a.backend.client.get(ctx)
		if err != nil {
			return nil, err
		}
		task, err := client.Get(ctx, run.JobID)
		if err != nil {
			return nil, err
		}
		out.Body.DueTime = Time{task.DueTime}
	}
	return out, nil
}

// Backfill is a span of the past.
type Backfill struct {
	From   Time `json:"from" doc:"The first fire time may be this"`
	To     Time `json:"to" doc:"All fire times are before this, which is not in the future"`
	DryRun bool `json:"dry_run,omitempty" doc:"Only list the fire times"`
}

// Backfilled is what became of its fire times.
type Backfilled struct {
	Times  []FireTime `json:"times" doc:"The fire times of the span"`
	Made   int        `json:"made" doc:"Runs that were made now"`
	There  int        `json:"there" doc:"Runs that an earlier backfill has made, and that are still stored"`
	DryRun bool       `json:"dry_run"`
}

func (a *API) backfillSchedule(ctx context.Context, c *call, in *struct {
	BySchedule
	Body Backfill
}) (out Backfilled, err error) {
	timers, read, err := a.timer(ctx, c, in.BySchedule)
	if err != nil {
		return out, err
	}
	done, err := timers.Backfill(ctx, in.Name, in.Body.From.Time, in.Body.To.Time, in.Body.DryRun)
	if err != nil {
		return out, scheduleProblem(err, in.Name, read.BizType)
	}
	c.dry, c.outcome = in.Body.DryRun, fmt.Sprintf("%d runs made, %d there, dry run %t", done.Made, done.There, in.Body.DryRun)
	return Backfilled{fireTimesOf(done.Times), done.Made, done.There, in.Body.DryRun}, nil
}
