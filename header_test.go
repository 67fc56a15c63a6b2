package tocsin_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// odd is a header text that no session may change.
const odd = "ü 🔔 \\ ' \" <b>\x01\n"

// waysToAdd are the ways to add tasks.
func waysToAdd(c *tocsin.Client, db *sql.DB) map[string]func(context.Context, ...tocsin.NewTask) ([]tocsin.Added, error) {
	inTx := func(do func(context.Context, *sql.Tx, []tocsin.NewTask) ([]tocsin.Added, error)) func(context.Context, ...tocsin.NewTask) ([]tocsin.Added, error) {
		return func(ctx context.Context, tasks ...tocsin.NewTask) ([]tocsin.Added, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return nil, err
			}
			added, err := do(ctx, tx, tasks)
			if err != nil {
				return added, errors.Join(err, tx.Rollback())
			}
			return added, tx.Commit()
		}
	}
	one := func(add func(tocsin.NewTask) (tocsin.Added, error), tasks []tocsin.NewTask) (all []tocsin.Added, err error) {
		for _, t := range tasks {
			added, err := add(t)
			if all = append(all, added); err != nil {
				return all, err
			}
		}
		return all, nil
	}
	return map[string]func(context.Context, ...tocsin.NewTask) ([]tocsin.Added, error){
		"Add": func(ctx context.Context, tasks ...tocsin.NewTask) ([]tocsin.Added, error) {
			return one(func(t tocsin.NewTask) (tocsin.Added, error) { return c.Add(ctx, t) }, tasks)
		},
		"AddMany": func(ctx context.Context, tasks ...tocsin.NewTask) ([]tocsin.Added, error) {
			return c.AddMany(ctx, tasks)
		},
		"AddTx": inTx(func(ctx context.Context, tx *sql.Tx, tasks []tocsin.NewTask) ([]tocsin.Added, error) {
			return one(func(t tocsin.NewTask) (tocsin.Added, error) { return c.AddTx(ctx, tx, t) }, tasks)
		}),
		"AddManyTx": inTx(func(ctx context.Context, tx *sql.Tx, tasks []tocsin.NewTask) ([]tocsin.Added, error) {
			return c.AddManyTx(ctx, tx, tasks)
		}),
	}
}

