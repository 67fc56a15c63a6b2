package dispatcher

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// batches is a batch Sink that records its calls.
type batches struct {
	answer func(tasks []tocsin.Info) []error

	mu   sync.Mutex
	seen [][]tocsin.Info
}

func (b *batches) Deliver(_ context.Context, tasks []tocsin.Info) []error {
	b.mu.Lock()
	b.seen = append(b.seen, append([]tocsin.Info(nil), tasks...))
	b.mu.Unlock()
	return b.answer(tasks)
}

// inBubble runs f with a dispatcher that delivers rows of p in batches of at most
// size.
func (b *batches) inBubble(t *testing.T, p biztype.Policy, size int, f func(*rig)) {
	t.Helper()
	inBubbleOf(t, []biztype.Policy{p}, nil, inBatches(b, size), func(r *rig) {
		f(r)
	})
}

// largest returns the size of the largest batch with a task that match accepts.
func (b *batches) largest(match func(tocsin.Info) bool) (most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, tasks := range b.seen {
		for _, task := range tasks {
			if match(task) {
				most = max(most, len(tasks))
			}
		}
	}
	return most
}

// together stores n rows that are due at the same moment, and offers them.
func (r *rig) together(n int) []tocsin.JobID {
	ids := make([]tocsin.JobID, n)
	for i := range ids {
		ids[i] = r.add(0, 1, time.Second)
	}
	return ids
}

func isRetried(task tocsin.Info) bool { return task.Attempts > 0 }

func isPoison(task tocsin.Info) bool { return task.BizID == 5 }

func anyPoison(tasks []tocsin.Info) bool {
	for _, task := range tasks {
		if isPoison(task) {
			return true
		}
	}
	return false
}

func TestATaskThatItsBatchFailsForKillsNoOther(t *testing.T) {
	eachWay(t, testATaskThatItsBatchFailsForKillsNoOther)
}

func testATaskThatItsBatchFailsForKillsNoOther(t *testing.T) {
	broken := errors.New("the batch is refused")
	for name, answer := range map[string]func([]tocsin.Info) []error{
		"an error for all":        func(tasks []tocsin.Info) []error { return same(broken, len(tasks)) },
		"a panic":                 func([]tocsin.Info) []error { panic("nil order") },
		"too few errors":          func([]tocsin.Info) []error { return []error{} },
		"none within the time":    func(tasks []tocsin.Info) []error { time.Sleep(3 * time.Second); return same(broken, len(tasks)) },
		"RetryIn for all":         func(tasks []tocsin.Info) []error { return same(tocsin.RetryIn(time.Second, broken), len(tasks)) },
		"an end of its goroutine": func([]tocsin.Info) []error { exit(); return nil },
	} {
		for _, attempts := range []int{2, 3, 16} {
			t.Run(name, func(t *testing.T) {
				b := &batches{answer: func(tasks []tocsin.Info) []error {
					if anyPoison(tasks) {
						return answer(tasks)
					}
					return make([]error, len(tasks))
				}}
				p := policy("order.close", 1)
				p.Attempts, p.Concurrency = attempts, 2
				b.inBubble(t, p, 12, func(r *rig) {
					ids := r.together(12)
					pass(5 * time.Minute)
					for i, id := range ids {
						switch row := r.store.row(id); {
						case i == 4 && (row.Status != tocsin.Dead || row.Attempts != attempts):
							t.Errorf("the culprit is %s after %d attempts, want dead after %d", row.Status, row.Attempts, attempts)
						case i != 4 && (row.Status != tocsin.Done || row.Attempts != 1):
							t.Errorf("task %d is %s after %d failed attempts, want done after 1", i, row.Status, row.Attempts)
						}
					}
					if first, again := b.largest(isPoison), b.largest(isRetried); first != 12 || again != 1 {
						t.Errorf("the culprit was in a batch of %d and retried tasks in one of %d, want 12 and 1", first, again)
					}
				})
			})
		}
	}
}

// exit ends the goroutine, as FailNow does in a test.
func exit() { runtime.Goexit() }

func TestErrorsOfSingleTasksAreNoFailingBatch(t *testing.T) {
	eachWay(t, testErrorsOfSingleTasksAreNoFailingBatch)
}

func testErrorsOfSingleTasksAreNoFailingBatch(t *testing.T) {
	b := &batches{answer: func(tasks []tocsin.Info) []error {
		errs := make([]error, len(tasks))
		for i, task := range tasks {
			if isPoison(task) {
				errs[i] = errors.New("no such order")
			}
		}
		return errs
	}}
	b.inBubble(t, policy("order.close", 1), 12, func(r *rig) {
		ids := r.together(12)
		pass(2 * time.Second)
		for i, id := range ids {
			if row := r.store.row(id); i != 4 && (row.Status != tocsin.Done || row.Attempts != 0) {
				t.Errorf("task %d is %s after %d failed attempts", i, row.Status, row.Attempts)
			}
		}
	})
}

func TestBatchesGrowBackAfterAnOutageOfTheirTarget(t *testing.T) {
	eachWay(t, testBatchesGrowBackAfterAnOutageOfTheirTarget)
}

