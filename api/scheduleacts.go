package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/schedule"
)

// scheduleActs registers the operations that activate and deactivate schedules, and make runs by hand.
func (a *API) scheduleActs() {
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

// turning changes the state of a schedule, and reports whether it had another.
type turning func(s *schedule.Schedules, ctx context.Context, name string) (schedule.Schedule, bool, error)

// turn is the operation that does so.
func (a *API) turn(do turning, done, already string) func(context.Context, *call, *BySchedule) (*TaggedSchedule, error) {
	return func(ctx context.Context, c *call, in *BySchedule) (*TaggedSchedule, error) {
		timers, read, err := a.timer(ctx, c, *in)
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
	c.outcome = fmt.Sprintf("%d runs made, %d there, dry run %t", done.Made, done.There, in.Body.DryRun)
	return Backfilled{fireTimesOf(done.Times), done.Made, done.There, in.Body.DryRun}, nil
}
