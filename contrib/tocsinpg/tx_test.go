package tocsinpg_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/schedule"
)

func TestTransactionsOfPgx(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var log devtest.Log
	s.relay(s.config(&log))
	conn := s.pgx()
	ctx := t.Context()
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		in := tocsinpg.In(s.Client, tx)
		added, err := in.Add(ctx, closeOrder.New(1, "a", tocsin.In(day)).Dedup("once"))
		if added != (tocsin.Added{Relayed: true}) || err != nil {
			t.Errorf("%+v, %v", added, err)
		}
		many, err := in.AddMany(ctx, []tocsin.NewTask{closeOrder.New(2, "b", tocsin.In(day)), closeOrder.New(3, "c", tocsin.At(time.Now().Add(day)))})
		if len(many) != 2 || !many[0].Relayed || !many[1].Relayed || err != nil {
			t.Errorf("%+v, %v", many, err)
		}
		for bizID, change := range map[uint64]func() (tocsin.Change, error){
			2: func() (tocsin.Change, error) { return in.Cancel(ctx, closeOrder.Of(2)) },
			3: func() (tocsin.Change, error) { return in.Reschedule(ctx, closeOrder.Of(3), tocsin.In(2*day)) },
		} {
			if done, err := change(); done != (tocsin.Change{Relayed: true}) || err != nil {
				t.Errorf("%d: %+v, %v", bizID, done, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the order is not placed")
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tocsinpg.In(s.Client, tx).Add(ctx, closeOrder.New(4, "gone", tocsin.In(day)))
		return errors.Join(err, gone)
	}); !errors.Is(err, gone) {
		t.Fatal(err)
	}
	s.Want(1, "a pending")
	s.Want(2, "b cancelled")
	s.Await("3 to be rescheduled", func() bool {
		infos, err := s.Client.List(ctx, 3)
		return err == nil && len(infos) == 1 && infos[0].Version == 1
	})
	s.Rows(0)
	if got := s.Tasks(4); got != "" {
		t.Errorf("of a transaction that was rolled back: %s", got)
	}
}

// As after a Begin whose error was ignored.
func TestATransactionThatIsNilIsRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for name, tx := range map[string]tocsin.OutboxTx{"of pgx": tocsinpg.In(s.Client, nil), "of a driver": s.Client.OutboxTx(nil)} {
		if _, err := tx.Add(t.Context(), closeOrder.New(1, "a", tocsin.In(day))); !errors.Is(err, tocsin.ErrInvalid) {
			t.Errorf("%s: Add: %v", name, err)
		}
		if _, err := tx.Cancel(t.Context(), closeOrder.Of(1)); !errors.Is(err, tocsin.ErrInvalid) {
			t.Errorf("%s: Cancel: %v", name, err)
		}
	}
}

// What is refused is refused before a statement, which would end the transaction.
func TestARefusalLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ctx := t.Context()
	s.In(func(tx *sql.Tx) error {
		for what, c := range map[string]struct {
			task tocsin.NewTask
			want error
		}{
			"a character 0":       {closeOrder.New(1, "a\x00", tocsin.In(day)), tocsin.ErrInvalid},
			"a key that is bytes": {closeOrder.New(1, "a", tocsin.In(day)).Dedup("\xff"), tocsin.ErrInvalid},
			"no biz_id":           {closeOrder.New(0, "a", tocsin.In(day)), tocsin.ErrInvalid},
			"no time":             {closeOrder.New(1, "a", tocsin.When{}), tocsin.ErrInvalid},
			"a long payload":      {closeOrder.New(1, strings.Repeat("x", tocsin.MaxPayload+1), tocsin.In(day)), tocsin.ErrInvalid},
			"an unknown biz type": {tocsin.Define[string]("no.such").New(1, "a", tocsin.In(day)), tocsin.ErrUnknownBizType},
		} {
			if _, err := s.Client.AddTx(ctx, tx, c.task); !errors.Is(err, c.want) {
				t.Errorf("AddTx, %s: %v", what, err)
			}
			if _, err := s.Client.AddManyTx(ctx, tx, []tocsin.NewTask{closeOrder.New(5, "good", tocsin.In(day)), c.task}); !errors.Is(err, c.want) {
				t.Errorf("AddManyTx, %s: %v", what, err)
			}
		}
		if _, err := s.Client.CancelTx(ctx, tx, tocsin.ByID(1<<40)); !errors.Is(err, tocsin.ErrOtherServer) {
			t.Error(err)
		}
		return s.AddTx(tx, 1, "kept", tocsin.In(day))
	})
	s.Rows(1)
}

