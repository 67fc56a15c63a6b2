package client_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

type orderID int64

func TestIDsOfOtherIntegerTypes(t *testing.T) {
	t.Parallel()
	client := open(t, cluster(t))
	for _, id := range []orderID{-1, math.MinInt64} {
		_, add := client.Add(t.Context(), tocsin.New(closeOrder, id, order{}, tocsin.In(time.Hour)))
		_, cancel := client.Cancel(t.Context(), tocsin.Of(closeOrder, id))
		_, list := tocsin.List(t.Context(), client, id)
		for _, err := range []error{add, cancel, list} {
			if !errors.Is(err, tocsin.ErrInvalid) {
				t.Errorf("%d: %v", id, err)
			}
		}
	}
	for _, id := range []orderID{1, math.MaxInt64} {
		added := add(t, client, tocsin.New(closeOrder, id, order{}, tocsin.In(time.Hour)))
		if found, err := tocsin.List(t.Context(), client, id); err != nil || len(found) != 1 || found[0].JobID != added.JobID || found[0].BizID != uint64(id) {
			t.Errorf("%+v, %v", found, err)
		}
		if done, err := client.Cancel(t.Context(), tocsin.Of(closeOrder, id)); err != nil || done.Changed != 1 {
			t.Errorf("%+v, %v", done, err)
		}
	}
	add(t, client, tocsin.New(closeOrder, uint64(math.MaxUint64), order{}, tocsin.In(time.Hour)))
	if _, err := client.Add(t.Context(), tocsin.New(closeOrder, orderID(0), order{}, tocsin.In(time.Hour))); !errors.Is(err, tocsin.ErrInvalid) {
		t.Error(err)
	}
}

// odd is a header text that no session may change.
const odd = "ü 🔔 \\ ' \" <b>\x01\n"

// adders are the ways to add tasks, by the names that calls have in Config.Use. A transaction is rolled back after an error.
var adders = map[string]func(context.Context, *tocsin.Client, *sql.DB, ...tocsin.NewTask) ([]tocsin.Added, error){
	"add": func(ctx context.Context, c *tocsin.Client, _ *sql.DB, tasks ...tocsin.NewTask) ([]tocsin.Added, error) {
		return addEach(tasks, func(t tocsin.NewTask) (tocsin.Added, error) { return c.Add(ctx, t) })
	},
	"add_many": func(ctx context.Context, c *tocsin.Client, _ *sql.DB, tasks ...tocsin.NewTask) ([]tocsin.Added, error) {
		return c.AddMany(ctx, tasks)
	},
	"add_tx": func(ctx context.Context, c *tocsin.Client, db *sql.DB, tasks ...tocsin.NewTask) ([]tocsin.Added, error) {
		return addWith(ctx, db, func(tx *sql.Tx) ([]tocsin.Added, error) {
			return addEach(tasks, func(t tocsin.NewTask) (tocsin.Added, error) { return c.AddTx(ctx, tx, t) })
		})
	},
	"add_many_tx": func(ctx context.Context, c *tocsin.Client, db *sql.DB, tasks ...tocsin.NewTask) ([]tocsin.Added, error) {
		return addWith(ctx, db, func(tx *sql.Tx) ([]tocsin.Added, error) { return c.AddManyTx(ctx, tx, tasks) })
	},
}

func addEach(tasks []tocsin.NewTask, add func(tocsin.NewTask) (tocsin.Added, error)) (all []tocsin.Added, err error) {
	for _, t := range tasks {
		added, err := add(t)
		if all = append(all, added); err != nil {
			return all, err
		}
	}
	return all, nil
}

func addWith(ctx context.Context, db *sql.DB, do func(*sql.Tx) ([]tocsin.Added, error)) ([]tocsin.Added, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	added, err := do(tx)
	if err != nil {
		return added, errors.Join(err, tx.Rollback())
	}
	return added, tx.Commit()
}

