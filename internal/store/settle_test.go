package store

import (
	"cmp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin"
)

// stays says that the row is not touched.
const stays tocsin.Status = 99

// What an outcome may be wrong about.
func wrongVersion(o *Outcome)  { o.Version++ }
func wrongAttempts(o *Outcome) { o.Attempts++ }
func wrongAction(o *Outcome)   { o.Action++ }
func wrongClaim(o *Outcome)    { o.Claimed = !o.Claimed }
func wrongClaimer(o *Outcome)  { o.By = "you" }
func rightClaimer(o *Outcome)  { o.By = "me" }

// What each verb writes, and each reason why it does not: from what state, with which mistake in the outcome, to what. Package
// test/model plays each verb in every situation.
var settleCases = map[string]struct {
	from    task
	verb    tocsin.Verb
	mistake func(*Outcome)
	fate    Fate
	status  tocsin.Status
}{
	"complete a pending row":             {task{}, tocsin.Completed, nil, Stored, tocsin.Done},
	"complete a claimed row":             {task{status: tocsin.Claimed, by: "me"}, tocsin.Completed, nil, Stored, tocsin.Done},
	"complete a done row":                {task{status: tocsin.Done}, tocsin.Completed, nil, Settled, stays},
	"complete a cancelled row":           {task{status: tocsin.Cancelled}, tocsin.Completed, nil, Cancelled, stays},
	"complete a rescheduled row":         {task{}, tocsin.Completed, wrongVersion, Rescheduled, stays},
	"retry a pending row":                {task{attempts: 2}, tocsin.Retried, nil, Stored, tocsin.Pending},
	"retry a claimed row":                {task{status: tocsin.Claimed, by: "me"}, tocsin.Retried, nil, Stored, tocsin.Pending},
	"retry a rescheduled row":            {task{}, tocsin.Retried, wrongVersion, Rescheduled, stays},
	"retry a row another retried":        {task{attempts: 2}, tocsin.Retried, wrongAttempts, Settled, stays},
	"retry a row that moved":             {task{}, tocsin.Retried, wrongAction, ClaimLost, stays},
	"retry after my claim was recovered": {task{}, tocsin.Retried, wrongClaim, ClaimLost, stays},
	"retry a row another claimed":        {task{status: tocsin.Claimed}, tocsin.Retried, wrongClaim, ClaimLost, stays},
	"retry a done row":                   {task{status: tocsin.Done}, tocsin.Retried, nil, Settled, stays},
	"retry a cancelled row":              {task{status: tocsin.Cancelled}, tocsin.Retried, nil, Cancelled, stays},
	"snooze a pending row":               {task{attempts: 2}, tocsin.Snoozed, nil, Stored, tocsin.Pending},
	"snooze a claimed row":               {task{status: tocsin.Claimed, by: "me"}, tocsin.Snoozed, nil, Stored, tocsin.Pending},
	"retry with another's claim":         {task{status: tocsin.Claimed, by: "me"}, tocsin.Retried, wrongClaimer, ClaimLost, stays},
	"retry with my claim":                {task{status: tocsin.Claimed, by: "me"}, tocsin.Retried, rightClaimer, Stored, tocsin.Pending},
	"bury a pending row":                 {task{attempts: 2}, tocsin.Buried, nil, Stored, tocsin.Dead},
	"bury a claimed row":                 {task{status: tocsin.Claimed, by: "me"}, tocsin.Buried, nil, Stored, tocsin.Dead},
	"bury a row another retried":         {task{attempts: 1}, tocsin.Buried, wrongAttempts, Settled, stays},
	"skip a pending row":                 {task{attempts: 2}, tocsin.Skipped, nil, Stored, tocsin.Cancelled},
	"skip a claimed row":                 {task{status: tocsin.Claimed, by: "me"}, tocsin.Skipped, nil, Stored, tocsin.Cancelled},
	"skip a cancelled row":               {task{status: tocsin.Cancelled}, tocsin.Skipped, nil, Cancelled, stays},
}

func TestSettleWritesOnlyUnderItsCondition(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	seq := 0
	for name, c := range settleCases {
		c.from.id = id(seq%small.Total(), seq)
		seq++
		b.add(c.from)
		b.exec("UPDATE " + b.layout.Table(c.from.id.Table()) + " SET dedup_key = job_id WHERE job_id = " + c.from.id.String())
		before := b.row(c.from.id)
		o := b.outcome(c.from.id, c.verb)
		if c.mistake != nil {
			c.mistake(&o)
		}
		fate := b.settleOne(o)
		after := b.row(c.from.id)
		if fate != c.fate {
			t.Errorf("%s: fate %s, want %s", name, fate, c.fate)
		}
		if c.status == stays {
			if after != before {
				t.Errorf("%s: changed %+v to %+v", name, before, after)
			}
			continue
		}
		b.checkWritten(name, o, before, after, c.status)
	}
}