func TestAnOutboxOfTheWrongKindIsNamed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	business, err := sql.Open("mysql", devtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer business.Close()
	open := func(db *sql.DB) *sql.Tx {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	with := func(o tocsin.Outbox) *tocsin.Client {
		cfg := s.Config
		cfg.Outbox = o
		return s.Open(cfg)
	}
	const here = "public.tocsin_outbox"
	for name, c := range map[string]struct {
		client *tocsin.Client
		on     *sql.DB
		want   string
	}{
		"PostgreSQL, and the transaction is on MySQL": {s.Client, business, "this transaction is on MySQL or MariaDB"},
		"MySQL, and the transaction is on PostgreSQL": {with(tocsin.Outbox{Table: here}), s.DB, "set Config.Outbox.PostgreSQL"},
		"none, and the transaction is on PostgreSQL":  {with(tocsin.Outbox{}), s.DB, "this transaction is on PostgreSQL"},
		"missing":            {with(tocsin.Outbox{Table: "public.nowhere", PostgreSQL: true}), s.DB, "run `tocsin outbox apply`"},
		"in another schema":  {with(tocsin.Outbox{Table: "nowhere.tocsin_outbox", PostgreSQL: true}), s.DB, "run `tocsin outbox apply`"},
		"in the search_path": {with(tocsin.Outbox{Table: "tocsin_outbox", PostgreSQL: true}), s.DB, ""},
	} {
		_, err := c.client.AddTx(t.Context(), open(c.on), closeOrder.New(1, "x", tocsin.In(day)))
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, tocsin.ErrOtherServer) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		_, err = c.client.CancelTx(t.Context(), open(c.on), closeOrder.Of(1))
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, tocsin.ErrOtherServer) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, cancel: %v, want %s", name, err, c.want)
		}
	}
	if err := pgx.BeginFunc(t.Context(), s.pgx(), func(tx pgx.Tx) error {
		_, err := tocsinpg.In(with(tocsin.Outbox{}), tx).Add(t.Context(), closeOrder.New(1, "x", tocsin.In(day)))
		return err
	}); !errors.Is(err, tocsin.ErrOtherServer) || !strings.Contains(err.Error(), "no outbox") {
		t.Error(err)
	}
	if err := pgx.BeginFunc(t.Context(), s.pgx(), func(tx pgx.Tx) error {
		_, err := tocsinpg.In(with(tocsin.Outbox{Table: "shop.tocsin_outbox", Beside: "db1"}), tx).Cancel(t.Context(), closeOrder.Of(1))
		return err
	}); !errors.Is(err, tocsin.ErrInvalid) || !strings.Contains(err.Error(), "is beside server db1") {
		t.Error(err)
	}
}

// Poolers of services need a driver that prepares nothing.
func TestServicesBehindAPooler(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.DB = s.openDB(s.From.DSN + "&default_query_exec_mode=simple_protocol")
	tasks := make([]tocsin.NewTask, 700)
	for i := range tasks {
		tasks[i] = closeOrder.New(uint64(i+1), strings.Repeat("'\\ü", i), tocsin.In(day)).Dedup("a'\\")
	}
	s.In(func(tx *sql.Tx) error { _, err := s.Client.AddManyTx(t.Context(), tx, tasks); return err })
	if n := s.Number("SELECT count(*) FROM tocsin_outbox WHERE char_length(attribute) = 3 * (biz_id - 1) AND dedup_key = $1", "a'\\"); n != len(tasks) {
		t.Errorf("%d rows, want %d", n, len(tasks))
	}
	s.Cancel(1)
	s.Rows(len(tasks) + 1)
}

// TestATransactionOfPostgreSQLCompletesNoTask, applies no schedule, and goes on: the calls send nothing that PostgreSQL refuses.
func TestATransactionOfPostgreSQLCompletesNoTask(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	added, err := s.Client.Add(t.Context(), closeOrder.New(7, "x", tocsin.In(day)))
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Client.Get(t.Context(), added.JobID)
	if err != nil {
		t.Fatal(err)
	}
	schedules, err := schedule.Open(t.Context(), s.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = schedules.Close() })
	for name, level := range map[string]sql.IsolationLevel{"read committed": sql.LevelReadCommitted, "serializable": sql.LevelSerializable} {
		tx, err := s.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		if err := tocsin.CompleteTx(t.Context(), tx, info); !errors.Is(err, tocsin.ErrOtherServer) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := schedules.ApplyTx(t.Context(), tx, schedule.Definition{Name: "a", BizType: "order.close", Cron: "@daily"}); !errors.Is(err, tocsin.ErrOtherServer) {
			t.Errorf("%s: ApplyTx: %v", name, err)
		}
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO orders VALUES ($1, 'open')", int(level)); err != nil {
			t.Errorf("%s: the transaction is broken: %v", name, err)
		}
		if err := tx.Commit(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after, err := s.Client.Get(t.Context(), added.JobID); err != nil || after.Status != tocsin.Pending {
		t.Errorf("%+v, %v", after, err)
	}
}
