package tocsin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/internal/jobid"
)

// bounded returns a function that adds n tasks of each of some biz types within limits; it counts those that are stored.
func bounded(inserts map[string]Inserts) (add func(ctx context.Context, n int, bizTypes ...string) error, stored *atomic.Int64) {
	stored = &atomic.Int64{}
	use := chain(Config{Inserts: inserts}.limited())
	add = func(ctx context.Context, n int, bizTypes ...string) error {
		call := &Adding{store: func(_ context.Context, tasks []NewTask) ([]Added, error) {
			stored.Add(int64(len(tasks)))
			return nil, nil
		}}
		for _, bizType := range bizTypes {
			for range n {
				call.Tasks = append(call.Tasks, Define[string](bizType).New(1, "", In(0)))
			}
		}
		_, err := use(ctx, call)
		return err
	}
	return add, stored
}

// over returns how long to wait, as a call over the limit says; -1: it is not over it.
func over(err error) time.Duration {
	if o, ok := errors.AsType[*InsertLimitError](err); ok {
		return o.After
	}
	return -1
}

func TestACallOverTheLimitFailsAtOnceAndSaysWhenToTryAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		add, stored := bounded(map[string]Inserts{"a": {Rate: 10, Burst: 5}, "b": {Rate: 2.5}})
		for i := range 5 {
			if err := add(t.Context(), 1, "a"); err != nil {
				t.Errorf("add %d: %v", i, err)
			}
		}
		for range 100 { // refused calls take nothing
			if err := add(t.Context(), 2, "a"); over(err) != 200*time.Millisecond {
				t.Fatal(err)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if err := add(t.Context(), 2, "a"); over(err) != 100*time.Millisecond || !strings.Contains(err.Error(), `biz type "a" is over the limit of inserts, 10 a second: nothing is stored, try again in 10`) {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond)
		if err := add(t.Context(), 2, "a"); err != nil {
			t.Errorf("after the time that it was told: %v", err)
		}
		if err := add(t.Context(), 3, "b"); err != nil {
			t.Errorf("a burst of the rate, rounded up: %v", err)
		}
		if stored.Load() != 10 {
			t.Errorf("%d stored", stored.Load())
		}
	})
}

func TestACallOfSeveralBizTypesTakesAllItsTokensOrNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		add, stored := bounded(map[string]Inserts{"a": {Rate: 0.1, Burst: 10}, "b": {Rate: 1}, "c": {Rate: 0.5}})
		if err := add(t.Context(), 1, "b", "c", "unlimited"); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := add(t.Context(), 1, "a", "b", "c"); over(err) != 2*time.Second {
				t.Fatalf("want the longer time of the two: %v", err)
			}
		}
		if err := add(t.Context(), 10, "a"); err != nil {
			t.Errorf("refused calls took tokens of the biz type that had some: %v", err)
		}
		if err := add(t.Context(), 1000, "unlimited"); err != nil || stored.Load() != 1013 {
			t.Errorf("%v, %d stored", err, stored.Load())
		}
	})
}

func TestACallWithMoreTasksThanTheBurstIsRefusedOrWaitsInPortions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		add, stored := bounded(map[string]Inserts{"a": {Rate: 10, Burst: 5}, "b": {Rate: 10, Burst: 5, Wait: true}})
		if err := add(t.Context(), 6, "a"); over(err) != 0 || err.Error() != `biz type "a": 6 tasks in one call, and the limit of inserts takes 5 at once: split them up` {
			t.Error(err)
		}
		begin := time.Now()
		if err := add(t.Context(), 25, "b"); err != nil || time.Since(begin).Round(time.Millisecond) != 2*time.Second || stored.Load() != 25 {
			t.Errorf("%v after %s, %d stored", err, time.Since(begin), stored.Load())
		}
	})
}

func TestACallWaitsUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		add, stored := bounded(map[string]Inserts{"a": {Rate: 1, Wait: true}})
		begin := time.Now()
		for range 3 {
			if err := add(t.Context(), 1, "a"); err != nil {
				t.Error(err)
			}
		}
		if waited := time.Since(begin).Round(time.Millisecond); waited != 2*time.Second || stored.Load() != 3 {
			t.Errorf("waited %s, %d stored", waited, stored.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if err := add(ctx, 5, "a"); over(err) != 5*time.Second || time.Since(begin).Round(time.Millisecond) != 2*time.Second {
			t.Errorf("a deadline that is too near: %v after %s", err, time.Since(begin))
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, stop)
		if err := add(ctx, 5, "a"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "nothing is stored") || stored.Load() != 3 {
			t.Errorf("%v, %d stored", err, stored.Load())
		}
	})
}

// Calls that are refused take nothing from those that are not, however many come at once.
func TestAFloodIsAddedAtTheRate(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		t.Run(fmt.Sprint("wait ", wait), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				add, stored := bounded(map[string]Inserts{"a": {Rate: 100, Burst: 20, Wait: wait}, "b": {Rate: 1}})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var group sync.WaitGroup
				for range 50 {
					group.Go(func() {
						for ctx.Err() == nil {
							_ = add(ctx, 1, "a")
							_ = add(ctx, 5, "a", "b")
							time.Sleep(3 * time.Millisecond)
						}
					})
				}
				group.Wait()
				t.Logf("%d stored", stored.Load())
				if n := stored.Load(); n > 20+1000+20 || !wait && n < 1000 {
					t.Errorf("%d tasks in 10 s: want 100 a second", n)
				}
			})
		})
	}
}

