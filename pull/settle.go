package pull

import (
	"cmp"
	"context"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/schedule"
)

// end is the end of one lease that may be stored.
type end struct {
	Settling
	lease
	at      int // the place of what was asked
	row     *store.Row
	outcome store.Outcome
	turn    *schedule.Turn // nil: its end is no matter of a schedule
}

// ends returns the ends that may be stored, and notes the results of the others. A complete is stored unless the task was changed, even if
// another worker has the task by now: the work is done.
func (b *batch) ends(all []Settling) (ends []*end, err error) {
	now := b.Store.Now(b.server)
	if now == 0 {
		return nil, errClock
	}
	for i, l := range b.leases {
		e := &end{Settling: all[b.at[i]], lease: l, at: b.at[i], row: b.rows[l.id]}
		complete := e.Answer == nil && !e.Release
		switch {
		case e.row == nil || e.row.Version != l.version:
			continue
		case complete && e.row.Status == tocsin.Done:
			b.became[e.at].Result = Already
			continue
		case !l.holds(e.row) && (!complete || !b.pulled(e.row.Type)): // a made-up lease completes no task of a callback, a sink or a handler
			continue
		}
		e.outcome = dispatcher.EndingOf(b.policy(e.row.Type), e.row, e.Answer, now)
		if e.Release {
			e.outcome.Verb, e.outcome.Next = tocsin.Snoozed, now
		}
		ends = append(ends, e)
	}
	return ends, nil
}

// settle stores ends in one transaction. If a row is held by another transaction, or refused, those of the others are stored without it.
// The end of a run that its schedule counts, or that others wait for, is a transaction of its own.
func (b *batch) settle(ctx context.Context, ends []*end) {
	var plain []*end
	var forward []tocsin.JobID
	turns := b.turns(ctx, ends)
	for _, e := range ends {
		e.turn = turns[e.id]
		_, isRun := ids.ParseRunKey(e.row.DedupKey)
		ended := e.outcome.Verb == tocsin.Completed || e.outcome.Verb == tocsin.Buried
		switch {
		case isRun && ended && e.turn == nil:
			b.settled(e, 0, errSchedule)
		case isRun && ended && (e.turn.Alone || e.turn.Counts):
			done, err := b.Runs.Settle(ctx, e.turn, e.outcome)
			b.settled(e, done.Fate, err)
			if done.Forward != 0 {
				forward = append(forward, done.Forward)
			}
		default:
			plain = append(plain, e)
		}
	}
	b.store(ctx, plain)
	b.after(ctx, ends, forward)
}

// turns returns those of the tasks that are runs of schedules.
func (b *batch) turns(ctx context.Context, ends []*end) map[tocsin.JobID]*schedule.Turn {
	rows := make([]store.Row, len(ends))
	for i, e := range ends {
		rows[i] = *e.row
	}
	return b.Runs.Look(ctx, b.server, rows)
}

// store stores ends that no schedule counts.
func (b *batch) store(ctx context.Context, ends []*end) {
	if len(ends) == 0 {
		return
	}
	outcomes := make([]store.Outcome, len(ends))
	for i, e := range ends {
		outcomes[i] = e.outcome
	}
	fates, err := b.Store.Settle(ctx, b.server, outcomes)
	if err != nil && len(ends) > 1 && !mysql.ClassOf(err).OfServer() && ctx.Err() == nil {
		rest := b.free(ctx, ends, err)
		if len(rest) < len(ends) {
			b.store(ctx, rest)
			return
		}
		for i := range rest {
			b.store(ctx, rest[i:i+1])
		}
		return
	}
	for i, e := range ends {
		var fate store.Fate
		if err == nil {
			fate = fates[i]
		}
		b.settled(e, fate, err)
	}
}

// free returns the ends whose rows nobody else holds; the others failed with err. Each of them, tried alone, would cost a second.
func (b *batch) free(ctx context.Context, ends []*end, err error) (free []*end) {
	if mysql.ClassOf(err) != mysql.Contended {
		return ends
	}
	all := make([]tocsin.JobID, len(ends))
	for i, e := range ends {
		all[i] = e.id
	}
	locks, unknown := b.Store.Locked(ctx, b.server, all)
	if unknown != nil {
		return ends
	}
	for _, e := range ends {
		if locks.Rows[e.id] || locks.Tables[e.id.Table()] != nil {
			b.settled(e, 0, err)
		} else {
			free = append(free, e)
		}
	}
	return free
}

// settled notes what became of an end.
func (b *batch) settled(e *end, fate store.Fate, err error) {
	is := &b.became[e.at]
	switch {
	case err != nil:
		*is = Became{Err: err}
	case fate == store.Stored:
		is.Result = Done
	case e.outcome.Verb == tocsin.Completed && (fate == store.InTx || fate == store.Settled):
		is.Result = Already
	}
}

// after rings for tasks that are due again soon, beginning with those in again, records the history, and tells of dead tasks.
func (b *batch) after(ctx context.Context, ends []*end, again []tocsin.JobID) {
	m, runs := b.metrics, []*store.Run(nil)
	for _, e := range ends {
		policy, result := b.policy(e.row.Type), b.became[e.at].Result
		m.settled.WithLabelValues(policy.Name, e.outcome.Verb.String(), string(result)).Inc()
		if result != Done {
			continue
		}
		took := b.Store.Now(b.server) - e.began
		m.held.WithLabelValues(policy.Name).Observe(max(float64(took)/1000, 0))
		switch e.outcome.Verb {
		case tocsin.Retried, tocsin.Snoozed:
			again = append(again, e.id)
		case tocsin.Buried:
			b.Died(e.row.Type, e.id)
		}
		if !e.Release && (policy.History || e.turn != nil) {
			runs = append(runs, b.run(e, took))
		}
	}
	if len(runs) > 0 {
		b.Record(b.server, runs)
	}
	if len(again) > 0 {
		_ = b.Store.Ring(ctx, b.server, again) // without a bell the next scan finds them
	}
}

// run is what the history says of a lease that has ended after took, in ms.
func (b *batch) run(e *end, took int64) *store.Run {
	key, _ := ids.ParseRunKey(e.row.DedupKey)
	late := int64(0)
	if e.row.Attempts == 0 {
		late = max(e.began-e.row.DueTime.UnixMilli(), 0)
	}
	return &store.Run{
		JobID: e.id, Schedule: key.Schedule, Type: e.row.Type, Version: e.version, Attempt: e.row.Attempts + 1, Node: cmp.Or(e.Worker, b.Node),
		Started: e.began, Lateness: late, Took: max(took, 0),
		Outcome: store.RunEnded[e.outcome.Verb], Output: client.AttemptOutput(e.outcome.Reason, client.CutOutput(e.Output)),
	}
}
