package store

import (
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// Every way to read a row gives its headers and key, on the same statement as rows without.
func TestHeadersAndKeyComeWithEveryRow(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	with, without := id(0, 1), id(1, 2)
	b.add(task{id: with}, task{id: without})
	b.exec("UPDATE " + b.layout.Table(0) + ` SET headers = '{"a":"ü"}', biz_key = 'ord_1'`)
	if _, err := b.Survey(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	ids := []tocsin.JobID{with, without}
	entries := []duequeue.Entry{b.entry(with), b.entry(without)}
	loaded, err := b.Load(t.Context(), 0, ids)
	b.wantLater("load", loaded.Rows, err)
	page, err := b.Due(t.Context(), DueQuery{Type: 1, From: []Place{{Table: 0}, {Table: 1}}, Until: b.clock(), Limit: 10})
	b.wantLater("due", page.Rows, err)
	looked, err := b.Look(t.Context(), 0, ids)
	b.wantLater("look", looked, err)
	claimed, err := b.Claim(t.Context(), Claim{Rows: entries, By: "me", Hold: 1 << 40})
	b.wantLater("claim", claimed, err)
	back, err := b.ReadBack(t.Context(), &InDoubt{By: "me", Deadline: claimed[0].Action, IDs: ids})
	b.wantLater("read back", back, err)
}

func (b *bench) wantLater(how string, rows []Row, err error) {
	b.tb.Helper()
	if err != nil || len(rows) != 2 {
		b.tb.Fatalf("%s: %v, %v", how, rows, err)
	}
	for _, r := range rows {
		headers, key := tocsin.Headers(""), ""
		if r.JobID.Table() == 0 {
			headers, key = `{"a":"ü"}`, "ord_1"
		}
		if r.Headers != headers || r.BizKey != key {
			b.tb.Errorf("%s: %+v", how, r)
		}
	}
}
