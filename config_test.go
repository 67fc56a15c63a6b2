package tocsin_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/ids"
)

func TestTableNumberIsTheServersOwnCRC32(t *testing.T) {
	t.Parallel()
	db := session(t, devtest.DSN(t), "")
	ids := []uint64{1, 9, 10, 99, 4294967295, 4294967296, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64}
	for id := uint64(3); id < 1<<63; id *= 3 {
		ids = append(ids, id)
	}
	for _, l := range []tocsin.Layout{{Databases: 8, Tables: 1024}, {Databases: 8, Tables: 16}, {Databases: 1, Tables: 1}, {Databases: 3, Tables: 7}} {
		for _, id := range ids {
			if want := count(t, db, "SELECT CRC32(?) % ?", id, l.Total()); l.TableOf(id) != want {
				t.Errorf("layout %s, biz_id %d: table %d, the server says %d", l, id, l.TableOf(id), want)
			}
		}
	}
}

func TestTableNames(t *testing.T) {
	t.Parallel()
	l := tocsin.Layout{Databases: 8, Tables: 1024}
	for number, want := range map[int]string{0: "toc_0.task_0000", 1023: "toc_0.task_1023", 1024: "toc_1.task_0000", 8191: "toc_7.task_1023"} {
		if got := l.Table(number); got != want {
			t.Errorf("table %d: %s, want %s", number, got, want)
		}
	}
}

func TestLayoutRefuses(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]tocsin.Layout{
		"no database":                   {Databases: 0, Tables: 1},
		"no table":                      {Databases: 1, Tables: 0},
		"more tables than a job_id can": {Databases: 8, Tables: 1025},
		"numbers whose product is low":  {Databases: math.MaxInt, Tables: 2},
		"a prefix that is not a name":   {Databases: 1, Tables: 1, Prefix: "a`b"},
	} {
		if l.Validate() == nil {
			t.Errorf("%s: %s is accepted", name, l)
		}
	}
}

func FuzzTableOf(f *testing.F) {
	f.Add(uint64(1), uint16(8), uint16(1024))
	f.Add(uint64(math.MaxUint64), uint16(1), uint16(1))
	f.Fuzz(func(t *testing.T, bizID uint64, databases, tables uint16) {
		l := tocsin.Layout{Databases: int(databases), Tables: int(tables)}
		if l.Validate() != nil {
			return
		}
		n := l.TableOf(bizID)
		if n < 0 || n >= l.Total() {
			t.Fatalf("biz_id %d: table %d of layout %s", bizID, n, l)
		}
		if name := l.Table(n); !strings.HasPrefix(name, l.Database(l.DatabaseOf(n))+".") {
			t.Fatalf("table %d is %s, its database %s", n, name, l.Database(l.DatabaseOf(n)))
		}
	})
}

func TestEveryTableHasItsOwnName(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := tocsin.Layout{Databases: rapid.IntRange(1, 16).Draw(t, "databases"), Tables: rapid.IntRange(1, 64).Draw(t, "tables")}
		seen := map[string]bool{}
		for n := range l.Total() {
			seen[l.Table(n)] = true
		}
		if len(seen) != l.Total() {
			t.Fatalf("layout %s has %d names", l, len(seen))
		}
	})
}

func FuzzJobID(f *testing.F) {
	f.Add("1")
	f.Add("9223372036854775807")
	f.Add("0")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := tocsin.ParseJobID(text)
		if err != nil {
			if id != 0 {
				t.Fatalf("%q: %d beside an error", text, id)
			}
			return
		}
		if again, err := tocsin.ParseJobID(id.String()); again != id || err != nil {
			t.Fatalf("%d reads back as %d, %v", id, again, err)
		}
		var decoded tocsin.JobID
		b := must[[]byte](t)(json.Marshal(id))
		if err := json.Unmarshal(b, &decoded); decoded != id || err != nil {
			t.Fatalf("%s reads back as %d, %v", b, decoded, err)
		}
		if id.Table() < 0 || id.Table() >= tocsin.MaxTables || id.Time().Before(tocsin.Epoch) {
			t.Fatalf("%d: table %d, time %s", id, id.Table(), id.Time())
		}
	})
}

// overLimit returns the error of a call that is over the limit of inserts of order.close; nil: it is not.
func overLimit(err error) *tocsin.InsertLimitError {
	over, _ := errors.AsType[*tocsin.InsertLimitError](err)
	if over == nil || over.BizType != "order.close" || over.After <= 0 {
		return nil
	}
	return over
}

