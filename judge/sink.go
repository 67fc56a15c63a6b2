package judge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/output"
	"github.com/tocsinhq/tocsin/internal/verdict"
)

// sink judges the runs of one biz type.
type sink struct {
	judge  *Judge
	policy biztype.Policy
	next   Sink
}

// Deliver returns one error for each task.
func (s *sink) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
	if !slices.ContainsFunc(tasks, func(t tocsin.Info) bool { return isRun(t.DedupKey) }) {
		return s.next.Deliver(ctx, tasks)
	}
	errs := make([]error, len(tasks))
	d := s.judge.begin(ctx)
	defer d.end()
	s.hear(ctx, d, tasks, errs)
	for i := range tasks {
		if errs[i] == nil {
			errs[i] = d.replaced(tasks[i].JobID)
		}
	}
	at := make([]int, 0, len(tasks))
	chosen := tasks
	for i := range tasks {
		if errs[i] == nil {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return errs
	}
	if len(at) < len(tasks) {
		chosen = make([]tocsin.Info, len(at))
		for k, i := range at {
			chosen[k] = tasks[i]
		}
	}
	s.place(errs, at, d, chosen, s.next.Deliver(d.context(len(chosen)), chosen))
	return errs
}

// hear judges all runs among the tasks.
func (s *sink) hear(ctx context.Context, d *delivery, tasks []tocsin.Info, errs []error) {
	ctx, cancel := context.WithTimeout(ctx, min(readWithin, s.policy.Timeout.D()/2))
	defer cancel()
	for i := range tasks {
		if isRun(tasks[i].DedupKey) {
			errs[i] = s.judge.judge(ctx, d, s.policy, &tasks[i])
			if verb, _, _ := tocsin.AsOutcome(errs[i]); verb == tocsin.Snoozed { // no attempt, and may be one of many
				output.Leave(ctx, uint64(tasks[i].JobID))
			}
		}
	}
}

// place puts the target's results in the order of the tasks. A run that was replaced meanwhile and failed gets the result
// that it was replaced.
func (s *sink) place(errs []error, at []int, d *delivery, chosen []tocsin.Info, got []error) {
	for k, i := range at {
		switch {
		case len(got) != len(at):
			errs[i] = fmt.Errorf("the handler returned %d results for %d tasks", len(got), len(at))
		case got[k] != nil:
			errs[i] = got[k]
			if why := d.replaced(chosen[k].JobID); why != nil {
				errs[i] = why
			}
		}
	}
}

// hearing is one run that is judged.
type hearing struct {
	*definition
	run
	task    *tocsin.Info
	number  uint64        // of the biz type
	timeout time.Duration // of a delivery
	now     int64         // Unix ms; 0: unknown
}

// judge returns nil for a run that is to be delivered, or else the error that decides what becomes of the run.
func (j *Judge) judge(ctx context.Context, d *delivery, p biztype.Policy, task *tocsin.Info) error {
	h := hearing{run: parse(task.DedupKey), task: task, number: p.Number, timeout: p.Timeout.D()}
	h.now = j.cfg.Now(j.cfg.ServerOf(task.JobID.Table()))
	var err error
	h.definition, err = j.definition(ctx, h.run, h.byHand() || !h.clean())
	switch {
	case err != nil:
		return j.failed(err, task)
	case h.definition == nil:
		return j.drop(outdated, "cancelled: its schedule was deleted")
	case !h.byHand() && !h.clean() && h.definition.Revision != h.run.Revision:
		return j.drop(outdated, fmt.Sprintf("cancelled: of revision %d of its schedule, which has revision %d", h.run.Revision, h.definition.Revision))
	}
	task.Schedule, task.FireTime = h.Name, h.Nominal()
	if h.first() {
		if why := h.tooLate(); why != "" {
			j.cfg.Missed(Missed{BizType: h.number, Schedule: h.Name, Time: h.Nominal(), Why: why})
			return j.drop(missed, why)
		}
	}
	if task.Attempts == 0 { // of one that crashed nobody knows whether it had come to this
		if err := j.overlap(ctx, &h); err != nil {
			return err
		}
	}
	if h.Overlap == overlapReplace {
		d.may(task.JobID)
	}
	j.watch(&h)
	j.metrics.count(delivered)
	return nil
}

// first reports whether this is the first delivery of the run.
func (h *hearing) first() bool { return h.task.Attempts == 0 && h.task.Crashes == 0 }

// waited reports whether the run was put off. A run that was made after its fire time was due when it was made.
func (h *hearing) waited() bool {
	return h.task.ActionTime.After(h.task.DueTime) && h.task.ActionTime.After(h.task.Created)
}

// clean reports whether the run was never in a delivery before: a change of its schedule in the meantime has cancelled it, or
// has left it alone, as it was due at about that time.
func (h *hearing) clean() bool {
	return h.first() && !h.waited() && h.now != 0 && h.now-h.task.DueTime.UnixMilli() < cleanFor.Milliseconds()
}

// tooLate returns why the run is missed; "" if it is not. A run that waits for an earlier one was in time.
func (h *hearing) tooLate() string {
	if h.byHand() || h.Overlap != overlapAllow && h.waited() {
		return ""
	}
	return h.missed(h.nominal(), h.task.DueTime.UnixMilli(), h.now)
}

// drop ends the run as cancelled.
func (j *Judge) drop(as outcome, reason string) error {
	j.metrics.count(as)
	return verdict.Skip{Reason: reason}
}

// failed puts a run off that can't be judged now.
func (j *Judge) failed(err error, task *tocsin.Info) error {
	j.metrics.count(failed)
	j.limit.Of(j.cfg.Logger, "judge").Warn("a schedule's run can't be judged; it is put off", "error", err,
		"biz_type", task.BizType, "job_id", task.JobID.String())
	return tocsin.Snooze(between(putOffTime, 2*putOffTime))
}

func between(a, b time.Duration) time.Duration { return a + rand.N(b-a) }
