package docs_test

import (
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
)

// makeOutbox makes the outbox of the document.
func (p *place) makeOutbox(t *testing.T) {
	t.Helper()
	database := p.layout.Prefix + "_shop"
	p.exec(t, "CREATE DATABASE "+database)
	p.outbox = outbox.Config{DSN: devtest.DSN(t), Table: database + ".tocsin_outbox"}
	if _, err := ddl.ApplyOutbox(t.Context(), ddl.Outbox{DSN: p.outbox.DSN, Table: p.outbox.Table}); err != nil {
		t.Fatal(err)
	}
}

// relay moves the only row of the outbox, as a relay does.
func (p *place) relay(t *testing.T) {
	t.Helper()
	from, err := outbox.Open(p.outbox)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	tasks, err := tocsin.Open(t.Context(), tocsin.Config{Layout: p.layout, Servers: []tocsin.Server{{DSN: devtest.DSN(t)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer tasks.Close()
	rows, err := from.List(t.Context(), 0, 10, false)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows in the outbox, want 1: %v", len(rows), err)
	}
	if got := client.MoverOf(tasks).Move(t.Context(), "docs", rows); got[0].Fate != outbox.Moved {
		t.Fatalf("%+v becomes %+v", rows[0], got[0])
	}
	p.exec(t, "DELETE FROM "+p.outbox.Table)
}

func (r reader) outboxAdded(t *testing.T, out []string) {
	want(t, "add", out)
	r.relay(t)
	rows := r.tasks(t, order)
	if len(rows) != 1 || rows[0].Status != tocsin.Pending || rows[0].Payload != `{"reason":"unpaid"}` {
		t.Fatalf("rows %+v", rows)
	}
	r.near(t, "due_time", rows[0].DueTime, minutes30)
}

func (r reader) outboxRescheduled(t *testing.T, out []string) {
	want(t, "reschedule", out)
	r.relay(t)
	row := r.tasks(t, order)[0]
	if row.Version != 1 {
		t.Errorf("row %+v", row)
	}
	r.near(t, "due_time", row.DueTime, 40*time.Minute)
}

func (r reader) outboxCancelled(t *testing.T, out []string) {
	want(t, "cancel", out)
	r.relay(t)
	if row := r.tasks(t, order)[0]; row.Status != tocsin.Cancelled {
		t.Errorf("row %+v", row)
	}
	for _, table := range []string{r.layout.Table(orderTable), r.layout.Database(3) + ".doorbell"} { // the rest of the page begins anew
		r.exec(t, "DELETE FROM "+table)
	}
}
