package relay

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
)

func TestWhatWasSetAsideStaysThereForTheNextRelay(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	stop := s.relay(s.config())
	s.Exec("INSERT INTO {outbox} (biz_type, biz_id, delay_ms, headers) VALUES ('order.close', 1, 1000, '{')")
	s.Await("the row to be set aside", func() bool { return s.Number("SELECT COUNT(*) FROM {outbox} WHERE last_error <> ''") == 1 })
	stop()
	s.relay(s.config())
	s.Add(1, "behind", tocsin.In(day))
	s.Add(2, "other", tocsin.In(day))
	s.Want(2, "other pending")
	if got := s.Tasks(1); got != "" || s.Number("SELECT attempts FROM {outbox} ORDER BY id LIMIT 1") != 1 {
		t.Errorf("tasks %q\n%s", got, s.Dump())
	}
}

// A cancel cancels at once what no delivery has, and waits for the delivery that it meets.
func TestACancelOfAStrictTypeWaitsForTheDeliveryThatItMeets(t *testing.T) {
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
	s.Cancel(1)
	s.Want(1, "a claimed, b cancelled")
	s.Add(1, "c", tocsin.In(day))
	s.Add(2, "other", tocsin.In(day))
	s.Want(2, "other pending")
	if got := s.Tasks(1); got != "a claimed, b cancelled" {
		t.Errorf("while a delivery is under way: %s", got)
	}
	s.Exec("UPDATE " + table + " SET status = 0, claimed_by = '' WHERE status = 1") // it failed, and is to be tried again
	s.Want(1, "a cancelled, b cancelled, c pending")
	s.Rows(0)
}

// TestAChangeMeetsADeliveryOfATypeThatIsNotStrict, and takes effect at once, as one over the client does.
func TestAChangeMeetsADeliveryOfATypeThatIsNotStrict(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.relay(s.config())
	for bizID := range uint64(2) {
		s.Add(1+bizID, "a", tocsin.In(day))
		s.Want(1+bizID, "a pending")
		table := s.Config.Layout.Table(s.Config.Layout.TableOf(1 + bizID))
		s.Exec("UPDATE "+table+" SET status = 1, action_time = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR, claimed_by = 'node' WHERE biz_id = ?", 1+bizID)
	}
	s.Cancel(1)
	s.Want(1, "a cancelled")
	s.Reschedule(2, tocsin.In(2*day))
	s.Want(2, "a pending")
	infos, err := s.Client.List(t.Context(), 2)
	if err != nil || len(infos) != 1 || infos[0].Version != 1 || infos[0].ClaimedBy != "" || time.Until(infos[0].ActionTime) < day {
		t.Errorf("%+v, %v", infos, err)
	}
	s.Rows(0)
}

func TestADelayCountsFromTheCreationOfItsRow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Exec("INSERT INTO {outbox} (biz_type, biz_id, delay_ms, created) VALUES ('order.close', 1, 3600000, NOW(6) - INTERVAL 20 MINUTE)")
	s.Exec("INSERT INTO {outbox} (biz_type, biz_id, delay_ms, created) VALUES ('order.close', 2, 60000, NOW(6) - INTERVAL 20 MINUTE)")
	s.relay(s.config())
	s.Rows(0)
	for bizID, left := range map[uint64]time.Duration{1: 40 * time.Minute, 2: -19 * time.Minute} {
		infos, err := s.Client.List(t.Context(), bizID)
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
		s.In(func(tx *sql.Tx) error {
			_, err := s.Client.AddManyTx(t.Context(), tx, []tocsin.NewTask{
				closeOrder.New(1, payload, tocsin.In(time.Second)).Dedup("k"), closeOrder.New(1, payload, tocsin.In(day)).Dedup("k"),
				closeOrder.New(2, payload, tocsin.In(day)).Dedup("k"),
			})
			return err
		})
	}
	add("a")
	add("b")
	s.relay(s.config())
	s.Rows(0)
	add("c")
	s.Rows(0)
	if one, two := s.Tasks(1), s.Tasks(2); one != "a pending" || two != "a pending" {
		t.Errorf("%s, %s", one, two)
	}
	moved, added := 0, 0
	for d := range s.Config.Layout.Databases {
		moved += s.Number(fmt.Sprintf("SELECT COUNT(*) FROM {prefix}_%d.relayed", d))
		added += s.Number(fmt.Sprintf("SELECT COUNT(*) FROM {prefix}_%d.relayed WHERE job_id > 0", d))
	}
	if moved != 9 || added != 2 {
		t.Errorf("the ledger has %d rows, %d of them for tasks", moved, added)
	}
}