func TestWithoutLimitsAnAddIsNotWrapped(t *testing.T) {
	t.Parallel()
	for name, inserts := range map[string]map[string]Inserts{"nil": nil, "no rate": {"a": {}}} {
		if use := chain(Config{Inserts: inserts}.limited()); use != nil {
			t.Errorf("%s: adds go through a function", name)
		}
	}
}

func TestWrongLimitsAreRefused(t *testing.T) {
	t.Parallel()
	whole := Config{Layout: Layout{Databases: 1, Tables: 1}, Servers: []Server{{DSN: "root@tcp(h:1)/"}}}
	for want, inserts := range map[string]Inserts{
		"inserts of a: rate -1: use at most 1000000, or 0 for no limit":           {Rate: -1},
		"inserts of a: burst -5: use 1 to 1000000, or 0 for that of the rate":     {Rate: 1, Burst: -5},
		"inserts of a: burst needs a rate":                                        {Burst: 1},
		"inserts of a: spread 1h0m0.001s: use whole milliseconds, at most 1h0m0s": {Spread: time.Hour + time.Millisecond},
		"inserts of a: spread 1ns: use whole milliseconds, at most 1h0m0s":        {Spread: 1},
		"inserts of a: spread -1s: use whole milliseconds, at most 1h0m0s":        {Spread: -time.Second},
		"inserts of a: wait needs a rate":                                         {Wait: true},
	} {
		whole.Inserts = map[string]Inserts{"a": inserts}
		if err := whole.Validate(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v", inserts, err)
		}
	}
}

// drawRow draws a row whose time At is before or after a whole minute, or on it, and the window of a spread.
func drawRow(t *rapid.T) (r row, window time.Duration) {
	minute := time.Unix(60*rapid.Int64Range(-1e8, 1e9).Draw(t, "minute"), 0)
	at := minute.Add(time.Duration(rapid.SampledFrom([]int64{0, 0, 1, 999, 59_999}).Draw(t, "ms")) * time.Millisecond)
	r = row{id: JobID(rapid.Uint64().Draw(t, "job_id")), bizID: rapid.Uint64().Draw(t, "biz_id"), when: At(at)}
	if rapid.Bool().Draw(t, "has a key") {
		r.dedup = []byte(rapid.StringN(1, 16, MaxDedupKey).Draw(t, "key"))
	}
	return r, time.Duration(rapid.Int64Range(0, int64(maxSpread/time.Millisecond)).Draw(t, "window")) * time.Millisecond
}

func TestASpreadIsNeverEarlyAndBelowItsWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, window := drawRow(t)
		moved, asked := r.spread(window), r.when.at
		by := moved.at.Sub(asked)
		onMinute := asked.Second() == 0 && asked.Nanosecond() == 0
		if by < 0 || by > 0 && (by >= window || !onMinute) || by%time.Millisecond != 0 || !moved.set || !moved.absolute() || moved.at.Location() != time.UTC {
			t.Fatalf("%s moved by %s, window %s", asked, by, window)
		}
		after := row{id: r.id, bizID: r.bizID, dedup: r.dedup, when: In(time.Minute)}
		if after.spread(window) != after.when {
			t.Fatal("a delay was moved")
		}
	})
}

func TestASpreadIsTheSameForTheSameTask(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, window := drawRow(t)
		again := r
		if r.dedup != nil { // added again it has another job_id, and perhaps another minute
			again.id, again.when = r.id+1, At(r.when.at.Add(time.Hour))
		}
		if by, then := r.spread(window).at.Sub(r.when.at), again.spread(window).at.Sub(again.when.at); by != then {
			t.Fatalf("moved by %s, then by %s", by, then)
		}
	})
}

// Programs of all versions must agree on it, and nobody's times may move with an upgrade.
func TestASpreadStaysWhatItWas(t *testing.T) {
	t.Parallel()
	minute := At(time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC))
	for want, r := range map[string]row{
		"13.73s":  {id: 1, bizID: 42, when: minute},
		"27.498s": {id: 1, bizID: 42, dedup: []byte("close"), when: minute},
	} {
		if by := r.spread(30 * time.Second).at.Sub(minute.at); by.String() != want {
			t.Errorf("%+v is moved by %s, want %s", r, by, want)
		}
	}
}

func TestASpreadIsEven(t *testing.T) {
	t.Parallel()
	const tasks, parts, window = 30_000, 30, 30 * time.Second
	minute := At(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	var ids jobIDs
	for name, made := range map[string]func(i int) row{
		"job_ids of one moment": func(i int) row { return row{id: ids.next(jobid.Epoch.Add(time.Hour), i%4), when: minute} },
		"one key, many biz_ids": func(i int) row { return row{bizID: uint64(i), dedup: []byte("close"), when: minute} },
		"many keys, one biz_id": func(i int) row { return row{bizID: 7, dedup: fmt.Append(nil, i), when: minute} },
	} {
		var count [parts]int
		for i := range tasks {
			r := made(i)
			count[r.spread(window).at.Sub(minute.at)/(window/parts)]++
		}
		for part, n := range count { // 1000 each; the standard deviation is 31
			if n < 800 || n > 1200 {
				t.Errorf("%s: %d of %d tasks are in second %d of %d", name, n, tasks, part, parts)
			}
		}
	}
}
