package relay

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
)

// Reading what is aside takes its share of the time at most, whatever meets a delivery.
func TestARowThatMeetsADeliveryWaitsForTheShareOfTheTime(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Add(1, "x", tocsin.In(day))
	s.Add(2, "y", tocsin.In(day))
	turn := s.turn()
	turn.cfg.Whole = time.Hour
	turn.polls(s)
	meet := func(bizID uint64) {
		l := turn.lanes[s.Config.Layout.DatabaseOf(s.Config.Layout.TableOf(bizID))]
		l.flight = l.next()
		turn.flying++
		turn.settle(landing{l, []outbox.Result{{Fate: outbox.InDelivery}, {Fate: outbox.InDelivery}}[:len(l.flight)]})
	}
	meet(1)
	if wait := time.Until(turn.nextAside); wait > laterPause {
		t.Errorf("the row is tried again in %s", wait)
	}
	if err := turn.again(t.Context()); err != nil || turn.asideFrom.IsZero() {
		t.Fatal(turn.asideFrom, err)
	}
	turn.asideFrom = time.Now().Add(time.Hour) // reading took 6 minutes
	turn.nextAside = turn.asideFrom
	for _, l := range turn.lanes {
		if len(l.queue) > 0 {
			meet(l.queue[0].BizID)
		}
	}
	if len(turn.aside) == 0 || turn.nextAside.Before(turn.asideFrom) {
		t.Errorf("what is aside (%v) is read again in %s", turn.aside, time.Until(turn.nextAside))
	}
}

// A row that met a delivery is tried again soon, then less and less often, and not because another one is.
func TestARowThatMeetsADeliveryIsTriedLessAndLessOften(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for id := uint64(1); id <= 2; id++ {
		s.Add(s.bizOn(0, 10*id), "x", tocsin.In(day))
	}
	turn := s.turn()
	turn.cfg.Whole = time.Hour
	turn.polls(s)
	l := turn.lanes[0]
	meet := func() {
		l.flight = l.next()
		turn.flying++
		turn.settle(landing{l, []outbox.Result{{Fate: outbox.InDelivery}, {Fate: outbox.InDelivery}}[:len(l.flight)]})
	}
	meet()
	if turn.nextAside.IsZero() || len(turn.met) != 2 {
		t.Fatalf("%d rows have met a delivery", len(turn.met))
	}
	if first := turn.met[1].next; !turn.nextAside.Equal(first) {
		t.Errorf("the first row is tried again at %s, but all are read again at %s", first, turn.nextAside)
	}
	due := turn.met[1]
	last := due.next.Add(-laterFirst)
	for n, want := range []time.Duration{2 * laterFirst, 4 * laterFirst, 8 * laterFirst, 16 * laterFirst, 32 * laterFirst, laterPause, laterPause} {
		turn.met[1] = meeting{times: n + 1, next: last}
		turn.met[2] = meeting{times: 9, next: time.Now().Add(time.Hour)}
		turn.asideFrom = time.Time{}
		if err := turn.again(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(l.queue) != 1 || l.queue[0].ID != 1 || !turn.aside.has(2) {
			t.Fatalf("%d rows are tried, aside are %v", len(l.queue), turn.aside)
		}
		begin := time.Now()
		meet()
		if pause := turn.met[1].next.Sub(begin); pause < want || turn.met[1].next.After(time.Now().Add(want)) {
			t.Errorf("time %d: tried again in %s, want %s", n, pause, want)
		}
	}
}

// contended fails the first flight as if a table were locked for a moment.
type contended struct {
	Mover
	failed atomic.Int64
}

func (c *contended) Move(ctx context.Context, identity string, rows []outbox.Row) []outbox.Result {
	results := c.Mover.Move(ctx, identity, rows[1:])
	if c.failed.Add(1) > 1 {
		return append(c.Mover.Move(ctx, identity, rows[:1]), results...)
	}
	return append([]outbox.Result{{Fate: outbox.Failed, Err: &mysql.MySQLError{Number: 1205}}}, results...)
}

// A lock of a moment holds a row up for a second, not until all ids are read again.
func TestARowThatMeetsALockIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Add(1, "x", tocsin.In(day))
	turn := s.turn()
	turn.cfg.Whole = time.Hour
	turn.tasks = &contended{Mover: client.MoverOf(s.Client)}
	s.Run(func(ctx context.Context) { _ = turn.run(ctx) })
	s.Want(1, "x pending")
	s.Rows(0)
}

