package tocsinpg_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/outboxrow"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/relay"
	"github.com/tocsinhq/tocsin/relay/relaytest"
)

// Whatever happens to rows, and however transactions end, each row is moved once, and those of one biz_id in the order of
// their ids.
func TestOrderWhateverHappens(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var log devtest.Log
	cfg := s.config(&log)
	cfg.Whole, cfg.GapAge = 50*time.Millisecond, 100*time.Millisecond
	operator := s.outbox()
	relaytest.Random(t, relaytest.Shop{
		Client: s.client, Begin: s.db.Begin, BizType: closeOrder,
		Turn:  func(ctx context.Context, to *relaytest.Moody) { _ = relay.Turn(ctx, cfg, to) }, // it ends with ctx, or is repeated
		Retry: func() error { _, err := operator.Retry(t.Context(), nil, true); return err },
		Rows:  func() int { return s.number("SELECT count(*) FROM tocsin_outbox") },
	})
}

func TestWhatCommitsIsMovedAndWhatRollsBackIsNot(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var log devtest.Log
	s.relay(s.config(&log))
	tx := s.begin()
	if err := s.addTx(tx, 1, "gone", tocsin.In(day)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	s.add(1, "kept", tocsin.In(day))
	s.want(1, "kept pending")
	s.rows(0)
}

func TestOrderOfOneBizID(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const orders = 40
	for order := uint64(1); order <= orders; order++ { // before a relay runs: whole pages of it
		s.add(order, "a", tocsin.In(day))
		s.cancel(order)
		s.add(order, "b", tocsin.In(day))
		s.in(func(tx *sql.Tx) error {
			_, err := s.client.RescheduleTx(t.Context(), tx, closeOrder.Of(order), tocsin.In(2*day))
			return err
		})
	}
	var log devtest.Log
	s.relay(s.config(&log))
	s.rows(0)
	for order := uint64(1); order <= orders; order++ {
		if got := s.tasks(order); got != "a cancelled, b pending" {
			t.Errorf("order %d: %s", order, got)
		}
	}
}

func TestAGapIsNeverTakenForEmpty(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var log devtest.Log
	cfg := s.config(&log)
	cfg.GapAge = time.Millisecond // gaps are closed as early as may be
	s.relay(cfg)
	open := s.begin()
	if err := s.addTx(open, 1, "late", tocsin.In(day)); err != nil {
		t.Fatal(err)
	}
	for order := uint64(2); order < 20; order++ {
		s.add(order, "x", tocsin.In(day))
		s.want(order, "x pending")
	}
	s.rows(0) // the deletes did not wait for the row that is open
	time.Sleep(3 * cfg.Whole)
	if err := open.Commit(); err != nil {
		t.Fatal(err)
	}
	s.want(1, "late pending")
	s.rows(0)
}

func TestAnEmptiedOutboxMayGiveIDsAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var log devtest.Log
	s.relay(s.config(&log))
	for order := uint64(1); order <= 5; order++ {
		s.add(order, "x", tocsin.In(day))
	}
	s.rows(0)
	s.exec("TRUNCATE TABLE tocsin_outbox RESTART IDENTITY")
	for order := uint64(1); order <= 3; order++ { // ids 1 to 3 once more
		s.add(order, "y", tocsin.In(day))
	}
	for order := uint64(1); order <= 3; order++ {
		s.want(order, "x pending, y pending")
	}
	s.rows(0)
}

