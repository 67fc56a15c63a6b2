package tocsin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ListStatement is a statement of ListPage and its parameters.
type ListStatement struct {
	Text string
	Args []any
}

// ListStatements returns the statements that read a page after a place, in order.
func ListStatements(l Layout, bizID uint64, after *ListPlace, types []uint64, limit int) (all []ListStatement) {
	for _, s := range after.spans(types) {
		all = append(all, ListStatement{l.names().Render(listSQL(s, limit, false), l.TableOf(bizID)), append([]any{bizID}, s.args...)})
	}
	return all
}

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

// A call that can't have what it waits for takes nothing of other biz types, whether that is known at once or later.
func TestACallThatWaitsInVainTakesNothingOfOtherBizTypes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		add, _ := bounded(map[string]Inserts{"a": {Rate: 0.1, Burst: 10}, "b": {Rate: 1, Wait: true}})
		if err := add(t.Context(), 1, "b"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := add(ctx, 5, "a", "b"); over(err) != 5*time.Second {
			t.Error(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, stop)
		if err := add(ctx, 5, "a", "b"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := add(t.Context(), 10, "a"); err != nil {
			t.Error(err)
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

func TestPayloads(t *testing.T) {
	t.Parallel()
	type name string
	type point struct{ X, Y int }
	for what, c := range map[string]struct{ got, want string }{
		"a string goes as it is":             {Define[string]("a").New(1, `say "hi"`, In(0)).task.Payload, `say "hi"`},
		"and so does a named one":            {Define[name]("a").New(1, "ü", In(0)).task.Payload, "ü"},
		"a struct goes as JSON":              {Define[point]("a").New(1, point{1, 2}, In(0)).task.Payload, `{"X":1,"Y":2}`},
		"JSON for people, not for browsers":  {Define[[]string]("a").New(1, []string{"a<b&c"}, In(0)).task.Payload, `["a<b&c"]`},
		"a nil pointer is null":              {Define[*point]("a").New(1, nil, In(0)).task.Payload, "null"},
		"what does not marshal has no bytes": {Define[float64]("a").New(1, math.NaN(), In(0)).task.Payload, ""},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", what, c.got, c.want)
		}
	}
}

func TestDecodeGivesThePayloadBack(t *testing.T) {
	t.Parallel()
	type name string
	named, err := Define[name]("a").Decode(Info{JobID: 5, Payload: "ü"})
	if err != nil || named.Payload != "ü" || named.JobID != 5 {
		t.Errorf("got %+v, %v", named, err)
	}
	list, err := Define[[]int]("a").Decode(Info{Payload: "[1,2]"})
	if err != nil || len(list.Payload) != 2 {
		t.Errorf("got %+v, %v", list, err)
	}
	_, err = Define[[]int]("a").Decode(Info{JobID: 5, Payload: "hello"})
	if err == nil || !strings.Contains(err.Error(), "payload of task 5 is not a []int") {
		t.Errorf("got %v", err)
	}
}
