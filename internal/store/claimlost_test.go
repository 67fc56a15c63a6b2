package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// wantUnanswered checks that a claim got no answer, and returns whose rows may be claimed.
func wantUnanswered(t *testing.T, got ClaimedRows, err error, rows int) []tocsin.JobID {
	t.Helper()
	lost := (*Unanswered)(nil)
	if !errors.As(err, &lost) || len(lost.IDs) != rows || len(got.Failed) > 0 {
		t.Fatalf("%+v, %v; want no answer for %d rows", got, err, rows)
	}
	return lost.IDs
}

// A claim whose answer is lost is not read back. Its rows, if it has got them, are given back.
func TestAClaimWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"the packet is lost": true, "the answer is lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, p := throughProxy(t)
			b.session(0, bySessions[0])
			b.session(1, bySessions[1])
			b.add(task{id: id(0, 1)}, task{id: id(2, 1)}, task{id: id(2, 2), status: tocsin.Done})
			rows := map[tocsin.JobID]Row{id(0, 1): b.row(id(0, 1)), id(2, 1): b.row(id(2, 1)), id(2, 2): b.row(id(2, 2))}
			c := b.rowsClaim(id(0, 1), id(2, 1), id(2, 2))
			p.BreakAt("/* tocsin claim */", before, 1)
			got, err := b.ClaimRows(t.Context(), c)
			by := make(map[tocsin.JobID]string)
			for _, id := range wantUnanswered(t, got, err, 3) {
				by[id] = c.Claimer(id.Table() / 2)
			}
			want := 2
			if before {
				want = 0
			}
			for released := 0; released < want; { // the server may be at it yet
				n, err := b.ReleaseDoubtful(t.Context(), 0, by)
				if released += n; err != nil || released > want {
					t.Fatalf("released %d of %d: %v", released, want, err)
				}
			}
			for id, row := range rows {
				after := b.row(id)
				if row.Modified = after.Modified; after != row {
					t.Errorf("got %+v\nwant %+v", after, row)
				}
			}
		})
	}
}

// What was claimed by the packets before the one that got no answer stands.
func TestAClaimWhoseSecondPacketGetsNoAnswer(t *testing.T) {
	t.Parallel()
	b, p := throughProxy(t)
	b.session(0, bySessions[0])
	var tasks []task
	c := RowsClaim{Session: bySessions, Number: 1}
	for i := range maxIDs + 20 {
		tasks = append(tasks, task{id: id(0, i)})
		c.Rows = append(c.Rows, duequeue.Entry{JobID: id(0, i)})
	}
	b.add(tasks...)
	p.BreakAt(tasks[maxIDs+7].id.String(), false, 1)
	got, err := b.ClaimRows(t.Context(), c)
	if wantUnanswered(t, got, err, 20); len(got.Rows) != maxIDs || len(got.Refused) > 0 {
		t.Errorf("%d rows stand, %d are refused", len(got.Rows), len(got.Refused))
	}
}

// The server commits, and refuses the read behind it: the rows are claimed. What it refuses before the commit is an answer.
func TestAClaimThatCantBeReadHasNoAnswer(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	b.add(task{id: id(0, 1)})
	c := b.rowsClaim(id(0, 1))
	b.exec("ALTER TABLE " + b.layout.Table(0) + " DROP COLUMN headers")
	got, err := b.ClaimRows(t.Context(), c)
	wantUnanswered(t, got, err, 1)
	if by := scalar[string](b, "SELECT claimed_by FROM "+b.layout.Table(0)); by != c.Claimer(0) {
		t.Errorf("claimed by %q", by)
	}
}

// Nothing was sent: nothing is in doubt.
func TestAClaimThatIsNotSent(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	b.add(task{id: id(0, 1)})
	c := b.rowsClaim(id(0, 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.ClaimRows(ctx, c)
	if lost := (*Unanswered)(nil); !errors.Is(err, context.Canceled) || errors.As(err, &lost) {
		t.Errorf("%v", err)
	}
}

// A claim without an answer commits later than its rows were looked at for the first time.
func TestAClaimThatCommitsLateIsReleased(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	b.add(task{id: id(0, 1)}, task{id: id(0, 2)})
	c := b.rowsClaim(id(0, 1))
	p := claimPacket{store: b.Store, server: b.servers[0], RowsClaim: c, groups: entriesByTable(c.Rows)}
	text, _, _ := p.text([]int{0})
	until, _, _ := strings.Cut(string(text), beforeCommit)
	conn, err := b.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), until); err != nil {
		t.Fatal(err)
	}
	by := map[tocsin.JobID]string{id(0, 1): c.Claimer(0), id(0, 2): c.Claimer(0)}
	if n, err := b.ReleaseDoubtful(t.Context(), 0, by); n != 0 || err == nil {
		t.Errorf("before the commit: %d, %v", n, err)
	}
	if _, err := conn.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		if n, err := b.ReleaseDoubtful(t.Context(), 0, by); n != want || err != nil {
			t.Errorf("after the commit: %d, %v, want %d", n, err, want)
		}
	}
	b.wantRung(id(0, 1), id(0, 2))
}

