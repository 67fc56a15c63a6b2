package store

import (
	"errors"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// throughProxy opens a store that reaches its server through a proxy.
func throughProxy(t *testing.T) (*bench, *devtest.Proxy) {
	t.Helper()
	p, dsn := devtest.NewProxy(t, devtest.DSN(t))
	return open(t, small, func(cfg *tocsin.Config) { cfg.Servers[0].DSN = dsn }), p
}

// A claim whose commit got no answer is in doubt. ReadBack shows it completely:
// either it stands as Claim would have returned it, or nothing of it was written.
func TestReadBackTellsWhatALostAnswerDidNot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before bool // the commit does not reach the server
		known  bool // the rows are claimed as they were read
		fenced bool
		want   int
	}{
		"the answer is lost":                         {want: 2},
		"the answer is lost, the rows were known":    {known: true, want: 2},
		"the answer is lost, behind a fence":         {fenced: true, want: 2},
		"the commit is lost":                         {before: true},
		"the commit is lost, the rows were known":    {before: true, known: true},
		"the commit is lost, and so far behind that": {before: true, fenced: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, p := throughProxy(t)
			past := b.clock() - 5000
			b.add(task{id: id(0, 1), action: past}, task{id: id(2, 1), action: past, version: 3, payload: "{}"}, task{id: id(2, 2), status: tocsin.Claimed, by: "me"})
			claim := Claim{By: "me", Hold: time.Minute, Rows: []duequeue.Entry{b.entry(id(0, 1)), b.entry(id(2, 1))}}
			if c.known {
				first, second := b.row(id(0, 1)), b.row(id(2, 1))
				claim.Known = map[tocsin.JobID]*Row{first.JobID: &first, second.JobID: &second}
			}
			if c.fenced {
				claim.Fence = &Fence{"g", "me"}
				if err := b.Own(t.Context(), "g", "me", map[int]int64{0: 1, 2: 1}); err != nil {
					t.Fatal(err)
				}
			}
			p.BreakAt(devtest.AtCommit, c.before, 1)
			rows, err := b.Claim(t.Context(), claim)
			doubt := (*InDoubt)(nil)
			if !errors.As(err, &doubt) || len(rows) != 0 || len(doubt.IDs) != 2 {
				t.Fatalf("claimed %d rows, error %v", len(rows), err)
			}
			rows, err = b.ReadBack(t.Context(), doubt)
			if err != nil || len(rows) != c.want {
				t.Fatalf("read back %d rows, %v, want %d", len(rows), err, c.want)
			}
			for _, r := range rows {
				if stored := b.row(r.JobID); r != stored || r.Action != doubt.Deadline || r.ClaimedBy != "me" {
					t.Errorf("read back %+v\nstored    %+v", r, stored)
				}
			}
		})
	}
}

// While the transaction of the claim is open on the server, ReadBack can't tell: it
// may yet commit.
func TestReadBackWaitsForTheTransactionOfTheClaim(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	deadline := b.clock() + 60_000
	b.add(task{id: id(1, 1)})
	tx, err := b.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec("UPDATE "+b.layout.Table(1)+" SET status = 1, claimed_by = 'me', action_time = "+
		string(appendTime(nil, deadline))+" WHERE job_id = ?", id(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	doubt := &InDoubt{By: "me", Deadline: deadline, IDs: []tocsin.JobID{id(1, 1)}}
	if rows, err := b.ReadBack(t.Context(), doubt); err == nil {
		t.Errorf("read back %+v", rows)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if rows, err := b.ReadBack(t.Context(), doubt); err != nil || len(rows) != 1 {
		t.Errorf("committed: read back %+v, %v", rows, err)
	}
}

// A statement that reads a whole backlog takes seconds if that is long, which says nothing of the server. Any other without an answer does.
func TestAStatementThatMayTakeLongIsNoHang(t *testing.T) {
	t.Parallel()
	b, p := throughProxy(t)
	peek := func(full bool) func() error {
		return func() error {
			_, err := b.Peek(t.Context(), PeekQuery{Tables: []int{0}, Types: []uint64{1}, Until: maxMilli, Limit: 1, Full: full})
			return err
		}
	}
	for name, c := range map[string]struct {
		comment string
		waits   bool
		ask     func() error
	}{
		"a count of the backlog": {"live_counts", false, func() error { _, _, err := b.LiveCounts(t.Context(), 0, []int{0}); return err }},
		"a pull": {"due", false, func() error {
			_, err := b.Due(t.Context(), DueQuery{Type: 1, From: []Place{{}}, Until: maxMilli, Limit: 1})
			return err
		}},
		"a full look":   {"peek", false, peek(true)},
		"a shorter one": {"peek", true, peek(false)},
		"a load":        {"load", true, func() error { _, err := b.Load(t.Context(), 0, []tocsin.JobID{id(0, 1)}); return err }},
	} {
		if _, err := b.Measure(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if err := c.ask(); err != nil { // over a connection that is admitted
			t.Fatal(err)
		}
		ended := make(chan error)
		held, release := p.HoldAt("/* tocsin " + c.comment + " */")
		go func() { ended <- c.ask() }()
		<-held
		if waiting := b.Waiting(0); waiting > 0 != c.waits {
			t.Errorf("%s has waited for %s", name, waiting)
		}
		release()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