func TestARowThatCantBeMovedIsSetAsideAndHoldsUpItsBizIDAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var log devtest.Log
	s.relay(s.config(&log))
	for _, bizID := range []uint64{1, 2} {
		s.exec("INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms, attribute) VALUES ('no.such', $1, 1000, 'x')", bizID)
		s.add(bizID, "behind", tocsin.In(day))
	}
	s.add(3, "other", tocsin.In(day))
	s.want(3, "other pending")
	from := s.outbox()
	var stuck []outboxrow.Row
	s.await("two rows to be set aside", func() bool {
		var err error
		if stuck, err = from.List(t.Context(), 0, 10, true); err != nil {
			t.Fatal(err)
		}
		return len(stuck) == 2
	})
	if stuck[0].BizID != 1 || stuck[1].BizID != 2 || stuck[0].Attempts != 1 || !strings.Contains(stuck[0].LastError, `unknown biz type "no.such"`) {
		t.Fatalf("%+v", stuck)
	}
	s.rows(4)
	if n, err := from.Drop(t.Context(), []uint64{stuck[0].ID, math.MaxUint64}, false); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	s.want(1, "behind pending")
	if n, err := from.Retry(t.Context(), nil, true); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	s.await("it to be set aside again", func() bool { return s.number("SELECT count(*) FROM tocsin_outbox WHERE attempts = 2") == 1 })
	s.exec("UPDATE tocsin_outbox SET biz_type = 'order.close', last_error = '' WHERE biz_id = 2 AND biz_type = 'no.such'")
	s.await("both to be moved", func() bool {
		return s.tasks(2) == "x pending, behind pending" || s.tasks(2) == "behind pending, x pending"
	})
	s.rows(0)
}

func TestTheNextRelayTakesOver(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var logs [2]devtest.Log
	first, second := s.config(&logs[0]), s.config(&logs[1])
	stop := s.relay(first)
	logs[0].Await(t, "outbox is relayed by this process")
	s.relay(second)
	s.add(1, "x", tocsin.In(day))
	s.want(1, "x pending")
	if lines := logs[1].Lines("outbox is relayed by this process"); len(lines) != 0 {
		t.Error("both are active")
	}
	stop()
	s.add(2, "y", tocsin.In(day))
	s.want(2, "y pending")
}

// A relay whose session is gone loses the lock at once.
func TestARelayWhoseSessionEndsIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var log devtest.Log
	s.relay(s.config(&log))
	log.Await(t, "outbox is relayed by this process")
	if n := s.number("SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holders"); n != 1 {
		t.Fatalf("%d sessions hold the lock", n)
	}
	s.add(1, "x", tocsin.In(day))
	s.want(1, "x pending")
	if n := len(log.Lines("outbox is relayed by this process")); n != 2 {
		t.Errorf("%d turns, want 2", n)
	}
}

// Rows as drivers, psql and a restore write them.
func TestRowsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	due := time.Date(2030, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	tasks := []tocsin.NewTask{
		closeOrder.New(math.MaxUint64, "ä\\'\"\n {}", tocsin.At(due)).Dedup("ü'\\"),
		closeOrder.New(1, "", tocsin.In(1500*time.Millisecond)),
		closeOrder.New(2, strings.Repeat("ä", tocsin.MaxPayload), tocsin.At(time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC))),
	}
	s.in(func(tx *sql.Tx) error {
		if _, err := tx.Exec("SET LOCAL timezone = 'Asia/Tokyo'"); err != nil {
			return err
		}
		_, err := s.client.AddManyTx(t.Context(), tx, tasks)
		return err
	})
	s.exec("INSERT INTO tocsin_outbox (biz_type, biz_id, due_time) VALUES ('order.close', 3, '2030-01-02 03:04:05.6780001+00')")
	s.exec("INSERT INTO tocsin_outbox (id, op, biz_type, biz_id) OVERRIDING SYSTEM VALUE VALUES (9223372036854775807, 'cancel', 'order.close', 4)")
	rows, err := s.session().Read(t.Context(), []outbox.Range{{First: 0, Last: 3}, {First: 4, Last: math.MaxUint64}}, 10, nil)
	if err != nil || len(rows) != 5 {
		t.Fatal(rows, err)
	}
	if r := rows[0]; r.BizID != math.MaxUint64 || r.Payload != "ä\\'\"\n {}" || r.Dedup != "ü'\\" || !r.Due.Equal(due) || r.Delay != nil || r.Op != outboxrow.Add || r.BizType != "order.close" {
		t.Errorf("%+v", r)
	}
	if r := rows[1]; r.BizID != 1 || r.Payload != "" || r.Dedup != "" || !r.Due.IsZero() || *r.Delay != 1500*time.Millisecond {
		t.Errorf("%+v", r)
	}
	if r := rows[2]; r.Payload != strings.Repeat("ä", tocsin.MaxPayload) || r.Due.Year() != 1000 {
		t.Errorf("due %v", r.Due)
	}
	if r := rows[3]; !r.Due.Equal(due) {
		t.Errorf("due %v", r.Due)
	}
	if r := rows[4]; r.ID != math.MaxInt64 || r.Op != outboxrow.Cancel || r.Age < 0 || r.Age > time.Minute || time.Since(r.Created) > time.Minute {
		t.Errorf("%+v", r)
	}
	some, err := s.session().Read(t.Context(), []outbox.Range{{First: 1, Last: 2}, {First: 4, Last: 9}}, 2, func(id uint64) bool { return id == 1 })
	if err != nil || len(some) != 1 || some[0].ID != 2 {
		t.Errorf("%+v, %v", some, err)
	}
}