// A reschedule that meets a delivery is tried again and again, and raises the version of other tasks once.
func TestARescheduleThatMeetsADeliveryRaisesTheVersionOnce(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]tocsin.When{"a time": tocsin.At(time.Now().Add(2 * day)), "a delay": tocsin.In(2 * day)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.strict()
			s.relay(s.config())
			s.Add(1, "a", tocsin.In(day))
			s.Want(1, "a pending")
			table := s.Config.Layout.Table(s.Config.Layout.TableOf(1))
			s.Exec("UPDATE " + table + " SET status = 1, action_time = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR, claimed_by = 'node'")
			s.Add(1, "b", tocsin.In(day))
			s.Want(1, "a claimed, b pending")
			s.Reschedule(1, when)
			version := func(payload string) int {
				return s.Number("SELECT version FROM "+table+" WHERE attribute = ?", payload)
			}
			s.Await("b to be rescheduled", func() bool { return version("b") == 1 })
			rows, err := s.Outbox().List(t.Context(), 0, 10, false)
			if err != nil || len(rows) != 1 {
				t.Fatal(rows, err)
			}
			rows[0].Again = true
			for range 3 {
				if got := client.MoverOf(s.Client).Move(t.Context(), s.identity(), rows); got[0].Fate != outbox.InDelivery {
					t.Fatalf("%+v", got)
				}
			}
			s.Exec("UPDATE " + table + " SET status = 0, claimed_by = '' WHERE status = 1")
			s.Rows(0)
			if a, b := version("a"), version("b"); a != 1 || b != 1 {
				t.Errorf("versions %d and %d, want 1", a, b)
			}
		})
	}
}

// A row that a lock holds up counts in the lag while it is aside; one that waits for a delivery, as its policy wants, does not.
func TestARowThatALockHoldsUpCountsInTheLag(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Add(1, "x", tocsin.In(day))
	turn := s.turn()
	turn.polls(s)
	l := turn.laneOf(outbox.Row{BizID: 1})
	for fate, want := range map[outbox.Fate]bool{outbox.InDelivery: false, outbox.Failed: true} {
		l.flight = l.next()
		turn.flying++
		turn.settle(landing{l, []outbox.Result{{Fate: fate, Err: &mysql.MySQLError{Number: 1205}}}})
		waits := func(when string) {
			t.Helper()
			turn.figures(time.Now().Add(time.Minute))
			if got := testutil.ToFloat64(turn.gauges.lag) >= 60; got != want {
				t.Errorf("fate %d, %s: counts is %t, want %t", fate, when, got, want)
			}
		}
		waits("when it was tried")
		m := turn.met[1]
		m.next = time.Now().Add(time.Hour)
		turn.met[1] = m
		if err := turn.again(t.Context()); err != nil || !turn.aside.has(1) {
			t.Fatal(turn.aside, err)
		}
		waits("after it was read again")
		delete(turn.met, 1)
		if err := turn.again(t.Context()); err != nil || len(l.queue) != 1 {
			t.Fatal(l.queue, err)
		}
	}
	l.queue = nil
	if turn.figures(time.Now().Add(time.Minute)); testutil.ToFloat64(turn.gauges.lag) != 0 {
		t.Error("counts after it has left")
	}
}

// meets counts the rows that met a delivery.
type meets struct {
	Mover
	deliveries atomic.Int64
}

func (m *meets) Move(ctx context.Context, identity string, rows []outbox.Row) []outbox.Result {
	results := m.Mover.Move(ctx, identity, rows)
	for _, result := range results {
		if result.Fate == outbox.InDelivery {
			m.deliveries.Add(1)
		}
	}
	return results
}