// Only rows that are claimed with the token of that very claim are given back.
func TestReleaseDoubtfulTouchesNoOtherClaim(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	one, two := Token(bySessions[0], 1), Token(bySessions[0], 2)
	b.add(task{id: id(0, 1), status: tocsin.Claimed, by: two}, task{id: id(0, 2), by: one}, task{id: id(0, 3), status: tocsin.Done, by: one}, task{id: id(1, 4), status: tocsin.Claimed, by: two, crashes: 2})
	by := map[tocsin.JobID]string{id(0, 1): one, id(0, 2): one, id(0, 3): one, id(1, 4): two}
	before := map[tocsin.JobID]Row{}
	for id := range by {
		before[id] = b.row(id)
	}
	if n, err := b.ReleaseDoubtful(t.Context(), 0, by); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for job, row := range before {
		after := b.row(job)
		if job == id(1, 4) {
			row.Status, row.ClaimedBy, row.Modified = tocsin.Pending, "", after.Modified
		}
		if after != row {
			t.Errorf("got %+v\nwant %+v", after, row)
		}
	}
}

// The client gives up while the server takes no writes, and the packet is carried out after all. It stops all writes of the server: not parallel.
func TestAClaimIsStalledByTheServer(t *testing.T) {
	b := openClaims(t)
	b.add(task{id: id(0, 1)})
	before := b.row(id(0, 1))
	c := b.rowsClaim(id(0, 1))
	b.claimRows(RowsClaim{Session: bySessions}) // the connection is admitted
	conn, err := b.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exec := func(query string) {
		t.Helper()
		if _, err := conn.ExecContext(context.Background(), query); err != nil {
			t.Fatal(err)
		}
	}
	exec("FLUSH TABLES WITH READ LOCK")
	defer exec("UNLOCK TABLES")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type answer struct {
		got ClaimedRows
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		got, err := b.ClaimRows(ctx, c)
		answered <- answer{got, err}
	}()
	there := func() (n int) {
		err := conn.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND info LIKE '%"+c.Claimer(0)+"%'").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	wait := func(some bool) {
		for tick := time.Tick(time.Millisecond); there() > 0 != some; {
			<-tick
		}
	}
	wait(true)
	cancel()
	a := <-answered
	wantUnanswered(t, a.got, a.err, 1)
	exec("UNLOCK TABLES")
	wait(false)
	if _, err := b.ReleaseDoubtful(t.Context(), 0, map[tocsin.JobID]string{id(0, 1): c.Claimer(0)}); err != nil {
		t.Error(err)
	}
	after := b.row(id(0, 1))
	if before.Modified = after.Modified; after != before {
		t.Errorf("got %+v\nwant %+v", after, before)
	}
}

// What each verb writes to a row that is claimed under a session: only the token counts.
func TestSettleUnderAToken(t *testing.T) {
	t.Parallel()
	b := openClaims(t)
	mine, seq := Token(bySessions[0], 1), 0
	for name, c := range map[string]struct {
		verb tocsin.Verb
		back bool
		want func(row *Row, o Outcome)
	}{
		"retry":     {verb: tocsin.Retried, want: func(r *Row, o Outcome) { r.Attempts, r.Crashes, r.LastError, r.Action = 3, 0, o.Reason, o.Next }},
		"snooze":    {verb: tocsin.Snoozed, want: func(r *Row, o Outcome) { r.Crashes, r.LastError, r.Action = 0, o.Reason, o.Next }},
		"give back": {verb: tocsin.Snoozed, back: true, want: func(r *Row, o Outcome) { r.Action = o.Next }},
		"bury":      {verb: tocsin.Buried, want: func(r *Row, o Outcome) { r.Status, r.Attempts, r.LastError = tocsin.Dead, 3, o.Reason }},
		"skip":      {verb: tocsin.Skipped, want: func(r *Row, o Outcome) { r.Status, r.LastError = tocsin.Cancelled, o.Reason }},
		"complete":  {verb: tocsin.Completed, want: func(r *Row, _ Outcome) { r.Status = tocsin.Done }},
	} {
		for state, hit := range map[task]bool{
			{status: tocsin.Claimed, by: mine}: true, {status: tocsin.Claimed, by: Token(bySessions[0], 2)}: false, {by: mine}: false, {status: tocsin.Done, by: mine}: false,
		} {
			if c.verb == tocsin.Completed {
				hit = state.status != tocsin.Done
			}
			seq++
			state.id, state.attempts, state.crashes, state.version = id(seq%4, seq), 2, 3, 5
			b.add(state)
			before, o := b.row(state.id), b.outcome(state.id, c.verb)
			o.Claimed, o.Token, o.By, o.Back = true, true, mine, c.back
			o.Action++ // as if it was extended
			fate := b.settleOne(o)
			after := b.row(state.id)
			if fate == Stored != hit {
				t.Errorf("%s of %+v: %s", name, state, fate)
			}
			if hit {
				before.Status, before.ClaimedBy, before.Modified, before.Action = tocsin.Pending, "", after.Modified, after.Action
				c.want(&before, o)
				before.ActionTime = time.UnixMilli(before.Action).UTC()
			}
			if after != before {
				t.Errorf("%s of %+v:\n got %+v\nwant %+v", name, state, after, before)
			}
		}
	}
}
