package store

import (
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
)

// Known rows that are long overdue are claimed as they were read; where one has
// changed since, or is hardly overdue, all are looked at again.
func TestClaimOfKnownRows(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		overdue int64 // ms, of the rows
		change  string
		claimed int
		again   bool // the rows are read again
	}{
		"as they were read":         {overdue: 5000, claimed: 3},
		"hardly overdue":            {overdue: 300, claimed: 3, again: true},
		"one was cancelled":         {overdue: 5000, change: "status = 3, action_time = UTC_TIMESTAMP(3)", claimed: 2, again: true},
		"one is somebody else's":    {overdue: 5000, change: "status = 1, action_time = UTC_TIMESTAMP(3)", claimed: 2, again: true},
		"one was put off":           {overdue: 5000, change: "action_time = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR", claimed: 2, again: true},
		"one was asked for again":   {overdue: 5000, change: "action_time = UTC_TIMESTAMP(3), version = 1", claimed: 2, again: true},
		"one failed and is retried": {overdue: 5000, change: "action_time = UTC_TIMESTAMP(3), attempts = 1", claimed: 2, again: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, small)
			ids := []tocsin.JobID{id(0, 1), id(0, 2), id(3, 3)}
			known := make(map[tocsin.JobID]*Row)
			var entries []duequeue.Entry
			for _, job := range ids {
				b.add(task{id: job, action: b.clock() - c.overdue, payload: "stored"})
				row := b.row(job)
				row.Attribute = "as read"
				known[job] = &row
				entries = append(entries, b.entry(job))
			}
			if c.change != "" {
				b.exec("UPDATE " + b.layout.Table(0) + " SET " + c.change + " WHERE job_id = " + ids[1].String())
			}
			before := b.clock()
			rows, err := b.Claim(t.Context(), Claim{By: "node-a", Hold: time.Minute, Rows: entries, Known: known})
			if err != nil || len(rows) != c.claimed {
				t.Fatalf("%v, claimed %+v", err, rows)
			}
			for _, row := range rows {
				stored := b.row(row.JobID)
				if stored.Status != tocsin.Claimed || stored.ClaimedBy != "node-a" || stored.Action != row.Action || row.Action < before+60_000 {
					t.Errorf("returned %+v\nstored %+v", row, stored)
				}
				if (row.Attribute == "stored") != c.again {
					t.Errorf("read again: %t, want %t", row.Attribute == "stored", c.again)
				}
			}
		})
	}
}

func TestAFenceIsReadWhetherOrNotTheRowsAreKnown(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.add(task{id: id(0, 1), action: b.clock() - 5000})
	row := b.row(id(0, 1))
	rows, err := b.Claim(t.Context(), Claim{
		By: "node-a", Hold: time.Minute, Rows: []duequeue.Entry{b.entry(id(0, 1))},
		Known: map[tocsin.JobID]*Row{row.JobID: &row}, Fence: &Fence{Group: "g", Node: "node-a"},
	})
	if err != nil || len(rows) != 0 {
		t.Errorf("%v, claimed %d rows of a table that was never taken", err, len(rows))
	}
}