// A task that has the new time all along, and was in delivery at first, is rescheduled all the same: its attempts begin anew.
func TestARescheduleToTheSameTimeTakesEffectAfterTheDelivery(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.strict()
	turn, met := s.turn(), &meets{Mover: client.MoverOf(s.Client)}
	turn.tasks = met
	s.Run(func(ctx context.Context) { _ = turn.run(ctx) })
	when := tocsin.At(time.Now().Add(day))
	s.Add(1, "a", when)
	s.Want(1, "a pending")
	table := s.Config.Layout.Table(s.Config.Layout.TableOf(1))
	s.Exec("UPDATE " + table + " SET status = 1, action_time = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR, claimed_by = 'node'")
	s.Reschedule(1, when)
	s.Await("the row to meet the delivery", func() bool { return met.deliveries.Load() > 0 })
	s.Exec("UPDATE " + table + " SET status = 0, attempts = 1, claimed_by = ''")
	s.Rows(0)
	if n := s.Number("SELECT COUNT(*) FROM " + table + " WHERE version = 1 AND attempts = 0 AND action_time = due_time"); n != 1 {
		t.Error("the task was not rescheduled")
	}
}

// Adds of one biz_id behind one that the server refuses wait as those of other fates do.
func TestAnAddBehindOneThatTheServerRefusesWaits(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	table := s.Config.Layout.Table(s.Config.Layout.TableOf(1))
	s.Exec("ALTER TABLE " + table + " ADD CONSTRAINT only_good CHECK (attribute <> 'bad')")
	for _, payload := range []string{"good", "bad", "behind", "behind too"} {
		s.Add(1, payload, tocsin.In(day))
	}
	s.Add(2, "other", tocsin.In(day))
	other := uint64(3)
	for s.Config.Layout.TableOf(other) != s.Config.Layout.TableOf(1) {
		other++
	}
	s.Add(other, "beside", tocsin.In(day))
	s.relay(s.config())
	s.Want(other, "beside pending")
	s.Want(2, "other pending")
	s.Await("the row to be set aside", func() bool { return s.Number("SELECT COUNT(*) FROM {outbox} WHERE last_error <> ''") == 1 })
	s.Rows(3)
	if got := s.Tasks(1); got != "good pending" {
		t.Errorf("stored: %s", got)
	}
	s.Exec("ALTER TABLE " + table + " DROP CONSTRAINT only_good")
	if n, err := s.Outbox().Retry(t.Context(), nil, true); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	s.Rows(0)
	if got := s.Number("SELECT COUNT(*) FROM " + table + " WHERE biz_id = 1"); got != 4 {
		t.Errorf("%d tasks", got)
	}
}

// A copy of the table on the same server keeps the identity: the relay of the copy says who relays it.
func TestTheRelayOfACopySaysWhoHasTheLock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Exec("CREATE DATABASE {prefix}_copy")
	s.Exec("CREATE TABLE {prefix}_copy.tocsin_outbox LIKE {outbox}")
	var log, other devtest.Log
	cfg := s.config()
	cfg.Logger = log.Logger()
	s.relay(cfg)
	log.Await(t, "outbox is relayed by this process")
	cfg = s.config()
	cfg.Logger = other.Logger()
	cfg.Outboxes[0] = outbox.Config{Name: "copy", DSN: devtest.DSN(t), Table: s.Config.Layout.Prefix + "_copy.tocsin_outbox"}
	s.relay(cfg)
	line := other.Await(t, "outbox can't be relayed: its rows wait")
	want := fmt.Sprintf("connection %d relays it", s.Number("SELECT IS_USED_LOCK(?)", outbox.LockName(s.identity())))
	if text := fmt.Sprint(line["error"]); !strings.Contains(text, want) || !strings.Contains(text, "_copy.tocsin_outbox") {
		t.Errorf("says %q, want %q", text, want)
	}
}

// A row waits behind an earlier one of its biz_id that was set aside, never for a later one: nobody else would move it.
func TestARowBeforeOneThatWasSetAsideIsMoved(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for i, why := range []string{"", "no room", ""} {
		s.Exec("INSERT INTO {outbox} (id, biz_type, biz_id, delay_ms, attribute, last_error) VALUES (?, 'order.close', 1, 86400000, ?, ?)", i+1, string(rune('a'+i)), why)
	}
	s.relay(s.config())
	s.Want(1, "a pending")
	s.Rows(2)
	if _, err := s.Outbox().Retry(t.Context(), nil, true); err != nil {
		t.Fatal(err)
	}
	s.Want(1, "a pending, b pending, c pending")
	s.Rows(0)
}

