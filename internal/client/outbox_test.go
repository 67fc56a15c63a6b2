package client_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// withOutbox makes an outbox on the shared server and puts it into the config.
func withOutbox(tb testing.TB, cfg tocsin.Config) tocsin.Config {
	tb.Helper()
	database := cfg.Layout.Prefix + "_shop"
	exec(tb, session(tb, devtest.DSN(tb), ""), "CREATE DATABASE "+database)
	cfg.Outbox.Table = database + ".tocsin_outbox"
	must[bool](tb)(ddl.ApplyOutbox(tb.Context(), ddl.Outbox{DSN: devtest.DSN(tb), Table: cfg.Outbox.Table}))
	return cfg
}

func TestTasksGoThroughTheOutboxFromAnySession(t *testing.T) {
	t.Parallel()
	cfg := withOutbox(t, cluster(t))
	c := open(t, cfg)
	own := session(t, devtest.DSN(t), "")
	bizID := uint64(100)
	at := time.Now().Add(day).UTC().Truncate(time.Millisecond)
	for name, params := range sessions(t) {
		bizID++
		tx := begin(t, session(t, devtest.DSN(t), params))
		added := must[tocsin.Added](t)(c.AddTx(t.Context(), tx, remind.New(bizID, "ü 🔔 \\ ' \" x", tocsin.At(at)).Dedup("ключ")))
		many := must[[]tocsin.Added](t)(c.AddManyTx(t.Context(), tx, []tocsin.NewTask{
			remind.New(bizID, "y", tocsin.In(1500*time.Millisecond)), remind.New(bizID, "", tocsin.In(0)),
		}))
		cancelled := must[tocsin.Change](t)(c.CancelTx(t.Context(), tx, remind.Of(bizID)))
		moved := must[tocsin.Change](t)(c.RescheduleTx(t.Context(), tx, remind.Of(bizID), tocsin.In(time.Minute)))
		commit(t, tx)
		relayed := tocsin.Added{Relayed: true}
		if added != relayed || many[0] != relayed || many[1] != relayed || cancelled != (tocsin.Change{Relayed: true}) || moved != cancelled {
			t.Errorf("%s: %+v, %+v, %+v, %+v", name, added, many, cancelled, moved)
		}
		want := fmt.Sprintf("add %s - ключ ü 🔔 \\ ' \" x|add - 1500 - y|add - 0 - |cancel - - - |reschedule - 60000 - |", at.Format("2006-01-02 15:04:05.000"))
		if got := written(t, own, cfg.Outbox.Table, bizID); got != want {
			t.Errorf("%s: wrote\n%s, want\n%s", name, got, want)
		}
	}
}

// written shows the rows of a biz_id in an outbox.
func written(t *testing.T, db *sql.DB, table string, bizID uint64) (all string) {
	t.Helper()
	rows, err := db.Query(`SELECT op, COALESCE(CAST(due_time AS CHAR), '-'), COALESCE(delay_ms, '-'), COALESCE(CONVERT(dedup_key USING utf8mb4), '-'), attribute,
		biz_type = 'coupon.remind' AND last_error = '' AND attempts = 0 AND ABS(TIMESTAMPDIFF(SECOND, created, NOW())) < 60
		FROM `+table+` WHERE biz_id = ? ORDER BY id`, bizID)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var op, due, delay, key, payload string
		var fine bool
		if err := rows.Scan(&op, &due, &delay, &key, &payload, &fine); err != nil {
			t.Fatal(err)
		}
		all += strings.Join([]string{op, due, delay, key, payload}, " ") + "|"
		if !fine {
			t.Errorf("a row of %d has another biz type, time or error", bizID)
		}
	}
	return all
}