func TestEveryAddIsLimitedByItsNumberOfTasks(t *testing.T) {
	t.Parallel()
	db := session(t, devtest.DSN(t), "")
	for op, add := range adders {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			cfg := cluster(t)
			tasks := asMany(op, closeOrder.New(7, order{}, tocsin.In(time.Hour)), closeOrder.New(8, order{}, tocsin.In(time.Hour)))
			cfg.Inserts = map[string]tocsin.Inserts{"order.close": {Rate: 0.001, Burst: 2*len(tasks) - 1}}
			c := open(t, cfg)
			if _, err := add(t.Context(), c, db, tasks...); err != nil {
				t.Fatal(err)
			}
			added, err := add(t.Context(), c, db, tasks...)
			if over := overLimit(err); over == nil || over.After < 900*time.Second || over.After > 1000*time.Second || len(added) != len(tasks) {
				t.Errorf("added %+v: %v", added, err)
			}
			for i, a := range added {
				if infos, err := c.List(t.Context(), tasks[i].BizID()); err != nil || len(infos) != 1 || a.JobID != 0 || len(tasks) > 1 && overLimit(a.Err) == nil {
					t.Errorf("added %+v, stored %+v, %v", a, infos, err)
				}
			}
			if _, err := add(t.Context(), c, db, asMany(op, remind.New(7, "", tocsin.In(time.Hour)), remind.New(8, "", tocsin.In(time.Hour)))...); err != nil {
				t.Errorf("another biz type: %v", err)
			}
		})
	}
}

func TestTasksForAnOutboxAreLimited(t *testing.T) {
	t.Parallel()
	cfg := withOutbox(t, cluster(t))
	cfg.Inserts = map[string]tocsin.Inserts{"order.close": {Rate: 0.001, Burst: 4}}
	c := open(t, cfg)
	own := session(t, devtest.DSN(t), "")
	tx := begin(t, own)
	other := c.OutboxTx(func(ctx context.Context, statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
	task := closeOrder.New(7, order{}, tocsin.In(time.Hour))
	calls := []func() error{
		func() error { _, err := c.AddTx(t.Context(), tx, task); return err },
		func() error { _, err := c.AddManyTx(t.Context(), tx, []tocsin.NewTask{task}); return err },
		func() error { _, err := other.Add(t.Context(), task); return err },
		func() error { _, err := other.AddMany(t.Context(), []tocsin.NewTask{task}); return err },
	}
	for i, call := range append(calls, calls...) {
		if err := call(); (overLimit(err) != nil) != (i >= 4) || err != nil && i < 4 {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, own, "SELECT COUNT(*) FROM "+cfg.Outbox.Table); n != 4 {
		t.Errorf("%d rows", n)
	}
}

// A call in a transaction waits as others do, and the transaction is usable after it.
func TestAddsWaitForTheirLimit(t *testing.T) {
	t.Parallel()
	db := session(t, devtest.DSN(t), "")
	for op, add := range adders {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			cfg := cluster(t)
			cfg.Inserts = map[string]tocsin.Inserts{"order.close": {Rate: 20, Burst: 1, Wait: true}}
			c := open(t, cfg)
			begin := time.Now()
			tasks := asMany(op, closeOrder.New(7, order{}, tocsin.In(time.Hour)), closeOrder.New(7, order{}, tocsin.In(time.Hour)))
			for range 3 {
				must[[]tocsin.Added](t)(add(t.Context(), c, db, tasks...))
			}
			if waits := time.Duration(3*len(tasks)-1) * 50 * time.Millisecond; time.Since(begin) < waits {
				t.Errorf("%d tasks took %s", 3*len(tasks), time.Since(begin))
			}
			if infos, err := c.List(t.Context(), 7); err != nil || len(infos) != 3*len(tasks) {
				t.Errorf("stored %d, %v", len(infos), err)
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

// BenchmarkID measures what each task pays for its id and for the way to its
// table.
func BenchmarkID(b *testing.B) {
	layout := tocsin.Layout{Databases: 8, Tables: 1024}
	var maker ids.Maker
	now := time.Now()
	text := tocsin.JobID(maker.Next(now, 8191)).String()
	for name, do := range map[string]func(i uint64) int{
		"next":            func(i uint64) int { return int(maker.Next(now, int(i%8192))) },
		"table of biz_id": func(i uint64) int { return layout.TableOf(i) },
		"table's name":    func(i uint64) int { return len(layout.Table(int(i % 8192))) },
		"to text":         func(i uint64) int { return len(tocsin.JobID(i << 22).String()) },
		"from text": func(uint64) int {
			id, err := tocsin.ParseJobID(text)
			if err != nil {
				b.Fatal(err)
			}
			return int(id)
		},
		"to JSON": func(i uint64) int {
			text, _ := tocsin.JobID(i << 22).MarshalJSON()
			return len(text)
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			sum := 0
			for i := uint64(0); b.Loop(); i++ {
				sum += do(i)
			}
			if sum == 0 {
				b.Error("nothing was done")
			}
		})
	}
}