// checkWritten compares all columns of a settled row with what its verb sets.
func (b *bench) checkWritten(name string, o Outcome, before, after Row, status tocsin.Status) {
	b.tb.Helper()
	want := before
	want.Status, want.Modified, want.ClaimedBy = status, after.Modified, ""
	switch o.Verb {
	case tocsin.Retried:
		want.Attempts, want.LastError = before.Attempts+1, o.Reason
	case tocsin.Snoozed:
		want.LastError = cmp.Or(o.Reason, before.LastError)
	case tocsin.Buried:
		want.Attempts, want.LastError = before.Attempts+1, o.Reason
	case tocsin.Skipped:
		want.DedupKey, want.LastError = "", o.Reason
	}
	want.Action = o.Next
	if status != tocsin.Pending {
		want.Action = after.Action
		if now := b.clock(); after.Action > now || after.Action < now-5000 {
			b.tb.Errorf("%s: settled at %d, it is %d", name, after.Action, now)
		}
	}
	want.ActionTime = time.UnixMilli(want.Action).UTC()
	if after != want {
		b.tb.Errorf("%s:\n got %+v\nwant %+v", name, after, want)
	}
}

// What was written, its answer lost, meets itself when it is sent again.
func TestSettleTwiceIsStoredOnce(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	want := map[tocsin.Verb]Fate{tocsin.Completed: Settled, tocsin.Retried: Stored, tocsin.Snoozed: Stored, tocsin.Buried: Stored, tocsin.Skipped: Stored}
	for verb, again := range want {
		job := id(1, int(verb))
		b.add(task{id: job})
		o := b.outcome(job, verb)
		if f := b.settleOne(o); f != Stored {
			t.Errorf("verb %d: first %s", verb, f)
		}
		after := b.row(job)
		if f := b.settleOne(o); f != again {
			t.Errorf("verb %d: again %s, want %s", verb, f, again)
		}
		if b.row(job) != after {
			t.Errorf("verb %d: written twice", verb)
		}
	}
}

// One statement completes many rows; where some are not hit, each still gets
// its own fate. That is so too where handlers were to complete the tasks themselves, and only one of them did.
func TestSettleTellsFatesWithinAGroup(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	statuses := []tocsin.Status{tocsin.Pending, tocsin.Cancelled, tocsin.Claimed, tocsin.Done, tocsin.Dead, tocsin.Pending, tocsin.Pending}
	fates := []Fate{Stored, Cancelled, Stored, Settled, Stored, Stored, InTx}
	var outcomes []Outcome
	for table := range small.Total() {
		for i, status := range statuses {
			b.add(task{id: id(table, i), status: status})
			o := b.outcome(id(table, i), tocsin.Completed)
			o.InTx = i%2 == 0
			outcomes = append(outcomes, o)
		}
		b.completeTx(id(table, len(statuses)-1))
	}
	outcomes = append(outcomes, outcomes[0], Outcome{JobID: id(0, 77)}) // twice, and purged
	got, err := b.Settle(t.Context(), 0, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	for i, fate := range got {
		want := fates[i%len(fates)]
		switch i {
		case len(got) - 2:
			want = Settled
		case len(got) - 1:
			want = Gone
		}
		if fate != want {
			t.Errorf("outcome %d: %s, want %s", i, fate, want)
		}
		if fate != Stored && fate != InTx {
			continue
		}
		if r := b.row(outcomes[i].JobID); r.Status != tocsin.Done {
			t.Errorf("outcome %d: its fate is %s, and its row is %s", i, fate, r.Status)
		}
	}
}

func TestSettleWritesNothingWhenOneRowIsLocked(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var outcomes []Outcome
	for table := range small.Total() {
		b.add(task{id: id(table, 1)})
		outcomes = append(outcomes, b.outcome(id(table, 1), tocsin.Completed))
	}
	unlock := b.locked(id(2, 1))
	_, err := b.Settle(t.Context(), 0, outcomes)
	if err == nil || !strings.Contains(err.Error(), b.layout.Table(0)) || !strings.Contains(err.Error(), "db1") {
		t.Errorf("error %v", err)
	}
	for table := range small.Total() {
		if r := b.row(id(table, 1)); r.Status != tocsin.Pending {
			t.Errorf("table %d is %s", table, r.Status)
		}
	}
	unlock()
	if fates, err := b.Settle(t.Context(), 0, outcomes); err != nil || fates[2] != Stored {
		t.Errorf("unlocked: %v, %v", fates, err)
	}
}

func TestSettleCutsTheReason(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	for i, reason := range []string{"", "it's \\ ? {table} \x00", strings.Repeat("鐘", 300), "\xff broken", strings.Repeat("x", 254) + "🔔🔔"} {
		b.add(task{id: id(1, i)})
		o := b.outcome(id(1, i), tocsin.Buried)
		o.Reason = reason
		if f := b.settleOne(o); f != Stored {
			t.Errorf("%q: %s", reason, f)
		}
		if got := b.row(o.JobID).LastError; got != cut(reason) || utf8.RuneCountInString(got) > tocsin.MaxError {
			t.Errorf("stored %q", got)
		}
	}
}
