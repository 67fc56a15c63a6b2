package tocsin_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestAddStoresTheTaskAsAsked(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	at := time.Now().Add(day).Truncate(time.Millisecond).Add(time.Microsecond) // is rounded up
	added := add(t, c, closeOrder.New(math.MaxUint64, order{"A-1", 995}, tocsin.At(at)).Dedup("k\x00\xff"))
	got := get(t, c, added.JobID)
	want := tocsin.Info{
		JobID: added.JobID, BizID: math.MaxUint64, BizType: "order.close", Status: tocsin.Pending,
		ActionTime: at.UTC().Add(999 * time.Microsecond), DueTime: at.UTC().Add(999 * time.Microsecond),
		DedupKey: "k\x00\xff", Payload: `{"No":"A-1","Cent":995}`,
		Created: got.Created, Modified: got.Created, Table: c.Layout().Table(c.Layout().TableOf(math.MaxUint64)),
	}
	want.ActionTime, want.DueTime = want.ActionTime.Round(0), want.DueTime.Round(0)
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if age := time.Since(got.Created); age < -time.Minute || age > time.Minute {
		t.Errorf("created %s ago", age)
	}
}

func TestAddInCountsByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	got := get(t, c, add(t, c, remind.New(5, "x", tocsin.In(30*time.Minute+time.Microsecond))).JobID)
	if want := got.Created.Add(30*time.Minute + time.Millisecond); !got.ActionTime.Equal(want) || !got.DueTime.Equal(want) {
		t.Errorf("action %s, due %s, want %s", got.ActionTime, got.DueTime, want)
	}
}

func TestAPastTimeIsDueAtOnceAndKeptAsAsked(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	asked := time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC)
	got := get(t, c, add(t, c, remind.New(5, "x", tocsin.At(asked))).JobID)
	if !got.ActionTime.Equal(got.Created) || !got.DueTime.Equal(asked) {
		t.Errorf("created %s, action %s, due %s", got.Created, got.ActionTime, got.DueTime)
	}
}

func TestTheBellRingsForNearTasksAlone(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t)) // the horizon is 10 s
	db := session(t, devtest.DSN(t), "")
	for name, want := range map[string]struct {
		when tocsin.When
		n    int
	}{
		"in the past":                            {tocsin.At(time.Unix(1, 0)), 1},
		"within the horizon":                     {tocsin.In(time.Second), 1},
		"beyond it, but the database has to ask": {tocsin.In(time.Minute), 0},
		"far away":                               {tocsin.In(day), 0},
	} {
		added := add(t, c, remind.New(9, "x", want.when))
		many := must[[]tocsin.Added](t)(c.AddMany(t.Context(), []tocsin.NewTask{remind.New(9, "x", want.when)}))
		if n := bells(t, c, db, added.JobID); n != want.n {
			t.Errorf("%s: %d rings", name, n)
		}
		if n := bells(t, c, db, many[0].JobID); n != want.n {
			t.Errorf("%s, by AddMany: %d rings", name, n)
		}
	}
}

func TestOneDedupKeyIsOneRowForHundredGoroutines(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]tocsin.When{"near": tocsin.In(0), "far": tocsin.In(day)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := open(t, cluster(t))
			var mu sync.Mutex
			ids, fresh := map[tocsin.JobID]int{}, 0
			var group sync.WaitGroup
			for range 100 {
				group.Go(func() {
					a, err := c.Add(t.Context(), remind.New(77, "x", when).Dedup("once"))
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					if ids[a.JobID]++; !a.Existing {
						fresh++
					}
				})
			}
			group.Wait()
			if list := must[[]tocsin.Info](t)(c.List(t.Context(), 77)); len(list) != 1 || len(ids) != 1 || fresh != 1 {
				t.Errorf("%d rows, %d ids, %d of them new", len(list), len(ids), fresh)
			}
		})
	}
}

func TestDedupKeysAreComparedAsBytes(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	for _, key := range []string{"a", "A", "a ", "ä", "ä"[:1], strings.Repeat("k", tocsin.MaxDedupKey)} {
		if a := add(t, c, remind.New(3, "x", tocsin.In(day)).Dedup(key)); a.Existing {
			t.Errorf("%q is taken", key)
		}
	}
	for _, key := range []string{"a", "A", "a "} {
		if a := add(t, c, remind.New(3, "x", tocsin.In(day)).Dedup(key)); !a.Existing {
			t.Errorf("%q is not taken", key)
		}
	}
	if a := add(t, c, closeOrder.New(3, order{}, tocsin.In(day)).Dedup("a")); a.Existing {
		t.Error("a key of another biz type is taken")
	}
}

func TestTheExistingTaskComesWithItsStatus(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	task := remind.New(3, "x", tocsin.In(day)).Dedup("k")
	first := add(t, c, task)
	for _, status := range []tocsin.Status{tocsin.Pending, tocsin.Claimed, tocsin.Done, tocsin.Dead} {
		exec(t, db, "UPDATE "+cfg.Layout.Table(first.JobID.Table())+" SET status = ?", uint8(status))
		if a := add(t, c, task); a.JobID != first.JobID || !a.Existing || a.Status != status {
			t.Errorf("%s: %+v", status, a)
		}
	}
	exec(t, db, "UPDATE "+cfg.Layout.Table(first.JobID.Table())+" SET status = 0")
	must[tocsin.Change](t)(c.Cancel(t.Context(), tocsin.ByID(first.JobID)))
	if a := add(t, c, task); a.JobID == first.JobID || a.Existing {
		t.Errorf("after a cancel: %+v", a)
	}
}

func TestAttributesTravelUnchanged(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	for _, text := range []string{"", "plain", "'; DROP TABLE x -- ?", `\' \" \\ \0`, "\x00\x1a\r\n\t", "äöü 中文 🔔", strings.Repeat("🔔", tocsin.MaxPayload)} {
		one := add(t, c, remind.New(4, text, tocsin.In(day)))
		many := must[[]tocsin.Added](t)(c.AddMany(t.Context(), []tocsin.NewTask{remind.New(4, text, tocsin.In(day))}))
		for _, id := range []tocsin.JobID{one.JobID, many[0].JobID} {
			if got := get(t, c, id); got.Payload != text {
				t.Errorf("%.20q came back as %.20q", text, got.Payload)
			}
		}
	}
}

func TestAddToARetiredDatabaseStoresNothing(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	exec(t, db, "UPDATE "+cfg.Layout.Database(0)+".layout SET state = 'retired'")
	bizID := bizOn(cfg.Layout, 0, 1)
	for name, when := range map[string]tocsin.When{"near": tocsin.In(0), "far": tocsin.In(day)} {
		if _, err := c.Add(t.Context(), remind.New(bizID, "x", when)); !errors.Is(err, tocsin.ErrLayout) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := c.AddMany(t.Context(), []tocsin.NewTask{remind.New(bizID, "x", tocsin.In(0))})
	if !errors.Is(err, tocsin.ErrLayout) {
		t.Errorf("AddMany: %v", err)
	}
	if list := must[[]tocsin.Info](t)(c.List(t.Context(), bizID)); len(list) != 0 {
		t.Errorf("%d are stored", len(list))
	}
}

func TestAnEndedContextStoresNothingAndIsNoDoubt(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Add(ctx, remind.New(4, "x", tocsin.In(0)))
	if !errors.Is(err, context.Canceled) || errors.Is(err, tocsin.ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	if list := must[[]tocsin.Info](t)(c.List(t.Context(), 4)); len(list) != 0 {
		t.Errorf("%d are stored", len(list))
	}
}
