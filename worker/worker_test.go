package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin"
)

func TestWhatAHandlerReturnsIsSettled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"nil":              {nil, `{"lease":"L1","do":"complete","output":"said"}`},
		"bury":             {tocsin.Bury(errors.New("no")), `{"lease":"L1","do":"bury","error":"no"}`},
		"retry in":         {fmt.Errorf("x: %w", tocsin.RetryIn(1500*time.Microsecond, errors.New("busy"))), `{"lease":"L1","do":"retry","error":"x: busy","delay_ms":2}`},
		"retry at once":    {tocsin.RetryIn(0, nil), `{"lease":"L1","do":"retry","error":"no reason given","delay_ms":0}`},
		"snooze":           {tocsin.Snooze(time.Minute), `{"lease":"L1","do":"snooze","delay_ms":60000}`},
		"snooze for ages":  {tocsin.Snooze(1 << 62), `{"lease":"L1","do":"snooze","delay_ms":315360000000}`},
		"an error":         {errors.New("a\xff"), `{"lease":"L1","do":"retry","error":"a\\xff"}`},
		"a long error":     {errors.New(strings.Repeat("é", 300)), `{"lease":"L1","do":"retry","error":"` + strings.Repeat("é", 255) + `"}`},
		"an error's panic": {(*problem)(nil), `{"lease":"L1","do":"retry","error":"the handler returned a *worker.problem that can't be read: runtime error: invalid memory address or nil pointer dereference"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := start(newFake(t), Config{Name: "w"}, func(ctx context.Context, task *tocsin.Task[string]) error {
					tocsin.Output(ctx, "said")
					if task.BizID != 42 || task.Header("tenant") != "a" || task.Payload != "1" {
						t.Errorf("%+v", task)
					}
					return c.err
				})
				r.add("1")
				synctest.Wait()
				_, all := r.seen("")
				if got, _ := json.Marshal(all); string(got) != "["+c.want+"]" {
					t.Errorf("settled %s\nwant [%s]", got, c.want)
				}
				r.end("")
			})
		})
	}
}

func TestAPanicAndAPayloadThatDoesNotDecodeAreFailedAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		w, err := New(Config{URLs: []string{"http://a/"}, Token: "toc_x", Client: &http.Client{Transport: f}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		Handle(w, tocsin.Define[int]("order.close").Version(2), func(context.Context, *tocsin.Task[int]) error { panic("oh") })
		f.add("1", "{", "2")
		f.due[2]["payload_version"] = 3
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(time.Second)
		_, all := f.seen("")
		got := map[string]string{}
		for _, o := range all {
			got[o.Lease] = o.Do + " " + o.Error
		}
		if len(got) != 3 || got["L1"] != "retry panic: oh" || !strings.HasPrefix(got["L{"], "retry payload of task") || got["L2"] != "snooze " {
			t.Errorf("%v", got)
		}
		if stop(); <-ended != nil {
			t.Error("Run failed")
		}
	})
}

// A handler that ends its goroutine, or panics with a value that has no text, has failed, and has a reason.
func TestAHandlerThatDoesNotReturnHasFailed(t *testing.T) {
	t.Parallel()
	for want, leave := range map[string]func(){
		"the handler ended its goroutine instead of returning": runtime.Goexit,
		"panic: oh":                             func() { panic(errors.New("oh")) },
		"panic: panic called with nil argument": func() { panic(nil) },
		"panic: {7}":                            func() { panic(struct{ n int }{7}) },
		"panic: a value of type *errors.errorString, without a text": func() { panic(errors.New("")) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			f.add("1")
			r := start(f, Config{}, func(context.Context, *tocsin.Task[string]) error {
				leave()
				return nil
			})
			time.Sleep(time.Second)
			if _, all := f.seen(""); len(all) != 1 || all[0].Do != "retry" || all[0].Error != want {
				t.Errorf("%+v, want %s", all, want)
			}
			if r.stop(); <-r.ended != nil {
				t.Error("Run failed")
			}
		})
	}
}

func TestSettlesAskForTheNextTasksAndNoMoreRunAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now, most, done atomic.Int64
		f := newFake(t)
		for i := range 50 {
			f.add(fmt.Sprint(i))
		}
		f.hook = func(call, _ string) int {
			if strings.HasPrefix(call, "settle") {
				time.Sleep(2 * time.Second) // other outcomes wait meanwhile, and go in one call
			}
			return 0
		}
		r := start(f, Config{AtOnce: 4}, func(_ context.Context, task *tocsin.Task[string]) error {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(time.Second)
			now.Add(-1)
			done.Add(1)
			return nil
		})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		r.end("")
		reserves, _ := r.seen("reserve")
		settles, all := r.seen("settle+")
		if most.Load() != 4 || done.Load() != 50 || len(all) != 50 || reserves > 15 || settles > 40 {
			t.Errorf("%d at once, %d done, %d settled in %d calls, %d reserves: %v", most.Load(), done.Load(), len(all), settles, reserves, f.calls)
		}
	})
}

func TestAnOutcomeIsToldUntilItIsStored(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(call string, n int) int{
		"answers are lost":               func(string, int) int { return -2 },
		"the API is away":                func(string, int) int { return -1 },
		"the API has no server":          func(string, int) int { return http.StatusServiceUnavailable },
		"the reserve in it is refused":   func(call string, _ int) int { return map[bool]int{true: 404}[strings.Contains(call, "+")] },
		"a proxy answers":                func(string, int) int { return http.StatusBadGateway },
		"it is called too often, once":   func(_ string, n int) int { return map[int]int{1: http.StatusTooManyRequests}[n] },
		"the token is not known for now": func(_ string, n int) int { return map[int]int{1: 401, 2: 401}[n] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls, handled atomic.Int64
				f := newFake(t)
				f.hook = func(call, _ string) int {
					if !strings.HasPrefix(call, "settle") || calls.Add(1) > 3 {
						return 0
					}
					return hook(call, int(calls.Load()))
				}
				r := start(f, Config{URLs: []string{"http://a", "http://b"}}, func(context.Context, *tocsin.Task[string]) error {
					handled.Add(1)
					return nil
				})
				r.add("1")
				time.Sleep(time.Minute)
				synctest.Wait()
				if _, all := r.seen(""); len(all) == 0 || all[len(all)-1].Do != "complete" || handled.Load() != 1 || len(r.w.held) != 0 || len(r.w.slots) > 16 {
					t.Errorf("%v, handled %d times, %d in hand", all, handled.Load(), len(r.w.held))
				}
				r.end("a call of the API failed")
				if strings.Contains(r.log.String(), "no effect") {
					t.Errorf("%s", r.log)
				}
			})
		})
	}
}

func TestATaskOfAServerThatIsAwayHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fates["L1"] = "problem"
		r := start(f, Config{AtOnce: 1}, func(context.Context, *tocsin.Task[string]) error { return nil })
		f.add("1", "2", "3")
		time.Sleep(time.Minute)
		if _, all := r.seen(""); len(all) != 2 || len(r.w.held) != 1 {
			t.Errorf("settled %v, in hand %d", all, len(r.w.held))
		}
		f.mu.Lock()
		f.fates["L1"] = "lost"
		f.mu.Unlock()
		time.Sleep(time.Minute)
		if _, all := r.seen(""); len(all) != 3 {
			t.Errorf("settled %v", all)
		}
		r.end("")
	})
}

func TestLeasesLastAsLongAsHandlersRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		r := start(f, Config{}, func(ctx context.Context, task *tocsin.Task[string]) error {
			select {
			case <-ctx.Done():
				t.Errorf("task %s: %v", task.Payload, context.Cause(ctx))
			case <-time.After(100 * time.Second):
			}
			return ctx.Err()
		})
		f.add("1", "2", "3")
		time.Sleep(2 * time.Minute)
		r.end("")
		if n, all := r.seen("extend"); n < 8 || n > 10 || len(all) != 3 {
			t.Errorf("%d extends, settled %v", n, all)
		}
	})
}

func TestAHandlerIsToldThatItsTaskIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate string
		away bool
		err  error // that the handler returns
		want error // the cause
		does string
		log  string
	}{
		"cancelled":                   {fate: "cancel_wanted", err: errors.New("x"), want: tocsin.ErrCancelled},
		"cancelled, buried":           {fate: "cancel_wanted", err: tocsin.Bury(errors.New("x")), want: tocsin.ErrCancelled},
		"lost":                        {fate: "lost", err: errors.New("x"), want: ErrLost},
		"lost, and done all the same": {fate: "lost", want: ErrLost, does: "complete", log: "the outcome of a task has no effect"},
		"no API, and the lease ends":  {away: true, want: ErrLost, does: "complete", log: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				begun := time.Now()
				f.hook = func(call, _ string) int {
					if c.away && call == "extend" {
						return -1
					}
					return 0
				}
				f.fates["L1"] = c.fate
				r := start(f, Config{}, func(ctx context.Context, _ *tocsin.Task[string]) error {
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, c.want) {
						t.Errorf("cause %v, want %v", cause, c.want)
					}
					if took := time.Since(begun); c.away && took != leaseMS*time.Millisecond {
						t.Errorf("it ended after %s", took)
					}
					return c.err
				})
				f.add("1")
				time.Sleep(time.Minute)
				_, all := r.seen("")
				if c.does == "" && len(all) != 0 || c.does != "" && (len(all) != 1 || all[0].Do != c.does) || len(r.w.held) != 0 {
					t.Errorf("settled %v, want %q", all, c.does)
				}
				r.end(c.log)
			})
		})
	}
}

func TestTheEndOfRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		works  time.Duration // of the handler; 0: until its context ends
		err    error
		away   bool
		takes  time.Duration
		settle string
		log    string
	}{
		"what is in hand is completed":         {works: 10 * time.Second, takes: 10 * time.Second, settle: "complete"},
		"a failure is a failed attempt":        {works: 10 * time.Second, err: errors.New("x"), takes: 10 * time.Second, settle: "retry"},
		"at the drain time-out it is released": {err: errors.New("x"), takes: 20 * time.Second, settle: "release"},
		"a handler may have another idea":      {err: tocsin.Bury(errors.New("x")), takes: 20 * time.Second, settle: "bury"},
		"no API":                               {away: true, takes: 25 * time.Second, log: "could not be stored"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				r := start(f, Config{DrainTimeout: 20 * time.Second}, func(ctx context.Context, _ *tocsin.Task[string]) error {
					if c.works > 0 {
						time.Sleep(c.works)
						return c.err
					}
					<-ctx.Done()
					return c.err
				})
				f.add("1")
				synctest.Wait()
				f.mu.Lock()
				f.hook = func(string, string) int { return map[bool]int{true: -1}[c.away] }
				f.mu.Unlock()
				before, _ := r.seen("reserve")
				begun := time.Now()
				r.end(c.log)
				if took := time.Since(begun); took != c.takes {
					t.Errorf("Run ended after %s, want %s", took, c.takes)
				}
				after, all := r.seen("reserve")
				if c.settle == "" && len(all) != 0 || c.settle != "" && (len(all) != 1 || all[0].Do != c.settle) || after != before {
					t.Errorf("settled %v; %d reserves, then %d", all, before, after)
				}
			})
		})
	}
}

func TestTheFirstCallThatIsRefusedEndsRunAndLaterOnesDoNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.hook = func(string, string) int { return http.StatusNotFound }
		r := start(f, Config{}, func(context.Context, *tocsin.Task[string]) error { return nil })
		if err := <-r.ended; err == nil || err.Error() != "worker: the API answered 404 Not Found: as the test wants it" {
			t.Errorf("%v", err)
		}
		f.hook = nil
		r = start(f, Config{URLs: []string{"http://a", "http://b"}}, func(context.Context, *tocsin.Task[string]) error { return nil })
		synctest.Wait()
		f.mu.Lock()
		f.hook = func(_, host string) int { return map[bool]int{true: http.StatusUnauthorized}[host == "a"] }
		f.mu.Unlock()
		time.Sleep(time.Minute)
		f.add("1")
		synctest.Wait()
		if _, all := r.seen(""); len(all) != 1 {
			t.Errorf("%v", all)
		}
		r.stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

func TestMistakesOfTheProgram(t *testing.T) {
	t.Parallel()
	ok := Config{URLs: []string{"http://a"}}
	for name, spoil := range map[string]func(*Config){
		"no URL":              func(c *Config) { c.URLs = nil },
		"no scheme":           func(c *Config) { c.URLs = []string{"http://a", "b:8481"} },
		"a batch of 101":      func(c *Config) { c.Batch = 101 },
		"below 0":             func(c *Config) { c.AtOnce = -1 },
		"a client's time-out": func(c *Config) { c.Client = &http.Client{Timeout: time.Minute} },
	} {
		cfg := ok
		spoil(&cfg)
		if _, err := New(cfg); err == nil || !strings.HasPrefix(err.Error(), "worker: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	w, err := New(ok)
	if err != nil {
		t.Fatal(err)
	}
	handler := func(context.Context, *tocsin.Task[string]) error { return nil }
	Handle(w, orderClose, handler)
	for _, h := range []func(context.Context, *tocsin.Task[string]) error{handler, nil} {
		func() {
			defer func() {
				if p := recover(); p == nil {
					t.Error("no panic")
				}
			}()
			Handle(w, orderClose, h)
		}()
	}
}