// Large rows end a page before it has as many as asked for.
func TestAPageEndsBeforeItIsTooLarge(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec("INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms, attribute) SELECT 'order.close', n, 86400000, repeat('ä', 8192) FROM generate_series(1, 200) AS n")
	session := s.session()
	all := []outbox.Range{{First: 0, Last: math.MaxUint64}}
	rows, err := session.Read(t.Context(), all, 200, nil)
	if err != nil || len(rows) > outbox.PageBytes/16384+1 || !outbox.Full(rows, 200) {
		t.Fatal(len(rows), err)
	}
	if rows, err = session.Read(t.Context(), all, 10, nil); err != nil || len(rows) != 10 { // the session is usable
		t.Fatal(len(rows), err)
	}
	var log devtest.Log
	s.relay(s.config(&log))
	s.rows(0)
	s.want(200, strings.Repeat("ä", 8192)+" pending")
}

// An outbox was emptied while a row was being moved, and its id was given again.
func TestADeleteSparesARowWithTheIDOfAnother(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.add(1, "old", tocsin.In(day))
	session := s.session()
	all := []outbox.Range{{First: 0, Last: math.MaxUint64}}
	old, err := session.Read(t.Context(), all, 10, nil)
	if err != nil || len(old) != 1 {
		t.Fatal(old, err)
	}
	s.exec("TRUNCATE TABLE tocsin_outbox RESTART IDENTITY")
	s.add(1, "new", tocsin.In(day))
	s.add(2, "later", tocsin.In(day))
	rows, err := session.Read(t.Context(), all, 10, nil)
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	const form = "2006-01-02 15:04:05.000000" // of the ledger
	later := rows[1].Key
	if later.Created, err = time.Parse(form, later.Created.Format(form)); err != nil {
		t.Fatal(err)
	}
	there, err := session.Present(t.Context(), []outboxrow.Key{old[0].Key, later})
	if err != nil || there[old[0].Key] || !there[later] || later != rows[1].Key {
		t.Error(there, err)
	}
	if err := session.SetAside(t.Context(), old[0].Key, "x"); err != nil {
		t.Fatal(err)
	}
	if err := session.Delete(t.Context(), []outboxrow.Key{old[0].Key, rows[1].Key}); err != nil {
		t.Fatal(err)
	}
	if left, err := session.Read(t.Context(), all, 10, nil); err != nil || len(left) != 1 || left[0].Payload != "new" || left[0].LastError != "" {
		t.Errorf("left %+v, %v", left, err)
	}
}

func TestAnErrorOfTheServerIsShownAndCutForTheRow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.add(1, "x", tocsin.In(day))
	session := s.session()
	rows, err := session.Read(t.Context(), []outbox.Range{{First: 0, Last: 9}}, 10, nil)
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	if err := session.SetAside(t.Context(), rows[0].Key, "\x00\xff"+strings.Repeat("ä", 300)); err != nil {
		t.Fatal(err)
	}
	rows, err = session.Read(t.Context(), []outbox.Range{{First: 0, Last: 9}}, 10, nil)
	if err != nil || rows[0].LastError != "??"+strings.Repeat("ä", 253) {
		t.Error(rows, err)
	}
	cfg := s.from
	cfg.Table = "public.nowhere"
	missing, err := outbox.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := missing.Session(t.Context()); !errors.Is(err, outbox.ErrNoIdentity) {
		t.Error(err)
	}
	if _, err := missing.List(t.Context(), 0, 1, false); err == nil || !strings.Contains(err.Error(), "outbox public.nowhere on 127.0.0.1:") || !strings.Contains(err.Error(), "run `tocsin outbox apply`") {
		t.Error(err)
	}
}
