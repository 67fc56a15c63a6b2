package judge

import (
	"context"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Pauser pauses an active schedule if it still has the given revision, and reports whether it did.
type Pauser interface {
	Pause(ctx context.Context, schedule tocsin.JobID, revision uint32, reason string) (bool, error)
}

// counted is a run in delivery of a schedule that is to be paused after failures.
type counted struct {
	schedule tocsin.JobID
	name     string
	revision uint32
	bizType  uint64
	after    int // failures in a row
	job      tocsin.JobID
	failed   bool
}

// watch notes that the outcome of a run counts. Runs by hand don't.
func (j *Judge) watch(h *hearing) {
	if h.PauseAfter == 0 || h.byHand() {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.watched[h.task.JobID] = counted{
		schedule: tocsin.JobID(h.Schedule), name: h.Name, revision: h.run.Revision, bizType: h.number, after: h.PauseAfter, job: h.task.JobID,
	}
	j.watching.Store(int32(len(j.watched)))
}

// Settled tells the judge how a delivery ended, and whether the outcome is stored. Call it for all tasks. It is quick and
// may be called concurrently.
func (j *Judge) Settled(id tocsin.JobID, verb tocsin.Verb, stored bool) {
	if j.watching.Load() == 0 {
		return
	}
	j.mu.Lock()
	c, found := j.watched[id]
	delete(j.watched, id)
	j.watching.Store(int32(len(j.watched)))
	j.mu.Unlock()
	if !found || !stored || verb != tocsin.Buried && verb != tocsin.Completed {
		return
	}
	c.failed = verb == tocsin.Buried
	select {
	case j.ended <- c:
	default:
		j.limit.Of(j.cfg.Logger, "full").Warn("the outcome of a schedule's run is not counted: too many wait", "schedule", c.name)
	}
}

// Run counts failures in a row, and pauses schedules, until ctx ends. Outcomes that were reported before ctx ended are
// still counted, for a few seconds.
func (j *Judge) Run(ctx context.Context) {
	for {
		select {
		case c := <-j.ended:
			j.account(ctx, c)
			continue
		case <-ctx.Done():
		}
		break
	}
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), restWithin)
	defer cancel()
	for rest.Err() == nil {
		select {
		case c := <-j.ended:
			j.account(rest, c)
		default:
			return
		}
	}
}

// account counts an outcome. It is not tried again: one failure more or less is no fault.
func (j *Judge) account(ctx context.Context, c counted) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin)
	defer cancel()
	var err error
	if c.failed {
		err = j.failedOnce(ctx, c)
	} else {
		err = j.cfg.Store.ClearFailures(ctx, c.schedule)
	}
	if err != nil {
		j.limit.Of(j.cfg.Logger, "count").Warn("the outcome of a schedule's run can't be counted", "error", err, "schedule", c.name)
	}
}

// failedOnce counts a failed run, and pauses its schedule if it was the last that is allowed.
func (j *Judge) failedOnce(ctx context.Context, c counted) error {
	n, err := j.cfg.Store.CountFailure(ctx, c.schedule, c.revision)
	if err != nil || n < c.after {
		return err
	}
	why := fmt.Sprintf("paused after %d failures in a row", n)
	at := time.UnixMilli(j.cfg.Now(j.cfg.ServerOf(c.schedule.Table()))).UTC()
	paused, err := j.cfg.Pauser.Pause(ctx, c.schedule, c.revision, fmt.Sprintf("%s at %s, the last one of task %s", why, at.Format(time.RFC3339), c.job))
	if err != nil || !paused {
		return err
	}
	j.cfg.Logger.Warn("schedule paused", "schedule", c.name, "failures", n, "job_id", c.job.String())
	j.cfg.Missed(Missed{BizType: c.bizType, Schedule: c.name, Why: why})
	return nil
}
