package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/schedule"
)

// scheduleTurns registers the operations that activate and deactivate many schedules.
func (a *API) scheduleTurns() {
	const about = " The request is not atomic: results tells for each name, in the order given, what became of it. The answer is 200 also if some failed: look at failed."
	register(a, operation{
		id: "activate_schedules", method: http.MethodPost, path: "/schedules:activate", tag: "schedules", needs: apitoken.Write,
		summary: "Let up to 500 schedules make runs again",
		about:   "For fire times from now on; what was missed meanwhile is not made up for." + about,
	}, a.turnMany((*schedule.Schedules).ActivateMany, "activated"))
	register(a, operation{
		id: "deactivate_schedules", method: http.MethodPost, path: "/schedules:deactivate", tag: "schedules", needs: apitoken.Write,
		summary: "Keep up to 500 schedules from making runs",
		about:   "Cancels their pending runs. Those in delivery go on, and so do runs by hand and backfills." + about,
	}, a.turnMany((*schedule.Schedules).DeactivateMany, "deactivated"))
}

// ScheduleNames names schedules.
type ScheduleNames struct {
	Names []string `json:"names" minItems:"1" maxItems:"500" doc:"Of schedules"`
	Reason
}

// TurnedSchedules is what became of schedules that were to be activated or deactivated.
type TurnedSchedules struct {
	Changed int              `json:"changed" doc:"Had another state"`
	Failed  int              `json:"failed" doc:"Were not changed, or may not have been: see problem of each"`
	Results []TurnedSchedule `json:"results" doc:"One for each name, in the order given"`
}

// TurnedSchedule is what became of one of them.
type TurnedSchedule struct {
	Name     string        `json:"name"`
	Changed  bool          `json:"changed" doc:"false: it was so before, or failed"`
	State    ScheduleState `json:"state,omitempty" doc:"Afterwards; left out if it failed"`
	NextFire *Time         `json:"next_fire,omitempty" doc:"First fire time whose run is not made yet; left out unless it is active"`
	Problem  *Problem      `json:"problem,omitempty"`
}

// turningMany changes the state of schedules of the biz types that sees allows.
type turningMany func(s *schedule.Schedules, ctx context.Context, names []string, sees func(string) bool) ([]schedule.Turned, error)

// turnMany is the operation that does so.
func (a *API) turnMany(do turningMany, done string) func(context.Context, *call, *struct{ Body ScheduleNames }) (TurnedSchedules, error) {
	return func(ctx context.Context, c *call, in *struct{ Body ScheduleNames }) (out TurnedSchedules, err error) {
		c.object = "schedules " + line(strings.Join(in.Body.Names, ", "))
		c.because(&in.Body.Reason)
		timers, err := a.backend.timers.get(ctx)
		if err != nil {
			return out, err
		}
		all, err := do(timers, ctx, in.Body.Names, c.filter())
		if err != nil {
			return out, err
		}
		out.Results = make([]TurnedSchedule, len(all))
		for i, t := range all {
			out.Results[i] = c.turned(t)
			if t.Changed {
				out.Changed++
			}
			if out.Results[i].Problem != nil {
				out.Failed++
			}
		}
		c.outcome = fmt.Sprintf("%d %s, %d failed", out.Changed, done, out.Failed)
		return out, nil
	}
}

// turned is what the caller is told of one schedule.
func (c *call) turned(t schedule.Turned) TurnedSchedule {
	err := t.Err
	if err == nil && !c.sees(t.Schedule.BizType) { // it was changed since it was read
		err = schedule.ErrNotFound
	}
	if err == nil {
		return TurnedSchedule{Name: t.Name, Changed: t.Changed, State: ScheduleState(t.Schedule.State), NextFire: timeOf(t.Schedule.NextFire)}
	}
	p := asProblem(scheduleProblem(err, t.Name, ""))
	if p.Status >= http.StatusInternalServerError {
		c.cause = errors.Join(c.cause, err)
	}
	return TurnedSchedule{Name: t.Name, Problem: p}
}
