package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Known rows are claimed as they were read, by one packet. Rows that have changed since are left alone.
func TestClaimOfKnownRows(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		overdue int64 // ms, of the rows
		change  string
		claimed int
	}{
		"as they were read":         {overdue: 5000, claimed: 3},
		"hardly overdue":            {overdue: 300, claimed: 3},
		"not due yet":               {overdue: -60_000},
		"one was cancelled":         {overdue: 5000, change: "status = 3, action_time = UTC_TIMESTAMP(3)", claimed: 2},
		"one is somebody else's":    {overdue: 5000, change: "status = 1, action_time = UTC_TIMESTAMP(3)", claimed: 2},
		"one was put off":           {overdue: 5000, change: "action_time = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR", claimed: 2},
		"one was asked for again":   {overdue: 5000, change: "action_time = UTC_TIMESTAMP(3), version = 1", claimed: 2},
		"one failed and is retried": {overdue: 5000, change: "action_time = UTC_TIMESTAMP(3), attempts = 1", claimed: 2},
	}
	b, seq := open(t, small), 0
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			seq++
			ids := []tocsin.JobID{id(0, 2*seq), id(0, 2*seq+1), id(3, seq)}
			asked := b.known(c.overdue, ids...)
			if c.change != "" {
				b.exec("UPDATE " + b.layout.Table(0) + " SET " + c.change + " WHERE job_id = " + ids[1].String())
			}
			claimsAsRead(t, b, asked, c.claimed)
		})
	}
}

// claimsAsRead claims known rows and checks how many it gets. Rows may be read again only if one of them has changed.
func claimsAsRead(t *testing.T, b *bench, asked Claim, want int) {
	t.Helper()
	before := b.clock()
	rows, err := b.Claim(t.Context(), asked)
	if err != nil || len(rows) != want {
		t.Fatalf("%v, claimed %+v", err, rows)
	}
	for _, row := range rows {
		stored := b.row(row.JobID)
		if stored.Status != tocsin.Claimed || stored.ClaimedBy != "node-a" || stored.Action != row.Action || row.Action < before+60_000 {
			t.Errorf("returned %+v\nstored %+v", row, stored)
		}
		if again := row.Payload != "as read"; again && want == len(asked.Rows) {
			t.Errorf("%s was read again", row.JobID)
		}
	}
}

// known adds rows and returns the claim of a process that has read them.
func (b *bench) known(overdue int64, ids ...tocsin.JobID) Claim {
	b.tb.Helper()
	if _, err := b.Measure(b.tb.Context(), 0); err != nil {
		b.tb.Fatal(err)
	}
	asked := Claim{By: "node-a", Hold: time.Minute, Known: make(map[tocsin.JobID]*Row)}
	for _, job := range ids {
		b.add(task{id: job, action: b.clock() - overdue, payload: "stored"})
		row := b.row(job)
		row.Payload = "as read"
		asked.Known[job] = &row
		asked.Rows = append(asked.Rows, b.entry(job))
	}
	return asked
}

// A row may have been put off to the very millisecond it was read with. It is claimed, and read again.
func TestAClaimOfKnownRowsReadsThoseWithAnotherVersion(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	asked := b.known(5000, id(0, 1), id(3, 3))
	b.exec("UPDATE " + b.layout.Table(3) + " SET version = 7")
	rows, err := b.Claim(t.Context(), asked)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%v, claimed %+v", err, rows)
	}
	if rows[0].Version != 0 || rows[0].Payload != "as read" || rows[1].Version != 7 || rows[1].Payload != "stored" {
		t.Errorf("%+v", rows)
	}
}

// The server refuses the rows of one table, for a reason that is neither a lock nor a lack of room.
func TestAClaimOfKnownRowsLeavesOutTheTableThatRefusesIt(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	asked := b.known(5000, id(0, 1), id(0, 2), id(3, 3))
	b.exec("CREATE TRIGGER " + b.layout.Database(0) + ".refuse BEFORE UPDATE ON " + b.layout.Table(0) +
		" FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'")
	rows, err := b.Claim(t.Context(), asked)
	if len(rows) != 1 || rows[0].JobID != id(3, 3) {
		t.Errorf("claimed %+v, want the row of the other table", rows)
	}
	if doubt := (*InDoubt)(nil); err == nil || errors.As(err, &doubt) {
		t.Errorf("got %v", err)
	}
}

// After this process stood still, as its virtual machine was paused, the estimate of the server's clock is behind. A claim must still last as long
// as its claimer relies on, and tell that the process stood still.
func TestAClaimOfKnownRowsHoldsByTheServersClock(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	asked := b.known(120_000, id(0, 1), id(3, 3))
	known := &b.servers[0].clock.known
	known.last.micro -= time.Minute.Microseconds()
	known.best.micro -= time.Minute.Microseconds()
	before := b.clock()
	rows, err := b.Claim(t.Context(), asked)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%v, claimed %+v", err, rows)
	}
	for _, row := range rows {
		if stored := b.row(row.JobID); row.Action < before+asked.Hold.Milliseconds() || stored.Action != row.Action {
			t.Errorf("at %d claimed until %d, stored %d", before, row.Action, stored.Action)
		}
	}
	if b.Jumped().IsZero() {
		t.Error("nobody is told that the process stood still")
	}
}

// Claims that find changed rows read them back, and must not hold a connection while they wait for another.
func TestAClaimOfKnownRowsNeedsOneConnectionAtATime(t *testing.T) {
	t.Parallel()
	b := open(t, small, func(cfg *tocsin.Config) { cfg.Servers[0].MaxConns = 1 })
	asked := b.known(5000, id(0, 1), id(0, 2))
	b.exec("UPDATE " + b.layout.Table(0) + " SET version = 7 WHERE job_id = " + id(0, 2).String())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // without it the test would never end
	defer cancel()
	rows, err := b.Claim(ctx, asked)
	if err != nil || len(rows) != 2 {
		t.Errorf("%v, claimed %+v", err, rows)
	}
}

// While a claim waits for a connection, the server's clock goes on, and others read it. The packet counts from when it is sent.
func TestAClaimOfKnownRowsThatWaitedForAConnectionIsMadeOnce(t *testing.T) {
	t.Parallel()
	b := open(t, small, func(cfg *tocsin.Config) { cfg.Servers[0].MaxConns = 1 })
	asked := b.known(120_000, id(0, 1), id(3, 3))
	sv := b.servers[0]
	now := sv.clock.known
	sv.clock.known.last.micro -= time.Minute.Microseconds() // a minute passes below
	sv.clock.known.best.micro -= time.Minute.Microseconds()
	taken, waited := b.locked(), sv.DB.Stats().WaitCount
	claimed := make(chan error, 1)
	go func() {
		_, err := b.Claim(t.Context(), asked)
		claimed <- err
	}()
	for tick := time.Tick(time.Millisecond); sv.DB.Stats().WaitCount == waited; {
		<-tick
	}
	sv.clock.mu.Lock()
	sv.clock.known = now
	sv.clock.mu.Unlock()
	taken()
	if err := <-claimed; err != nil || b.roundTrips("seize") != 1 || b.roundTrips("claimable") != 0 {
		t.Errorf("%v: sent %d packets, and read and locked the rows %d times", err, b.roundTrips("seize"), b.roundTrips("claimable"))
	}
	for _, row := range asked.Rows {
		if stored := b.row(row.JobID); stored.Status != tocsin.Claimed {
			t.Errorf("%+v", stored)
		}
	}
}
