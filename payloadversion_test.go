package tocsin_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

var (
	remindV1 = remind.Version(1)
	remindV2 = remind.Version(2)
)

// headersIn returns what a task has in the column.
func headersIn(t *testing.T, c *tocsin.Client, db *sql.DB, id tocsin.JobID) (stored sql.NullString) {
	t.Helper()
	if err := db.QueryRow("SELECT headers FROM "+c.Layout().Table(id.Table())+" WHERE job_id = ?", id).Scan(&stored); err != nil {
		t.Fatal(err)
	}
	return stored
}

func TestTheVersionOfThePayloadIsStoredWithEachWayToAdd(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	db := session(t, devtest.DSN(t), "")
	for way, add := range waysToAdd(c, db) {
		added := must[[]tocsin.Added](t)(add(t.Context(),
			remindV2.New(7, "x", tocsin.In(day)),
			remindV2.NewKey("ord_1", "x", tocsin.In(0)).Header("tenant", "a").OptionalHeader("zone", "b"),
			remindV1.New(7, "x", tocsin.In(day)),
			remind.New(7, "x", tocsin.In(day)).Header("tenant", "a"),
			remindV2.New(7, "x", tocsin.In(day)).Unique("u"+way, tocsin.While(tocsin.Pending, tocsin.Claimed)),
		))
		for i, want := range []struct {
			version         int
			stored, headers string
		}{
			{2, `{"_payload_version":"2"}`, ""},
			{2, `{"_payload_version":"2","tenant":"a","zone":"b"}`, `{"tenant":"a","zone":"b"}`},
			{0, "", ""},
			{0, `{"tenant":"a"}`, `{"tenant":"a"}`},
			{2, `{"_payload_version":"2"}`, ""},
		} {
			stored := headersIn(t, c, db, added[i].JobID)
			if stored.String != want.stored || stored.Valid != (want.stored != "") {
				t.Errorf("%s, %d: stored %q, want %q", way, i, stored.String, want.stored)
			}
			info := get(t, c, added[i].JobID)
			if info.PayloadVersion != want.version || info.Headers != tocsin.Headers(want.headers) || info.Header("_payload_version") != "" {
				t.Errorf("%s, %d: %+v", way, i, info)
			}
		}
	}
	// A reschedule leaves it, and SQL reads it.
	id := add(t, c, remindV2.New(8, "x", tocsin.In(day))).JobID
	must[tocsin.Change](t)(c.Reschedule(t.Context(), tocsin.ByID(id), tocsin.In(day)))
	n := count(t, db, "SELECT COUNT(*) FROM "+c.Layout().Table(id.Table())+" WHERE job_id = ? AND JSON_VALUE(headers, '$._payload_version') = '2'", id)
	if info := get(t, c, id); info.PayloadVersion != 2 || info.Version != 1 || n != 1 {
		t.Errorf("after a reschedule: %+v, %d by SQL", info, n)
	}
}

func TestTheVersionOfThePayloadIsNoHeader(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	task := remindV2.New(7, "x", tocsin.In(day))
	if all := task.Headers(); len(all) != 0 {
		t.Errorf("headers %v", all)
	}
	for name, task := range map[string]tocsin.NewTask{
		`header "_payload_version": use letters`:                                task.Header("_payload_version", "1"),
		"headers have 1025 characters as JSON, with the version of the payload": task.Header("a", strings.Repeat("ü", 1024-len(`{"_payload_version":"2","a":""`))),
	} {
		if _, err := c.Add(t.Context(), task); !errors.Is(err, tocsin.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
	long := strings.Repeat("ü", 1024-len(`{"_payload_version":"2","a":""}`))
	fits := get(t, c, add(t, c, task.Header("a", long).OptionalHeader("b", "has no room")).JobID)
	if fits.PayloadVersion != 2 || fits.Header("a") != long || fits.Header("b") != "" {
		t.Errorf("%+v", fits)
	}
	for _, text := range []string{`{"_payload_version":"x"}`, `{"_payload_version":"0","a":"1"}`} {
		if all, err := tocsin.Headers(text).All(); err == nil || all != nil || !strings.Contains(err.Error(), "_payload_version among the headers is not a whole number") {
			t.Errorf("%s: %v, %v", text, all, err)
		}
	}
}

func TestTheVersionOfThePayloadIsWrittenToAnOutbox(t *testing.T) {
	t.Parallel()
	cfg := withOutbox(t, cluster(t))
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	tx := begin(t, db)
	must[tocsin.Added](t)(c.AddTx(t.Context(), tx, remindV2.New(7, "x", tocsin.In(0))))
	must[[]tocsin.Added](t)(c.AddManyTx(t.Context(), tx, []tocsin.NewTask{remindV2.New(7, "x", tocsin.In(0)), remindV1.New(7, "x", tocsin.In(0))}))
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, db, "SELECT SUM(headers = '{\"_payload_version\":\"2\"}') * 10 + SUM(headers IS NULL) FROM "+cfg.Outbox.Table); n != 21 {
		t.Errorf("%d, want two rows with the mark and one without", n)
	}
}