// watchWaits counts how often a statement on the tasks is seen to wait for a lock, until the function that it returns is called.
func (s *shop) watchWaits() (watched func() int) {
	s.TB.Helper()
	waits := 0
	end := s.Run(func(ctx context.Context) {
		for ; ctx.Err() == nil; time.Sleep(150 * time.Millisecond) { // the server renews the table if nobody has read it for 100 ms
			waits += s.Number("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND INSTR(trx_query, ?)", s.Config.Layout.Prefix)
		}
	})
	return func() int { end(); return waits }
}

// moveWithoutWaits moves rows at once, while a transaction holds a lock, and in the end whatever is left.
func (s *shop) moveWithoutWaits(holder *sql.Tx, rows []outbox.Row, fates ...outbox.Fate) {
	s.TB.Helper()
	watched := s.watchWaits()
	results := client.MoverOf(s.Client).Move(s.TB.Context(), s.identity(), rows)
	for i, fate := range fates {
		if results[i].Fate != fate {
			s.TB.Errorf("row %d: %+v, want %d", i, results[i], fate)
		}
	}
	if waits := watched(); waits > 0 {
		s.TB.Errorf("a statement waits for a lock")
	}
	if err := holder.Rollback(); err != nil {
		s.TB.Fatal(err)
	}
	s.relay(s.config())
	s.Rows(0)
}

// An add that has met a lock on the task with its dedup_key holds up no other row again, but those of its biz_id.
func TestAnAddThatHasMetALockHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	there := closeOrder.New(1, "x", tocsin.In(day)).Dedup("key")
	if _, err := s.Client.Add(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	beside := s.beside(1)
	table := s.Config.Layout.Table(s.Config.Layout.TableOf(1))
	tx := s.keep("SELECT job_id FROM " + table + " FORCE INDEX (uk_biz) WHERE biz_id = 1 AND biz_type = 7 AND dedup_key = 'key' FOR UPDATE")
	s.In(func(tx *sql.Tx) error { _, err := s.Client.AddTx(t.Context(), tx, there); return err })
	s.Add(1, "behind", tocsin.In(day))
	s.Add(beside, "beside", tocsin.In(day))
	rows, err := s.Outbox().List(t.Context(), 0, 10, false)
	if err != nil || len(rows) != 3 {
		t.Fatal(rows, err)
	}
	rows[0].Locked, rows[1].Locked, rows[2].Locked = true, true, true
	s.moveWithoutWaits(tx, rows, outbox.Failed, outbox.Failed, outbox.Moved)
	s.Want(1, "x pending, behind pending")
	s.Want(beside, "beside pending")
}

// A cancel that meets a lock on its task does not wait for it: other rows of its database would wait, too.
func TestAChangeThatMeetsALockIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	held := s.bizOn(0, 1)
	other := s.bizOn(0, held+1)
	added := s.bizOn(0, other+1)
	for _, id := range []uint64{held, other} {
		if _, err := s.Client.Add(t.Context(), closeOrder.New(id, "x", tocsin.In(day))); err != nil {
			t.Fatal(err)
		}
	}
	table := s.Config.Layout.Table(s.Config.Layout.TableOf(held))
	tx := s.keep(fmt.Sprintf("SELECT job_id FROM %s WHERE biz_id = %d FOR UPDATE", table, held))
	s.Cancel(held)
	s.Cancel(other)
	s.Add(added, "new", tocsin.In(day))
	rows, err := s.Outbox().List(t.Context(), 0, 10, false)
	if err != nil || len(rows) != 3 {
		t.Fatal(rows, err)
	}
	s.moveWithoutWaits(tx, rows, outbox.Failed, outbox.Moved, outbox.Moved)
	for id, want := range map[uint64]string{held: "x cancelled", other: "x cancelled", added: "new pending"} {
		s.Want(id, want)
	}
}
