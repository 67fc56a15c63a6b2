package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/outboxrow"
	"github.com/tocsinhq/tocsin/internal/seam"
)

func TestWhatCommitsIsMovedAndWhatRollsBackIsNot(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.relay(s.config())
	gone := errors.New("the order is not placed")
	tx, err := s.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.addTx(tx, 1, "gone", tocsin.In(day)), gone); !errors.Is(err, gone) || err.Error() != gone.Error() {
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
	s.relay(s.config())
	s.rows(0)
	for order := uint64(1); order <= orders; order++ {
		if got := s.tasks(order); got != "a cancelled, b pending" {
			t.Errorf("order %d: %s", order, got)
		}
		infos, err := s.client.List(t.Context(), order)
		if err != nil || infos[0].Version != 0 || infos[1].Version != 1 || time.Until(infos[1].DueTime) < day+time.Hour {
			t.Errorf("order %d: %+v, %v", order, infos, err)
		}
	}
}

func TestAGapIsNeverTakenForEmpty(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.relay(s.config())
	open, err := s.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.addTx(open, 1, "late", tocsin.In(day)); err != nil {
		t.Fatal(err)
	}
	for order := uint64(2); order < 20; order++ {
		s.add(order, "x", tocsin.In(day))
		s.want(order, "x pending")
	}
	s.rows(0) // the deletes did not wait for the row that is open
	if err := open.Commit(); err != nil {
		t.Fatal(err)
	}
	s.want(1, "late pending")
	s.rows(0)
}

func TestAnEmptiedOutboxMayGiveIDsAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.relay(s.config())
	for order := uint64(1); order <= 5; order++ {
		s.add(order, "x", tocsin.In(day))
	}
	s.rows(0)
	s.exec("TRUNCATE TABLE {outbox}")
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
	s.relay(s.config())
	stray := func(bizID uint64) {
		s.exec("INSERT INTO {outbox} (biz_type, biz_id, delay_ms, attribute) VALUES ('no.such', ?, 1000, 'x')", bizID)
	}
	stray(1)
	s.add(1, "behind", tocsin.In(day))
	stray(2)
	s.add(2, "behind", tocsin.In(day))
	s.add(3, "other", tocsin.In(day))
	s.want(3, "other pending")
	s.await("two rows to be set aside", func() bool {
		return s.number("SELECT COUNT(*) FROM {outbox} WHERE last_error LIKE 'unknown biz type \"no.such\"%' AND attempts = 1") == 2
	})
	s.rows(4)
	from := s.outbox()
	stuck, err := from.List(t.Context(), 0, 10, true)
	if err != nil || len(stuck) != 2 || stuck[0].BizID != 1 || stuck[1].BizID != 2 {
		t.Fatalf("%+v, %v", stuck, err)
	}
	if n, err := from.Drop(t.Context(), []uint64{stuck[0].ID}, false); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	s.want(1, "behind pending")
	s.apply("no.such", 8)
	if n, err := from.Retry(t.Context(), nil, true); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	s.want(2, "x pending, behind pending")
	s.rows(0)
}

func TestWhatWasSetAsideStaysThereForTheNextRelay(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	stop := s.relay(s.config())
	s.exec("INSERT INTO {outbox} (biz_type, biz_id, delay_ms, headers) VALUES ('order.close', 1, 1000, '{')")
	s.await("the row to be set aside", func() bool { return s.number("SELECT COUNT(*) FROM {outbox} WHERE last_error <> ''") == 1 })
	stop()
	s.relay(s.config())
	s.add(1, "behind", tocsin.In(day))
	s.add(2, "other", tocsin.In(day))
	s.want(2, "other pending")
	if got := s.tasks(1); got != "" || s.number("SELECT attempts FROM {outbox} ORDER BY id LIMIT 1") != 1 {
		t.Errorf("tasks %q\n%s", got, s.dump())
	}
}

func TestACancelOfAStrictTypeWaitsForTheDeliveryThatItMeets(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.strict()
	s.relay(s.config())
	s.add(1, "a", tocsin.In(day))
	s.want(1, "a pending")
	table := s.cfg.Layout.Table(s.cfg.Layout.TableOf(1))
	s.exec("UPDATE " + table + " SET status = 1, action_time = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR, claimed_by = 'node'")
	s.cancel(1)
	s.add(1, "b", tocsin.In(day))
	s.add(2, "other", tocsin.In(day))
	s.want(2, "other pending")
	if got := s.tasks(1); got != "a claimed" {
		t.Errorf("while a delivery is under way: %s", got)
	}
	s.exec("UPDATE " + table + " SET status = 0, claimed_by = '' WHERE status = 1") // it failed, and is to be tried again
	s.want(1, "a cancelled, b pending")
	s.rows(0)
}