func TestAServerThatIsAwayHoldsUpItsOwnTasksAlone(t *testing.T) {
	t.Parallel()
	proxy, dsn := devtest.NewProxy(t, devtest.DSN(t))
	s := newShop(t, tocsin.Server{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0}}, tocsin.Server{Name: "db2", DSN: dsn, Databases: []int{1}})
	s.relay(s.config())
	here, there := s.bizOn(0, 1), s.bizOn(1, 1)
	s.Add(there, "first", tocsin.In(day))
	s.Want(there, "first pending")
	proxy.SetDown(true) // for new connections; old ones break at their next statement
	proxy.BreakAt("tocsin", true, 1000)
	const rows = laneRows + 500 // more than a lane holds in memory
	tasks := make([]tocsin.NewTask, rows)
	for i := range tasks {
		tasks[i] = closeOrder.New(s.bizOn(1, uint64(1000+10*i)), "x", tocsin.In(day))
	}
	s.In(func(tx *sql.Tx) error { _, err := s.Client.AddManyTx(t.Context(), tx, tasks); return err })
	s.Cancel(there)
	s.Add(there, "second", tocsin.In(day))
	for order := here; order < here+20; order = s.bizOn(0, order+1) {
		s.Add(order, "x", tocsin.In(day))
		s.Want(order, "x pending")
	}
	s.Rows(rows + 2)
	proxy.BreakAt("no statement", true, 1)
	proxy.SetDown(false)
	s.Want(there, "first cancelled, second pending")
	s.Rows(0)
	if n := s.Number("SELECT (SELECT COUNT(*) FROM {prefix}_1.task_0000) + (SELECT COUNT(*) FROM {prefix}_1.task_0001)"); n != rows+2 {
		t.Errorf("%d tasks, want %d", n, rows+2)
	}
}

// A relay that dies between the move and the delete leaves its rows in the outbox; the next one must not move them again,
// though an add is gone by then.
func TestWhatWasMovedIsNotMovedAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Add(1, "a", tocsin.In(day))
	s.Cancel(1)
	s.Add(1, "b", tocsin.In(day))
	s.Add(2, "x", tocsin.In(day))
	s.moveAll()
	s.Want(1, "a cancelled, b pending")
	s.Exec("DELETE FROM " + s.Config.Layout.Table(s.Config.Layout.TableOf(2))) // was done and purged; so may be tasks of 1
	before := s.Tasks(1)
	s.relay(s.config())
	s.Rows(0)
	if one, two := s.Tasks(1), s.Tasks(2); one != before || two != "" {
		t.Errorf("moved again: %q, was %q; %q", one, before, two)
	}
}

// moveAll moves the rows of the outbox one by one and deletes none.
func (s *shop) moveAll() {
	s.TB.Helper()
	identity := s.identity()
	rows, err := s.Outbox().List(s.TB.Context(), 0, 1000, false)
	if err != nil {
		s.TB.Fatal(err)
	}
	for _, row := range rows {
		if got := client.MoverOf(s.Client).Move(s.TB.Context(), identity, []outbox.Row{row}); got[0].Fate != outbox.Moved {
			s.TB.Fatalf("row %+v: %+v", row, got)
		}
	}
}