func TestHeadersAndKeysTravelWithEachWayToAdd(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	for name, params := range sessions(t) {
		db := session(t, devtest.DSN(t), params)
		for way, add := range adders {
			near := remind.New(7, "x", tocsin.In(0))
			added, err := add(t.Context(), c, db,
				near.Header("tenant", "a").Header("odd", odd).Header("tenant", "b"), // of one table: with headers, and without
				remind.New(7, "plain", tocsin.At(time.Now().Add(day))),
				remind.NewKey("zakaz-№1", "x", tocsin.In(day)).Header("empty", ""),
				remind.NewKey("ord_01J8Z3", "y", tocsin.At(time.Now())))
			if err != nil {
				t.Fatalf("%s, %s: %v", name, way, err)
			}
			infos := make([]tocsin.Info, len(added))
			for i := range added {
				infos[i] = get(t, c, added[i].JobID)
			}
			all := must[map[string]string](t)(infos[0].Headers.All())
			if !maps.Equal(all, map[string]string{"tenant": "b", "odd": odd}) || infos[0].Header("tenant") != "b" || infos[0].Header("Tenant") != "" || infos[0].BizKey != "" {
				t.Errorf("%s, %s: %+v", name, way, infos[0])
			}
			if infos[1].Headers != "" || infos[1].BizKey != "" || infos[1].BizID != 7 {
				t.Errorf("%s, %s: %+v", name, way, infos[1])
			}
			if infos[2].Headers != `{"empty":""}` || infos[2].BizKey != "zakaz-№1" || infos[2].BizID != tocsin.KeyID("zakaz-№1") {
				t.Errorf("%s, %s: %+v", name, way, infos[2])
			}
			if infos[3].Headers != "" || infos[3].BizKey != "ord_01J8Z3" || infos[3].Payload != "y" {
				t.Errorf("%s, %s: %+v", name, way, infos[3])
			}
		}
	}
}

func TestOptionalHeadersAreStoredIfTheyFit(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	x := remind.New(7, "x", tocsin.In(time.Hour))
	long, longest := strings.Repeat("l", tocsin.MaxHeaders-len(`{"a":"","b":"2"}`)), strings.Repeat("🔔", 1024-len(`{"a":""}`))
	for name, want := range map[string]struct {
		task   tocsin.NewTask
		stored tocsin.Headers
	}{
		"the largest":                       {x.Header("a", longest), tocsin.Headers(`{"a":"` + longest + `"}`)},
		"all fit":                           {x.OptionalHeader("b", "2").Header("a", "1"), `{"a":"1","b":"2"}`},
		"only the first has room":           {x.OptionalHeader("b", "2").OptionalHeader("c", "3").Header("a", long), tocsin.Headers(`{"a":"` + long + `","b":"2"}`)},
		"one without room leaves the next":  {x.OptionalHeader("c", long).OptionalHeader("b", "2").Header("a", long), tocsin.Headers(`{"a":"` + long + `","b":"2"}`)},
		"none has room":                     {x.OptionalHeader("c", "3").Header("a", long+"1234567"), tocsin.Headers(`{"a":"` + long + `1234567"}`)},
		"a name and a text that aren't any": {x.OptionalHeader("a b", "1").OptionalHeader("c", "\xff").OptionalHeader("b", "2"), `{"b":"2"}`},
		"nothing is left":                   {x.OptionalHeader("a b", "1"), ""},
		"the last of a name counts":         {x.OptionalHeader("a", "1").Header("a", "2").Header("b", "1").OptionalHeader("b", "2"), `{"a":"2","b":"2"}`},
	} {
		for way, add := range adders {
			added := must[[]tocsin.Added](t)(add(t.Context(), c, db, want.task))
			if got := get(t, c, added[0].JobID).Headers; got != want.stored {
				t.Errorf("%s, %s: %s, want %s", name, way, got, want.stored)
			}
		}
	}
	if _, err := c.Add(t.Context(), x.OptionalHeader("a", "1").Header("b b", "2")); !errors.Is(err, tocsin.ErrInvalid) {
		t.Errorf("a bad header that is not optional: %v", err)
	}
}

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
	c, db := start(t)
	for way, add := range adders {
		added := must[[]tocsin.Added](t)(add(t.Context(), c, db,
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

func TestOptionalHeadersAndTheVersionOfThePayloadAreWrittenToAnOutbox(t *testing.T) {
	t.Parallel()
	cfg := withOutbox(t, cluster(t))
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	tx := begin(t, db)
	optional := remind.New(7, "x", tocsin.In(0)).OptionalHeader("b", "2").OptionalHeader("a b", "1")
	for _, task := range []tocsin.NewTask{remindV2.New(7, "x", tocsin.In(0)), optional} {
		must[tocsin.Added](t)(c.AddTx(t.Context(), tx, task))
	}
	must[[]tocsin.Added](t)(c.AddManyTx(t.Context(), tx, []tocsin.NewTask{remindV2.New(7, "x", tocsin.In(0)), remindV1.New(7, "x", tocsin.In(0)), optional}))
	commit(t, tx)
	for what, want := range map[string]int{`headers = '{"_payload_version":"2"}'`: 2, `headers = '{"b":"2"}'`: 2, "headers IS NULL": 1} {
		if n := count(t, db, "SELECT COUNT(*) FROM "+cfg.Outbox.Table+" WHERE "+what); n != want {
			t.Errorf("%d rows with %s, want %d", n, what, want)
		}
	}
}