// TestAChangeMeetsADeliveryOfATypeThatIsNotStrict, and takes effect at once, as one over the client does.
func TestAChangeMeetsADeliveryOfATypeThatIsNotStrict(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.relay(s.config())
	for bizID := range uint64(2) {
		s.add(1+bizID, "a", tocsin.In(day))
		s.want(1+bizID, "a pending")
		table := s.cfg.Layout.Table(s.cfg.Layout.TableOf(1 + bizID))
		s.exec("UPDATE "+table+" SET status = 1, action_time = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR, claimed_by = 'node' WHERE biz_id = ?", 1+bizID)
	}
	s.cancel(1)
	s.want(1, "a cancelled")
	s.reschedule(2, tocsin.In(2*day))
	s.want(2, "a pending")
	infos, err := s.client.List(t.Context(), 2)
	if err != nil || len(infos) != 1 || infos[0].Version != 1 || infos[0].ClaimedBy != "" || time.Until(infos[0].ActionTime) < day {
		t.Errorf("%+v, %v", infos, err)
	}
	s.rows(0)
}

func TestADelayCountsFromTheCreationOfItsRow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec("INSERT INTO {outbox} (biz_type, biz_id, delay_ms, created) VALUES ('order.close', 1, 3600000, NOW(6) - INTERVAL 20 MINUTE)")
	s.exec("INSERT INTO {outbox} (biz_type, biz_id, delay_ms, created) VALUES ('order.close', 2, 60000, NOW(6) - INTERVAL 20 MINUTE)")
	s.relay(s.config())
	s.rows(0)
	for bizID, left := range map[uint64]time.Duration{1: 40 * time.Minute, 2: -19 * time.Minute} {
		infos, err := s.client.List(t.Context(), bizID)
		if err != nil || len(infos) != 1 {
			t.Fatal(infos, err)
		}
		if off := infos[0].DueTime.Sub(infos[0].Created) - left; off < -time.Minute || off > time.Minute {
			t.Errorf("biz_id %d is due %s after it was stored, want %s", bizID, infos[0].DueTime.Sub(infos[0].Created), left)
		}
	}
}

func TestADedupKeyHoldsInAnOutboxToo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	add := func(payload string) {
		s.in(func(tx *sql.Tx) error {
			_, err := s.client.AddManyTx(t.Context(), tx, []tocsin.NewTask{
				closeOrder.New(1, payload, tocsin.In(time.Second)).Dedup("k"), closeOrder.New(1, payload, tocsin.In(day)).Dedup("k"),
				closeOrder.New(2, payload, tocsin.In(day)).Dedup("k"),
			})
			return err
		})
	}
	add("a")
	add("b")
	s.relay(s.config())
	s.rows(0)
	add("c")
	s.rows(0)
	if one, two := s.tasks(1), s.tasks(2); one != "a pending" || two != "a pending" {
		t.Errorf("%s, %s", one, two)
	}
	moved, added := 0, 0
	for d := range s.cfg.Layout.Databases {
		moved += s.number(fmt.Sprintf("SELECT COUNT(*) FROM {prefix}_%d.relayed", d))
		added += s.number(fmt.Sprintf("SELECT COUNT(*) FROM {prefix}_%d.relayed WHERE job_id > 0", d))
	}
	if moved != 9 || added != 2 {
		t.Errorf("the ledger has %d rows, %d of them for tasks", moved, added)
	}
}

func TestTheNextRelayTakesOver(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first, second := s.config(), s.config()
	stop := s.relay(first)
	s.add(1, "x", tocsin.In(day))
	s.want(1, "x pending")
	s.relay(second)
	stop()
	s.add(2, "y", tocsin.In(day))
	s.want(2, "y pending")
}

func TestAServerThatIsAwayHoldsUpItsOwnTasksAlone(t *testing.T) {
	t.Parallel()
	proxy, dsn := devtest.NewProxy(t, devtest.DSN(t))
	s := newShop(t, tocsin.Server{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0}}, tocsin.Server{Name: "db2", DSN: dsn, Databases: []int{1}})
	s.relay(s.config())
	here, there := s.bizOn(0, 1), s.bizOn(1, 1)
	s.add(there, "first", tocsin.In(day))
	s.want(there, "first pending")
	proxy.SetDown(true) // for new connections; old ones break at their next statement
	proxy.BreakAt("tocsin", true, 1000)
	const rows = laneRows + 500 // more than a lane holds in memory
	tasks := make([]tocsin.NewTask, rows)
	for i := range tasks {
		tasks[i] = closeOrder.New(s.bizOn(1, uint64(1000+10*i)), "x", tocsin.In(day))
	}
	s.in(func(tx *sql.Tx) error { _, err := s.client.AddManyTx(t.Context(), tx, tasks); return err })
	s.cancel(there)
	s.add(there, "second", tocsin.In(day))
	for order := here; order < here+20; order = s.bizOn(0, order+1) {
		s.add(order, "x", tocsin.In(day))
		s.want(order, "x pending")
	}
	s.rows(rows + 2)
	proxy.BreakAt("no statement", true, 1)
	proxy.SetDown(false)
	s.want(there, "first cancelled, second pending")
	s.rows(0)
	if n := s.number("SELECT (SELECT COUNT(*) FROM {prefix}_1.task_0000) + (SELECT COUNT(*) FROM {prefix}_1.task_0001)"); n != rows+2 {
		t.Errorf("%d tasks, want %d", n, rows+2)
	}
}

