package store

import (
	"testing"

	"github.com/tocsinhq/tocsin"
)

// completeTx completes rows in one transaction, as their handlers do.
func (b *bench) completeTx(ids ...tocsin.JobID) {
	b.tb.Helper()
	tx, err := b.db.BeginTx(b.tb.Context(), nil)
	if err != nil {
		b.tb.Fatal(err)
	}
	for _, id := range ids {
		info := tocsin.Info{JobID: id, Table: b.layout.Table(id.Table())}
		if err := tocsin.CompleteTx(b.tb.Context(), tx, info); err != nil {
			b.tb.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		b.tb.Fatal(err)
	}
}

// Settle distinguishes tasks that their handlers have completed from tasks that
// another delivery completed. The former don't slow down the batch.
func TestSettleTellsWhatHandlersHaveCompleted(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var outcomes []Outcome
	for table := range small.Total() {
		for i := range 4 {
			b.add(task{id: id(table, i)})
			o := b.outcome(id(table, i), tocsin.Completed)
			o.InTx = i%2 == 0
			outcomes = append(outcomes, o)
		}
		b.completeTx(id(table, 0), id(table, 2))
	}
	fates, err := b.Settle(t.Context(), 0, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	for i, fate := range fates {
		want := Stored
		if outcomes[i].InTx {
			want = InTx
		}
		if fate != want {
			t.Errorf("outcome %d: %s, want %s", i, fate, want)
		}
	}
	if n := b.roundTrips("settle"); n != 1 {
		t.Errorf("it took %d packets", n)
	}
}

func TestSettleTellsInTxFromARace(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		verb    tocsin.Verb
		race    bool // another delivery completed it
		changed bool // it was rescheduled and then completed
		want    Fate
	}{
		"its handler completed it":                     {verb: tocsin.Completed, want: InTx},
		"another delivery completed it":                {verb: tocsin.Completed, race: true, want: Settled},
		"its handler completed it and failed then":     {verb: tocsin.Retried, want: InTx},
		"its handler completed it and gave it up then": {verb: tocsin.Buried, want: InTx},
		"it was completed as a version that is gone":   {verb: tocsin.Completed, changed: true, want: Rescheduled},
	}
	b, seq := open(t, small), 0
	for name, c := range cases {
		seq++
		job := id(1, seq)
		b.add(task{id: job})
		o := b.outcome(job, c.verb)
		if c.race {
			b.settleOne(b.outcome(job, tocsin.Completed))
		} else {
			b.completeTx(job)
		}
		if c.changed {
			o.Version++
		}
		if got := b.settleOne(o); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
