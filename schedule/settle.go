package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/store"
)

// SettledRun is what Settle has done.
type SettledRun struct {
	Fate    store.Fate
	Forward tocsin.JobID // the run that may begin now; 0: none
	Type    uint64       // number of its biz type, which may be another one than that of the run that has ended
}

// Settle stores the outcome of a run that is Alone or Counts, in one transaction with what follows for its schedule: the next run
// that waits is brought forward if the run has ended, failures in a row are counted, and the schedule is paused after as many as its pause_after
// says. Only runs for fire times of the schedule's revision count. It may be repeated after a lost answer, as store.Settle may.
func (r *Runs) Settle(ctx context.Context, t *Turn, o store.Outcome) (done SettledRun, err error) {
	ctx, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	var paused string
	var name string
	id := tocsin.JobID(t.key.Schedule)
	from := ""
	if t.Counts && o.Verb == tocsin.Buried {
		from = r.maker.openFrom(ctx, id, true)
	}
	err = r.at(ctx, id, func(h *here) (err error) {
		done, paused = SettledRun{}, ""
		o, hit := o, false
		if done.Fate, hit, err = r.maker.tables.SettleIn(ctx, h.conn, o); err != nil || h.row == nil {
			return err
		}
		name, done.Type = h.row.Name, h.row.number
		if done.Fate == store.InTx { // whatever its handler returned
			o.Verb = tocsin.Completed
		}
		stored := done.Fate == store.Stored || done.Fate == store.InTx
		if o.Verb != tocsin.Retried && o.Verb != tocsin.Snoozed || !stored {
			if err := h.forward(ctx, o.JobID, &done.Forward); err != nil {
				return err
			}
		}
		if hit || done.Fate == store.InTx {
			h.from = from
			paused, err = h.count(ctx, t.key, o)
		}
		return err
	})
	if err != nil {
		return SettledRun{}, fmt.Errorf("settle run %s of schedule %s: %w", o.JobID, t.Name, err)
	}
	if paused != "" {
		r.metrics.paused.Inc()
		r.cfg.Logger.Warn("schedule paused", "schedule", name, "why", paused, "job_id", o.JobID.String())
		r.cfg.Missed(MissedRun{BizType: done.Type, Schedule: name, Why: paused})
	}
	return done, nil
}

// count counts the end of a run for its schedule, and returns why it is paused; "": it is not.
func (h *here) count(ctx context.Context, key ids.RunKey, o store.Outcome) (paused string, err error) {
	r := h.row
	counts := r.PauseAfter > 0 && r.State == Active && key.Kind == ids.FireTime && key.Revision == r.Revision
	switch {
	case !counts, o.Verb != tocsin.Buried && (o.Verb != tocsin.Completed || r.Failures == 0):
		return "", nil
	case o.Verb == tocsin.Completed:
		_, err = h.exec(ctx, setFailures, 0, uint64(r.ID))
		return "", err
	case r.Failures+1 < r.PauseAfter:
		_, err = h.exec(ctx, setFailures, r.Failures+1, uint64(r.ID))
		return "", err
	}
	paused = fmt.Sprintf("paused after %d failures in a row", r.Failures+1)
	next := r.clone()
	next.State, next.Failures = Paused, r.Failures+1
	next.Reason = fmt.Sprintf("%s at %s, the last one of task %s", paused, h.now.UTC().Format(time.RFC3339), o.JobID)
	next.Revision++
	return paused, h.replace(ctx, next, "the schedule was paused", 0)
}

// setFailures stores how many runs have failed in a row. Primary key. Parameters: that number, schedule_id.
const setFailures = `UPDATE /* tocsin schedule failures */ {database}.schedule
SET failures = ?
WHERE schedule_id = ?`