// A relay that dies between the move and the delete leaves its rows in the outbox; the next one must not move them again,
// though an add is gone by then.
func TestWhatWasMovedIsNotMovedAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.add(1, "a", tocsin.In(day))
	s.cancel(1)
	s.add(1, "b", tocsin.In(day))
	s.add(2, "x", tocsin.In(day))
	s.moveAll()
	s.want(1, "a cancelled, b pending")
	s.exec("DELETE FROM " + s.cfg.Layout.Table(s.cfg.Layout.TableOf(2))) // was done and purged; so may be tasks of 1
	before := s.tasks(1)
	s.relay(s.config())
	s.rows(0)
	if one, two := s.tasks(1), s.tasks(2); one != before || two != "" {
		t.Errorf("moved again: %q, was %q; %q", one, before, two)
	}
}

// moveAll moves the rows of the outbox one by one and deletes none.
func (s *shop) moveAll() {
	s.tb.Helper()
	from := s.outbox()
	session, err := from.Session(s.tb.Context())
	if err != nil {
		s.tb.Fatal(err)
	}
	defer session.Close()
	rows, err := from.List(s.tb.Context(), 0, 1000, false)
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, row := range rows {
		if got := seam.MoverOf(s.client).Move(s.tb.Context(), session.Identity, []outboxrow.Row{row}); got[0].Fate != outboxrow.Moved {
			s.tb.Fatalf("row %+v: %+v", row, got)
		}
	}
}

// Who writes a row spreads it. A relay whose config has a spread too stores the time that stands in the row.
func TestARelayStoresTimesAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	minute := time.Date(2030, 1, 2, 9, 0, 0, 0, time.UTC)
	s.add(1, "plain", tocsin.At(minute))
	s.cfg.Inserts = map[string]tocsin.Inserts{"order.close": {Spread: time.Hour}}
	s.client = s.open(s.cfg)
	s.add(2, "spread", tocsin.At(minute))
	var written time.Time
	if err := s.db.QueryRow(s.fill("SELECT due_time FROM {outbox} WHERE biz_id = 2")).Scan(&written); err != nil || !written.After(minute) || !written.Before(minute.Add(time.Hour)) {
		t.Errorf("%s, %v", written, err)
	}
	s.moveAll()
	for bizID, want := range map[uint64]time.Time{1: minute, 2: written} {
		if infos, err := s.client.List(t.Context(), bizID); err != nil || len(infos) != 1 || !infos[0].ActionTime.Equal(want) {
			t.Errorf("%+v, %v: want %s", infos, err, want)
		}
	}
}

// Two relays that both think they are the active one.
func TestTwoRelaysAtOnceDoNoHarm(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for range 2 {
		r, err := New(s.config())
		if err != nil {
			t.Fatal(err)
		}
		l := &line{Relay: r, outbox: s.outbox(), tasks: seam.MoverOf(s.open(s.cfg)), gauges: r.metrics.of("shop")}
		s.run(func(ctx context.Context) {
			for ctx.Err() == nil {
				session, err := l.outbox.Session(ctx)
				if err != nil {
					return
				}
				_ = newTurn(l, session).run(ctx)
				session.Close()
			}
		})
	}
	const orders = 60
	for order := uint64(1); order <= orders; order++ {
		s.add(order, "a", tocsin.In(day))
		s.cancel(order)
		s.add(order, "b", tocsin.In(day))
		s.add(order, "c", tocsin.In(day))
	}
	s.rows(0)
	for order := uint64(1); order <= orders; order++ {
		if got := s.tasks(order); got != "a cancelled, b pending, c pending" && got != "a cancelled, c pending, b pending" {
			t.Errorf("order %d: %s", order, got)
		}
	}
}