func TestWhichWayATaskTakesDependsOnTheConfigAlone(t *testing.T) {
	t.Parallel()
	cfg, _ := onTwoServers(t)
	cfg = withOutbox(t, cfg)
	cfg.Outbox.Beside = "db1"
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	here, there := bizOn(cfg.Layout, 0, 1), bizOn(cfg.Layout, 1, 1)
	tx := begin(t, db)
	direct := must[tocsin.Added](t)(c.AddTx(t.Context(), tx, remind.New(here, "x", tocsin.In(day))))
	relayed := must[tocsin.Added](t)(c.AddTx(t.Context(), tx, remind.New(there, "x", tocsin.In(day))))
	many := must[[]tocsin.Added](t)(c.AddManyTx(t.Context(), tx, []tocsin.NewTask{remind.New(there, "y", tocsin.In(day)), remind.New(here, "y", tocsin.In(day))}))
	if direct.JobID == 0 || direct.Relayed || relayed != (tocsin.Added{Relayed: true}) || many[0] != relayed || many[1].JobID == 0 {
		t.Errorf("%+v, %+v, %+v", direct, relayed, many)
	}
	cancelled := must[tocsin.Change](t)(c.CancelTx(t.Context(), tx, remind.Of(here)))
	if cancelled != (tocsin.Change{Changed: 2}) {
		t.Errorf("%+v", cancelled)
	}
	commit(t, tx)
	stored := add(t, c, remind.New(there, "z", tocsin.In(day)))
	tx = begin(t, db)
	_, err := c.CancelTx(t.Context(), tx, tocsin.ByID(stored.JobID))
	if !errors.Is(err, tocsin.ErrOtherServer) || !strings.Contains(err.Error(), "use BizType.Of") {
		t.Errorf("cancel by job_id: %v", err)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM "+cfg.Outbox.Table); n != 2 {
		t.Errorf("%d rows in the outbox, want 2", n)
	}
}

func TestAChangeThatIsWrongIsNotWrittenIntoAnOutbox(t *testing.T) {
	t.Parallel()
	cfg := withOutbox(t, cluster(t))
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	unknown := tocsin.Define[string]("no.such")
	for name, call := range map[string]func(context.Context, *sql.Tx) error{
		"a cancel without biz_id": func(ctx context.Context, tx *sql.Tx) error { _, err := c.CancelTx(ctx, tx, remind.Of(0)); return err },
		"a cancel of an unknown biz type": func(ctx context.Context, tx *sql.Tx) error {
			_, err := c.CancelTx(ctx, tx, unknown.Of(1))
			return err
		},
		"a reschedule without a time": func(ctx context.Context, tx *sql.Tx) error {
			_, err := c.RescheduleTx(ctx, tx, remind.Of(1), tocsin.When{})
			return err
		},
	} {
		tx := begin(t, db)
		err := call(t.Context(), tx)
		if !errors.Is(err, tocsin.ErrInvalid) && !errors.Is(err, tocsin.ErrUnknownBizType) {
			t.Errorf("%s: %v", name, err)
		}
		commit(t, tx)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM "+cfg.Outbox.Table); n != 0 {
		t.Errorf("%d rows are written", n)
	}
}

func TestWithoutAnOutboxTheErrorSaysHowToGetOne(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	cfg.Outbox.Table = "nothing_here.tocsin_outbox"
	c := open(t, cfg)
	tx := begin(t, session(t, devtest.DSN(t), ""))
	_, err := c.AddTx(t.Context(), tx, remind.New(1, "x", tocsin.In(0)))
	if !errors.Is(err, tocsin.ErrOtherServer) || !strings.Contains(err.Error(), "run `tocsin outbox apply`") {
		t.Error(err)
	}
	cfg.Outbox.Table = "tocsin_outbox" // in the session's database, of which there is none
	_, err = open(t, cfg).AddTx(t.Context(), begin(t, session(t, devtest.DSN(t), "")), remind.New(1, "x", tocsin.In(0)))
	if err == nil || !strings.Contains(err.Error(), "name its database in Config.Outbox, as shop.tocsin_outbox") {
		t.Error(err)
	}
	for want, o := range map[string]tocsin.Outbox{
		"use database.table":      {Table: "a b"},
		"no server has that name": {Table: "shop.tocsin_outbox", Beside: "db9"},
		"name its table":          {Beside: "db1"},
		"PostgreSQL: name its":    {PostgreSQL: true},
		"leave Beside out":        {Table: "public.tocsin_outbox", PostgreSQL: true, Beside: client.Specs(cfg)[0].Name},
	} {
		cfg.Outbox = o
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestManyTasksInOneTransaction(t *testing.T) {
	t.Parallel()
	cfg := withOutbox(t, cluster(t))
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	tasks := make([]tocsin.NewTask, 1300)
	for i := range tasks {
		tasks[i] = remind.New(uint64(i+1), strings.Repeat("x", i%700), tocsin.In(day))
	}
	tx := begin(t, db)
	for _, added := range must[[]tocsin.Added](t)(c.AddManyTx(t.Context(), tx, tasks)) {
		if !added.Relayed {
			t.Fatalf("%+v", added)
		}
	}
	commit(t, tx)
	if n := count(t, db, "SELECT COUNT(*) FROM "+cfg.Outbox.Table+" WHERE CHAR_LENGTH(attribute) = (biz_id - 1) % 700"); n != len(tasks) {
		t.Errorf("%d rows, want %d", n, len(tasks))
	}
}