// Who writes a row spreads it. A relay whose config has a spread too stores the time that stands in the row.
func TestARelayStoresTimesAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	minute := time.Date(2030, 1, 2, 9, 0, 0, 0, time.UTC)
	s.Add(1, "plain", tocsin.At(minute))
	s.Config.Inserts = map[string]tocsin.Inserts{"order.close": {Spread: time.Hour}}
	s.Client = s.Open(s.Config)
	s.Add(2, "spread", tocsin.At(minute))
	var written time.Time
	if err := s.DB.QueryRow(s.Fill("SELECT due_time FROM {outbox} WHERE biz_id = 2")).Scan(&written); err != nil || !written.After(minute) || !written.Before(minute.Add(time.Hour)) {
		t.Errorf("%s, %v", written, err)
	}
	s.moveAll()
	for bizID, want := range map[uint64]time.Time{1: minute, 2: written} {
		if infos, err := s.Client.List(t.Context(), bizID); err != nil || len(infos) != 1 || !infos[0].ActionTime.Equal(want) {
			t.Errorf("%+v, %v: want %s", infos, err, want)
		}
	}
}

func TestARowThatWasReadLongAgoIsNotMoved(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Add(1, "a", tocsin.In(day))
	s.Cancel(2)
	rows, err := s.Outbox().List(t.Context(), 0, 10, false)
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	for _, row := range rows {
		row.Read = row.Read.Add(-61 * time.Second)
		if got := client.MoverOf(s.Client).Move(t.Context(), "x", []outbox.Row{row}); got[0].Fate != outbox.Stale {
			t.Errorf("%+v", got)
		}
	}
	if got := s.Tasks(1); got != "" || s.Number("SELECT (SELECT COUNT(*) FROM {prefix}_0.relayed) + (SELECT COUNT(*) FROM {prefix}_1.relayed)") != 0 {
		t.Errorf("stored: %s", got)
	}
}

func TestTheLedgerForgetsWhatHasBeenGoneForLong(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.Add(1, "gone", tocsin.In(day))
	s.relay(s.config())()
	stop := s.relay(s.config())
	s.Rows(0)
	stop()
	s.Add(1, "there", tocsin.In(day))
	s.moveAll()
	relayed := "{prefix}_" + string(rune('0'+s.Config.Layout.DatabaseOf(s.Config.Layout.TableOf(1)))) + ".relayed"
	turn := s.turn()
	look := func() (rows, gone int) {
		if err := turn.forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s.Number("SELECT COUNT(*) FROM " + relayed), s.Number("SELECT COUNT(gone) FROM " + relayed)
	}
	if rows, gone := look(); rows != 2 || gone != 0 {
		t.Errorf("at once: %d rows, %d gone", rows, gone)
	}
	s.Exec("UPDATE " + relayed + " SET gmt_create = gmt_create - INTERVAL 2 MINUTE")
	if rows, gone := look(); rows != 2 || gone != 1 {
		t.Errorf("a minute later: %d rows, %d gone", rows, gone)
	}
	s.Exec("UPDATE " + relayed + " SET gone = gone - INTERVAL 601 SECOND")
	if rows, gone := look(); rows != 1 || gone != 0 {
		t.Errorf("ten minutes later: %d rows, %d gone", rows, gone)
	}
}

// A table that takes the place of another brings its identity along: the outbox that had the identity before does not keep it.
func TestIdentitiesMoveFromOneOutboxToAnother(t *testing.T) {
	t.Parallel()
	r := &Relay{names: map[string]string{}}
	for i, c := range []struct {
		identity, name string
		refused        bool
	}{
		{"x", "a", false}, {"y", "b", false}, {"y", "a", true}, {"x", "b", false}, {"y", "a", false}, {"y", "c", true},
	} {
		if err := r.claim(c.identity, c.name); (err != nil) != c.refused {
			t.Errorf("claim %d: %v", i, err)
		}
	}
}