func TestARowThatWasReadLongAgoIsNotMoved(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.add(1, "a", tocsin.In(day))
	s.cancel(2)
	rows, err := s.outbox().List(t.Context(), 0, 10, false)
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	for _, row := range rows {
		row.Read = row.Read.Add(-61 * time.Second)
		if got := seam.MoverOf(s.client).Move(t.Context(), "x", []outboxrow.Row{row}); got[0].Fate != outboxrow.Stale {
			t.Errorf("%+v", got)
		}
	}
	if got := s.tasks(1); got != "" || s.number("SELECT (SELECT COUNT(*) FROM {prefix}_0.relayed) + (SELECT COUNT(*) FROM {prefix}_1.relayed)") != 0 {
		t.Errorf("stored: %s", got)
	}
}

func TestTheLedgerForgetsWhatHasBeenGoneForLong(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.add(1, "gone", tocsin.In(day))
	s.relay(s.config())()
	stop := s.relay(s.config())
	s.rows(0)
	stop()
	s.add(1, "there", tocsin.In(day))
	s.moveAll()
	relayed := "{prefix}_" + string(rune('0'+s.cfg.Layout.DatabaseOf(s.cfg.Layout.TableOf(1)))) + ".relayed"
	r, err := New(s.config())
	if err != nil {
		t.Fatal(err)
	}
	l := &line{Relay: r, outbox: s.outbox(), tasks: seam.MoverOf(s.client)}
	look := func() (rows, gone int) {
		if err := l.forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s.number("SELECT COUNT(*) FROM " + relayed), s.number("SELECT COUNT(gone) FROM " + relayed)
	}
	if rows, gone := look(); rows != 2 || gone != 0 {
		t.Errorf("at once: %d rows, %d gone", rows, gone)
	}
	s.exec("UPDATE " + relayed + " SET gmt_create = gmt_create - INTERVAL 2 MINUTE")
	if rows, gone := look(); rows != 2 || gone != 1 {
		t.Errorf("a minute later: %d rows, %d gone", rows, gone)
	}
	s.exec("UPDATE " + relayed + " SET gone = gone - INTERVAL 601 SECOND")
	if rows, gone := look(); rows != 1 || gone != 0 {
		t.Errorf("ten minutes later: %d rows, %d gone", rows, gone)
	}
}

// A program without strict mode can store a created of 0.
func TestARowWithoutATimeOfCreationIsSetAside(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	conn, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, q := range []string{"SET sql_mode = ''", s.fill("INSERT INTO {outbox} (biz_type, biz_id, delay_ms, created) VALUES ('order.close', 9, 1000, 0)")} {
		if _, err := conn.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	s.relay(s.config())
	s.add(1, "x", tocsin.In(day))
	s.want(1, "x pending")
	s.await("the row to be set aside", func() bool {
		return s.number("SELECT COUNT(*) FROM {outbox} WHERE last_error LIKE 'created is 0%'") == 1
	})
	if n, err := s.outbox().Drop(t.Context(), nil, true); n != 1 || err != nil {
		t.Error(n, err)
	}
}

func TestACancelCancelsAtOnceWhatNoDeliveryHas(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.strict()
	s.relay(s.config())
	s.add(1, "a", tocsin.In(day))
	s.want(1, "a pending")
	table := s.cfg.Layout.Table(s.cfg.Layout.TableOf(1))
	s.exec("UPDATE " + table + " SET status = 1, action_time = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR, claimed_by = 'node'")
	s.add(1, "b", tocsin.In(day))
	s.want(1, "a claimed, b pending")
	s.cancel(1)
	s.want(1, "a claimed, b cancelled")
	s.add(1, "c", tocsin.In(day))
	s.exec("UPDATE " + table + " SET status = 0, claimed_by = '' WHERE status = 1")
	s.want(1, "a cancelled, b cancelled, c pending")
	s.rows(0)
}

// An outbox was emptied while a row was being moved, and its id was given again.
func TestADeleteSparesARowWithTheIDOfAnother(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.add(1, "old", tocsin.In(day))
	from := s.outbox()
	old, err := from.List(t.Context(), 0, 10, false)
	if err != nil || len(old) != 1 {
		t.Fatal(old, err)
	}
	s.exec("TRUNCATE TABLE {outbox}")
	s.add(1, "new", tocsin.In(day))
	s.add(2, "later", tocsin.In(day))
	all, err := from.List(t.Context(), 0, 10, false)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	session, err := from.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if err := session.Delete(t.Context(), []outboxrow.Key{old[0].Key, all[1].Key}); err != nil {
		t.Fatal(err)
	}
	if left, err := from.List(t.Context(), 0, 10, false); err != nil || len(left) != 1 || left[0].Payload != "new" {
		t.Errorf("left %+v, %v", left, err)
	}
}
