package judge

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/runkey"
)

// counts runs the judge until all that it was told is counted, and returns how the schedule stands.
func (r *rig) counts(schedule uint64) (state string, failures, revision int, reason string) {
	r.Helper()
	ended, end := context.WithCancel(r.Context())
	end()
	r.Judge.Run(ended)
	err := r.db.QueryRowContext(r.Context(), "SELECT state, failures, revision, reason FROM "+r.layout.Database(0)+".schedule WHERE schedule_id = ?", schedule).
		Scan(&state, &failures, &revision, &reason)
	if err != nil {
		r.Fatal(err)
	}
	return state, failures, revision, reason
}

func TestAScheduleIsPausedAfterFailuresInARow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	schedule := r.plan(plan{pause: 3})
	var answer error
	r.handler = func(context.Context, tocsin.Info) error { return answer }
	dead := tocsin.Bury(errors.New("no paper"))
	step := func(run is, err error, wantState string, wantFailures int) {
		t.Helper()
		answer = err
		r.deliver(r.sink, r.load(r.add(schedule, run)))
		if state, failures, _, _ := r.counts(schedule); state != wantState || failures != wantFailures {
			t.Errorf("after %v it is %s with %d failures, want %s with %d", err, state, failures, wantState, wantFailures)
		}
	}
	at := func(n int) is { return is{at: time.Duration(n) * time.Second} }
	step(at(0), dead, "active", 1)
	step(at(1), errors.New("busy"), "active", 1) // it will be tried again
	step(at(2), dead, "active", 2)
	step(at(3), nil, "active", 0)
	step(at(4), dead, "active", 1)
	step(is{kind: runkey.Manual}, dead, "active", 1) // somebody asked for it
	step(at(5), dead, "active", 2)
	later := r.add(schedule, is{at: time.Minute})
	step(at(6), dead, "paused", 3)
	_, _, revision, reason := r.counts(schedule)
	if revision != 4 || !strings.HasPrefix(reason, "paused after 3 failures in a row at 2026-11-02T03:00:10Z, the last one of task ") {
		t.Errorf("revision %d, %q", revision, reason)
	}
	if got := r.became(later); got != "the schedule was paused" {
		t.Errorf("the next run: %q", got)
	}
	if len(r.told) != 1 || r.told[0].Why != "paused after 3 failures in a row" || !r.told[0].Time.IsZero() || r.told[0].BizType != 1 {
		t.Errorf("told of %+v", r.told)
	}
	if len(r.watched) != 0 || r.watching.Load() != 0 {
		t.Errorf("%d runs are still watched", len(r.watched))
	}
}

// TestAFailureOfAFormerRevisionDoesNotCount: somebody has mended the schedule meanwhile.
func TestAFailureOfAFormerRevisionDoesNotCount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	schedule := r.plan(plan{pause: 1})
	r.handler = func(context.Context, tocsin.Info) error {
		r.exec("UPDATE $.schedule SET revision = 4")
		return tocsin.Bury(errors.New("no paper"))
	}
	r.deliver(r.sink, r.load(r.add(schedule, inTime)))
	if state, failures, revision, _ := r.counts(schedule); state != "active" || failures != 0 || revision != 4 {
		t.Errorf("it is %s with %d failures, revision %d", state, failures, revision)
	}
}
