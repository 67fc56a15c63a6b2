package dispatcher

import (
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/store"
)

// kept reports whether the history has the attempts of a task: its biz type says so, or it is a schedule's run.
func (k *kind) kept(r *rule, t *task) bool {
	return k.d.cfg.Record != nil && (r.policy.History || scheduleOf(t) != 0)
}

// scheduleOf returns the schedule whose run the task is; 0: of none.
func scheduleOf(t *task) uint64 {
	key, _ := ids.ParseRunKey(t.row.DedupKey)
	return key.Schedule
}

// outputs returns what the outputs of a delivery are put into; nil if none of its tasks is kept.
func (k *kind) outputs(r *rule, tasks []*task) *client.Outputs {
	for _, t := range tasks {
		if k.kept(r, t) {
			return &client.Outputs{}
		}
	}
	return nil
}

// note adds to each result what the history is to say of the attempt. How it ended is known when its outcome is stored.
func (k *kind) note(a attempt, results []result, took time.Duration) {
	if a.outputs == nil || len(results) == 0 {
		return
	}
	runs := make([]store.Run, len(results))
	for i := range results {
		r := &results[i]
		if !k.kept(a.rule, r.task) {
			continue
		}
		runs[i] = store.Run{
			JobID: r.row.JobID, Schedule: scheduleOf(r.task), Type: r.row.Type,
			Version: r.row.Version, Attempt: r.row.Attempts + 1, Node: k.d.cfg.Node,
			Started: r.row.ActionTime.UnixMilli() + r.late.Milliseconds(), Lateness: r.late.Milliseconds(),
			Took: took.Milliseconds(), Output: client.AttemptOutput(r.reason, a.outputs.Of(uint64(r.row.JobID))),
		}
		r.run = &runs[i]
	}
}

// record hands over the runs of outcomes that are stored.
func (s *server) record(batch []result, fates []store.Fate) {
	var runs []*store.Run
	for i, r := range batch {
		if r.run == nil {
			continue
		}
		if runs == nil {
			runs = make([]*store.Run, 0, len(batch)-i)
		}
		r.run.Outcome = r.became(fates[i])
		runs = append(runs, r.run)
	}
	if len(runs) > 0 {
		s.d.cfg.Record(s.index, runs)
	}
}

// became returns the outcome of a run.
func (r result) became(fate store.Fate) string {
	switch {
	case fate == store.Cancelled:
		return store.RunCancelled
	case fate == store.Rescheduled:
		return store.RunRescheduled
	case fate == store.InTx:
		return store.RunCompleted
	case fate != store.Stored:
		return store.RunLost
	case r.undone:
		return store.RunCutOff
	case r.verb == tocsin.Skipped:
		return firstWord(r.reason)
	}
	return store.RunEnded[r.verb]
}

// firstWord returns what a schedule's reason says became of a run, "missed" of "missed: 5m0s late".
func firstWord(reason string) string {
	switch word, _, _ := strings.Cut(reason, ":"); word {
	case store.RunMissed, store.RunCancelled:
		return word
	}
	return store.RunSkipped
}