func testBatchesGrowBackAfterAnOutageOfTheirTarget(t *testing.T) {
	var well bool
	b := &batches{}
	b.answer = func(tasks []tocsin.Info) []error {
		time.Sleep(50 * time.Millisecond)
		b.mu.Lock()
		defer b.mu.Unlock()
		if !well {
			return same(errors.New("no answer"), len(tasks))
		}
		return make([]error, len(tasks))
	}
	p := policy("order.close", 1)
	p.Concurrency = 4
	p.Ladder = []biztype.Duration{biztype.Duration(5 * time.Minute)}
	b.inBubble(t, p, 100, func(r *rig) {
		ids := r.together(20_000)
		pass(4 * time.Minute)
		for _, id := range ids {
			if row := r.store.row(id); row.Attempts != 1 {
				t.Fatalf("%s has %d attempts", id, row.Attempts)
			}
		}
		b.mu.Lock()
		well, b.seen = true, nil
		b.mu.Unlock()
		for _, id := range ids { // as the next peek does
			r.offer(id)
		}
		pass(90 * time.Second)
		for _, id := range ids {
			r.status(id, tocsin.Done)
		}
		t.Logf("20,000 retried tasks took %d deliveries", len(b.seen))
		if len(b.seen) > 700 {
			t.Errorf("20,000 retried tasks took %d deliveries, want less than 700", len(b.seen))
		}
	})
}

func TestATaskInTheSecondHalfOfItsAttemptsIsAlone(t *testing.T) {
	eachWay(t, testATaskInTheSecondHalfOfItsAttemptsIsAlone)
}

func testATaskInTheSecondHalfOfItsAttemptsIsAlone(t *testing.T) {
	b := &batches{answer: func(tasks []tocsin.Info) []error { return make([]error, len(tasks)) }}
	p := policy("order.close", 1)
	p.Concurrency, p.Attempts = 1, 10
	b.inBubble(t, p, 10, func(r *rig) {
		for i := range 400 {
			id := r.insert(0, 1, 0)
			r.store.change(id, func(row *store.Row) { row.Attempts = 1 + 4*(i%2) })
			r.offer(id)
		}
		pass(time.Minute)
		// Two that are not near their end may share a batch, if they were loaded one after the other.
		if late := b.largest(func(i tocsin.Info) bool { return i.Attempts == 5 }); late != 1 {
			t.Errorf("mixed: a batch of %d has a task in the second half of its attempts, want 1", late)
		}
		for range 400 {
			id := r.insert(0, 1, 0)
			r.store.change(id, func(row *store.Row) { row.Attempts = 1 })
			r.offer(id)
		}
		pass(time.Minute)
		if early := b.largest(func(i tocsin.Info) bool { return i.Attempts == 1 }); early != 10 {
			t.Errorf("none is near its end: batches of %d, want 10", early)
		}
	})
}

func TestATaskThatEndedAProcessIsAlone(t *testing.T) { eachWay(t, testATaskThatEndedAProcessIsAlone) }

func testATaskThatEndedAProcessIsAlone(t *testing.T) {
	b := &batches{answer: func(tasks []tocsin.Info) []error { return make([]error, len(tasks)) }}
	b.inBubble(t, policy("order.close", 1), 12, func(r *rig) {
		ids := make([]tocsin.JobID, 24)
		for i := range ids {
			ids[i] = r.insert(0, 1, 0)
			r.store.change(ids[i], func(row *store.Row) { row.Crashes = i % 2 })
		}
		for _, id := range ids {
			r.offer(id)
		}
		pass(time.Minute)
		for _, id := range ids {
			r.status(id, tocsin.Done)
		}
		crashed := b.largest(func(i tocsin.Info) bool { return i.Crashes > 0 })
		if well := b.largest(func(i tocsin.Info) bool { return i.Crashes == 0 }); crashed != 1 || well < 2 {
			t.Errorf("batches of %d with a task that ended a process and of %d without, want 1 and more", crashed, well)
		}
	})
}

// A target that no longer answers has few rows in hand, and few wait for it, however many slots it has and however much was loaded ahead before.
func TestATargetWithABoundHasFewRowsInHand(t *testing.T) {
	eachWay(t, testATargetWithABoundHasFewRowsInHand)
}

func testATargetWithABoundHasFewRowsInHand(t *testing.T) {
	const rows, slots, batch = 40, 8, 10
	var hangs chan struct{} // made in the bubble
	var quick, inHand, most atomic.Int32
	quick.Store(5000)
	g := &batches{answer: func(tasks []tocsin.Info) []error {
		n := int32(len(tasks))
		most.Store(max(most.Load(), inHand.Add(n)))
		defer inHand.Add(-n)
		if quick.Add(-n) < 0 {
			<-hangs
		}
		return make([]error, n)
	}}
	p := policy("order.close", 1)
	p.Concurrency, p.Timeout = slots, biztype.Duration(time.Minute)
	for name, bound := range map[string]int{"bounded": rows, "not bounded": 0} {
		t.Run(name, func(t *testing.T) {
			quick.Store(5000)
			most.Store(0)
			adapt := func(c *Config) {
				c.Target = func(biztype.Policy) (Target, bool) { return Target{Sink: g, Batch: batch, Rows: bound}, true }
			}
			inBubbleOf(t, []biztype.Policy{p}, nil, adapt, func(r *rig) {
				hangs = make(chan struct{})
				ids := r.dueNow(10_000)
				pass(10 * time.Second)
				st := r.Stats()
				t.Logf("%d in delivery, %d loaded", inHand.Load(), st.Loaded)
				if few := inHand.Load() <= rows && st.Loaded <= rows; few != (bound > 0) {
					t.Errorf("%d rows in delivery, %d loaded", inHand.Load(), st.Loaded)
				}
				close(hangs)
				pass(10 * time.Second)
				r.done(ids)
				if n := most.Load(); bound > 0 && n > rows {
					t.Errorf("%d rows were in delivery at once", n)
				}
			})
		})
	}
}