func TestHeadersAndKeysTravelWithEachWayToAdd(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	for name, params := range sessions(t) {
		for way, add := range waysToAdd(c, session(t, devtest.DSN(t), params)) {
			near := remind.New(7, "x", tocsin.In(0))
			added, err := add(t.Context(),
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

// bad are tasks with headers or keys that can't be stored, and what is said of them.
func bad() map[string]tocsin.NewTask {
	x := remind.New(7, "x", tocsin.In(0))
	key := func(key string) tocsin.NewTask { return remind.NewKey(key, "x", tocsin.In(0)) }
	return map[string]tocsin.NewTask{
		`header "": use letters`:                     x.Header("", "x"),
		`header "a b": use letters`:                  x.Header("a b", "x"),
		`header "-a": use letters`:                   x.Header("-a", "x"),
		`header "ü": use letters`:                    x.Header("ü", "x"),
		`header "a\n": use letters`:                  x.Header("a\n", "x"),
		"header tenant is not UTF-8":                 x.Header("tenant", "\xff"),
		"at most 64, a letter or digit first":        x.Header(strings.Repeat("a", 65), "x"),
		"headers have 1025 characters as JSON":       x.Header("a", strings.Repeat("ü", 1025-len(`{"a":""}`))),
		"headers have 1026 characters as JSON":       x.Header("a", strings.Repeat("\n", 509)), // each is two characters there
		`biz type "coupon.remind": biz_key is empty`: key(""),
		"biz_key has 65 bytes: at most 64":           key(strings.Repeat("k", 65)),
		`biz_key "a\xff" is not UTF-8`:               key("a\xff"),
	}
}

func TestBadHeadersAndKeysAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	outboxed := withOutbox(t, cfg)
	db := session(t, devtest.DSN(t), "")
	direct, relayed := open(t, cfg), open(t, outboxed)
	fine := remind.New(7, "fine", tocsin.In(0))
	for of, c := range map[string]*tocsin.Client{"direct": direct, "through an outbox": relayed} {
		for way, add := range waysToAdd(c, db) {
			for text, task := range bad() {
				_, err := add(t.Context(), task)
				if !errors.Is(err, tocsin.ErrInvalid) || !strings.Contains(err.Error(), text) {
					t.Errorf("%s, %s: %v, want %q", of, way, err, text)
				}
			}
		}
	}
	if _, err := direct.AddManyTx(t.Context(), begin(t, db), []tocsin.NewTask{fine, fine.Header("", "")}); !errors.Is(err, tocsin.ErrInvalid) {
		t.Error(err)
	}
	for table := range cfg.Layout.Total() {
		if n := count(t, db, "SELECT COUNT(*) FROM "+cfg.Layout.Table(table)); n != 0 {
			t.Errorf("%d tasks in table %d", n, table)
		}
	}
	if n := count(t, db, "SELECT COUNT(*) FROM "+outboxed.Outbox.Table); n != 0 {
		t.Errorf("%d rows in the outbox", n)
	}
}

func TestTheLargestHeadersFit(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	text := strings.Repeat("🔔", 1024-len(`{"a":""}`))
	info := get(t, c, add(t, c, remind.New(7, "x", tocsin.In(day)).Header("a", text)).JobID)
	if info.Header("a") != text {
		t.Errorf("%d bytes came back, want %d", len(info.Header("a")), len(text))
	}
}

func TestATaskSharesNoHeadersWithItsCopies(t *testing.T) {
	t.Parallel()
	base := remind.New(7, "x", tocsin.In(0)).Header("a", "1")
	one, two := base.Header("b", "1"), base.Header("b", "2")
	for name, c := range map[string]struct {
		task tocsin.NewTask
		want map[string]string
	}{
		"base": {base, map[string]string{"a": "1"}},
		"one":  {one, map[string]string{"a": "1", "b": "1"}},
		"two":  {two, map[string]string{"a": "1", "b": "2"}},
		"none": {remind.New(7, "x", tocsin.In(0)), map[string]string{}},
	} {
		if got := c.task.Headers(); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// What plain SQL wrote may be anything; it must be told apart from no headers, and survive as JSON.
func TestWhatAreNoHeaders(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", "null", "[]", `"a"`, `{"a":1}`, `{"a":null}`, `{"a":{}}`, `{"a":"b"`, `{"a":"b"} x`, " "} {
		h := tocsin.Headers(text)
		if all, err := h.All(); err == nil || all != nil || h.Get("a") != "" {
			t.Errorf("%q: %v, %v", text, all, err)
		}
		if _, err := remind.Decode(tocsin.Info{JobID: 5, Headers: h}); err == nil || err.Error() != "task 5: headers are not a JSON object of texts" {
			t.Errorf("%q: decode: %v", text, err)
		}
		var back tocsin.Info
		b := must[[]byte](t)(json.Marshal(tocsin.Info{JobID: 5, Headers: h}))
		if err := json.Unmarshal(b, &back); err != nil || back.Headers != h {
			t.Errorf("%q: through JSON %q, %v", text, back.Headers, err)
		}
	}
	for _, text := range []string{"", "{}"} {
		if all, err := tocsin.Headers(text).All(); err != nil || len(all) != 0 {
			t.Errorf("%q: %v, %v", text, all, err)
		}
	}
	h := tocsin.Headers(`{"a":"<1>"}`)
	if b := must[[]byte](t)(json.Marshal(tocsin.Info{JobID: 5, Headers: h})); !strings.Contains(string(b), fmt.Sprintf("%q:{%q:", "headers", "a")) {
		t.Errorf("as JSON: %s", b)
	}
}
