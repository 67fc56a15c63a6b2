package client_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestTableNumberIsTheServersOwnCRC32(t *testing.T) {
	t.Parallel()
	db := session(t, devtest.DSN(t), "")
	bizIDs := []uint64{1, 9, 10, 99, 4294967295, 4294967296, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64}
	for id := uint64(3); id < 1<<63; id *= 3 {
		bizIDs = append(bizIDs, id)
	}
	for _, l := range []tocsin.Layout{{Databases: 8, Tables: 1024}, {Databases: 8, Tables: 16}, {Databases: 1, Tables: 1}, {Databases: 3, Tables: 7}} {
		for _, id := range bizIDs {
			if want := count(t, db, "SELECT CRC32(?) % ?", id, l.Total()); l.TableOf(id) != want {
				t.Errorf("layout %s, biz_id %d: table %d, the server says %d", l, id, l.TableOf(id), want)
			}
		}
	}
}

// A call over the limit fails, or waits if the biz type says so. One in a transaction waits as others do, and the transaction is usable
// after it.
func TestEveryAddIsLimitedByItsNumberOfTasks(t *testing.T) {
	t.Parallel()
	db := session(t, devtest.DSN(t), "")
	for op, add := range adders {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			cfg := cluster(t)
			tasks := asMany(op, closeOrder.New(7, order{}, tocsin.In(time.Hour)), closeOrder.New(8, order{}, tocsin.In(time.Hour)))
			cfg.Inserts = map[string]tocsin.Inserts{"order.close": {Rate: 0.001, Burst: 2*len(tasks) - 1}, "coupon.remind": {Rate: 20, Burst: 1, Wait: true}}
			c := open(t, cfg)
			must[[]tocsin.Added](t)(add(t.Context(), c, db, tasks...))
			added, err := add(t.Context(), c, db, tasks...)
			over, is := errors.AsType[*tocsin.InsertLimitError](err)
			if !is || over.BizType != "order.close" || over.After < 900*time.Second || over.After > 1000*time.Second || len(added) != len(tasks) {
				t.Errorf("added %+v: %v", added, err)
			}
			for i, a := range added {
				_, is := errors.AsType[*tocsin.InsertLimitError](a.Err)
				if rows := listed(t, c, tasks[i].BizID()); len(rows) != 1 || a.JobID != 0 || len(tasks) > 1 && !is {
					t.Errorf("added %+v, stored %+v", a, rows)
				}
			}
			begin := time.Now()
			waiting := asMany(op, remind.New(9, "", tocsin.In(time.Hour)), remind.New(9, "", tocsin.In(time.Hour)))
			for range 3 {
				must[[]tocsin.Added](t)(add(t.Context(), c, db, waiting...))
			}
			if waits := time.Duration(3*len(waiting)-1) * 50 * time.Millisecond; time.Since(begin) < waits {
				t.Errorf("%d tasks took %s", 3*len(waiting), time.Since(begin))
			}
			if rows := listed(t, c, 9); len(rows) != 3*len(waiting) {
				t.Errorf("stored %d", len(rows))
			}
		})
	}
}

// nine is a time that many tasks are asked for.
var nine = time.Date(2030, 1, 2, 9, 0, 0, 0, time.UTC)

// spreading opens a client that spreads order.close.
func spreading(t *testing.T, cfg tocsin.Config) *tocsin.Client {
	cfg.Inserts = map[string]tocsin.Inserts{"order.close": {Spread: 30 * time.Second}}
	return open(t, cfg)
}

// movedBy checks that a task was moved later within the window of spreading, and that nothing of it holds another time.
func movedBy(t *testing.T, info tocsin.Info, asked time.Time) time.Duration {
	t.Helper()
	by := info.ActionTime.Sub(asked)
	if by < 0 || by >= 30*time.Second || !info.DueTime.Equal(info.ActionTime) {
		t.Errorf("task %+v: asked for %s", info, asked)
	}
	return by
}

func TestEveryAddSpreadsTheTasksOfAWholeMinute(t *testing.T) {
	t.Parallel()
	db := session(t, devtest.DSN(t), "")
	for op, add := range adders {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			cfg := cluster(t)
			c, other := spreading(t, cfg), spreading(t, cfg)
			seen := map[time.Duration]bool{}
			for id := range uint64(10) {
				for _, a := range must[[]tocsin.Added](t)(add(t.Context(), c, db, asMany(op, closeOrder.New(2*id+1, order{}, tocsin.At(nine)), closeOrder.New(2*id+2, order{}, tocsin.At(nine)))...)) {
					seen[movedBy(t, get(t, c, a.JobID), nine)] = true
				}
			}
			if len(seen) < 8 { // of 10 or 20, in 30,000 milliseconds
				t.Errorf("moved by %v alone", seen)
			}
			keyed := asMany(op, closeOrder.New(100, order{}, tocsin.At(nine)).Dedup("close"))
			first := must[[]tocsin.Added](t)(add(t.Context(), c, db, keyed...))[0].JobID
			by := movedBy(t, get(t, c, first), nine)
			if change, err := c.Cancel(t.Context(), tocsin.ByID(first)); err != nil || change.Changed != 1 {
				t.Fatalf("%+v, %v", change, err)
			}
			again := must[[]tocsin.Added](t)(add(t.Context(), other, db, keyed...))[0].JobID
			if then := movedBy(t, get(t, c, again), nine); then != by || again == first {
				t.Errorf("moved by %s, and by another process by %s", by, then)
			}
			for task, want := range map[*tocsin.NewTask]time.Time{
				new(closeOrder.New(101, order{}, tocsin.At(nine.Add(time.Second)))): nine.Add(time.Second),
				new(remind.New(101, "", tocsin.At(nine))):                           nine,
			} {
				id := must[[]tocsin.Added](t)(add(t.Context(), c, db, *task))[0].JobID
				if info := get(t, c, id); !info.ActionTime.Equal(want) || !info.DueTime.Equal(want) {
					t.Errorf("%+v, want %s", info, want)
				}
			}
		})
	}
}

func TestARescheduleIsNotSpreadButAnAddThatReschedulesIs(t *testing.T) {
	t.Parallel()
	c := spreading(t, cluster(t))
	unique := func(at time.Time) tocsin.NewTask {
		return closeOrder.New(7, order{}, tocsin.At(at)).Unique("one", tocsin.While(tocsin.Pending, tocsin.Claimed)).OnConflict(tocsin.Reschedule)
	}
	id := add(t, c, unique(nine)).JobID
	by := movedBy(t, get(t, c, id), nine)
	if added := add(t, c, unique(nine.Add(time.Hour))); !added.Rescheduled || movedBy(t, get(t, c, id), nine.Add(time.Hour)) != by {
		t.Errorf("%+v: %+v", added, get(t, c, id))
	}
	if _, err := c.Reschedule(t.Context(), tocsin.ByID(id), tocsin.At(nine)); err != nil || !get(t, c, id).ActionTime.Equal(nine) {
		t.Errorf("%v: %+v", err, get(t, c, id))
	}
}
