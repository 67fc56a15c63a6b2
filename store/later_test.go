package store

import (
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
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

func TestRowsOfTablesOfVersion1AreReadWithoutHeaders(t *testing.T) {
	t.Parallel()
	prefix := devtest.Prefix(t)
	devtest.Version1(t, devtest.DSN(t), prefix, 1, 4)
	b := openConfig(t, tocsin.Config{
		Layout: tocsin.Layout{Databases: 1, Tables: 4, Prefix: prefix}, Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}},
	})
	b.add(task{id: id(0, 1)})
	loaded, err := b.Load(t.Context(), 0, []tocsin.JobID{id(0, 1)})
	if err != nil || loaded.Failed != nil || len(loaded.Rows) != 1 || loaded.Rows[0].Headers != "" || loaded.Rows[0].BizKey != "" {
		t.Fatalf("%+v, %v", loaded, err)
	}
	b.exec("ALTER TABLE " + b.layout.Table(0) + " ADD COLUMN headers VARCHAR(1024) NULL, ADD COLUMN biz_key VARBINARY(64) NOT NULL DEFAULT ''")
	b.exec("UPDATE " + b.layout.Table(0) + ` SET headers = '{"a":"b"}'`)
	b.exec("UPDATE " + prefix + "_0.layout SET schema_version = 2")
	if _, err := b.Survey(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	loaded, err = b.Load(t.Context(), 0, []tocsin.JobID{id(0, 1)})
	if err != nil || len(loaded.Rows) != 1 || loaded.Rows[0].Header("a") != "b" {
		t.Fatalf("%+v, %v", loaded, err)
	}
}
