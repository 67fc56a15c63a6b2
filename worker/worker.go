// Package worker delivers tasks in Go programs that can't run a node: they reach the HTTP API of one, and neither MySQL nor etcd. It is the client
// of the API's pull operations, for biz types whose policy has pull.
//
//	reserve  a call asks for as many tasks as handlers are free, and waits for them in the API
//	extend   a task's lease is extended at each third of its time, until its outcome is stored
//	settle   outcomes that wait go in one call, which asks for the next tasks too. What failed is repeated: the API knows an outcome that it has
//	lost     a task was cancelled, or its lease ran out: the handler's context ends
//
// While no API answers, handlers go on until their leases end. If the process dies, its tasks are delivered again 5 s after the ends of their leases,
// as after a failed attempt. A task may come more than once, like every delivery of Tocsin.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// ErrLost is the cause of a handler's context whose lease ran out, or whose task somebody else ended. A success counts all the same, unless the
// task was changed; a failure has no effect.
var ErrLost = errors.New("the lease of the task was lost")

const (
	maxBatch     = 100                    // tasks of a reserve, outcomes of a settle, leases of an extend
	pollWait     = 25 * time.Second       // of a reserve, in the API
	nextWait     = 100 * time.Millisecond // of one with outcomes, which other outcomes wait for: the least that the API waits
	callWithin   = 10 * time.Second       // bounds a call, beside pollWait
	settleWithin = 5 * time.Second        // after the drain time-out
)

// Config is what a Worker needs.
type Config struct {
	URLs         []string      // of the HTTP API of nodes, such as https://tocsin-1:8481. One is used as long as it answers
	Token        string        // with the scope work; "": the API has no tokens
	Name         string        // of this program, for logs of nodes and runs, at most 64 characters; "": none
	AtOnce       int           // handlers that run at once, 1 or more; 0: 16
	Batch        int           // tasks that a call asks for at most, 1 to 100; 0: 100
	DrainTimeout time.Duration // for handlers when Run's context ends; settling may take 5s more; 0: 30s
	Client       *http.Client  // its Timeout must be 0, as calls wait for tasks; nil: http.DefaultClient
	Logger       *slog.Logger  // nil: warnings and errors go to slog.Default()
}

// Worker delivers tasks to handlers. Make it with New, call Handle, and then Run once.
type Worker struct {
	cfg      Config
	handlers map[string]func(context.Context, tocsin.Info) error
	limit    loop.LogLimit
	url      atomic.Uint64  // place of the URL in use. A call that fails counts it on
	slots    chan struct{}  // one a handler: filled from the call that asks for a task until the first that settles it
	settles  chan *held     // tasks whose handler has returned
	hands    sync.WaitGroup // a goroutine for each task in hand

	mu   sync.Mutex
	held map[string]*held // by lease
}

// New makes a Worker. It connects to nothing.
func New(cfg Config) (*Worker, error) {
	if len(cfg.URLs) == 0 || slices.ContainsFunc(cfg.URLs, notHTTP) {
		return nil, fmt.Errorf("worker: URLs %q: want one or more such as https://tocsin-1:8481", cfg.URLs)
	}
	if cfg.AtOnce < 0 || cfg.Batch < 0 || cfg.Batch > maxBatch || cfg.Client != nil && cfg.Client.Timeout != 0 {
		return nil, errors.New("worker: want nothing below 0, a batch of at most 100, and no time-out of the HTTP client")
	}
	if err := client.CheckDuration("worker: drain time-out", cfg.DrainTimeout); err != nil {
		return nil, err
	}
	cfg.AtOnce, cfg.Batch, cfg.DrainTimeout = cmp.Or(cfg.AtOnce, 16), cmp.Or(cfg.Batch, maxBatch), cmp.Or(cfg.DrainTimeout, 30*time.Second)
	cfg.Client, cfg.Logger = cmp.Or(cfg.Client, http.DefaultClient), loop.Logger(cfg.Logger)
	w := &Worker{
		cfg: cfg, handlers: map[string]func(context.Context, tocsin.Info) error{}, held: map[string]*held{},
		slots: make(chan struct{}, cfg.AtOnce), settles: make(chan *held, maxBatch),
	}
	w.url.Store(rand.Uint64N(uint64(len(cfg.URLs)))) // so that workers with one config divide themselves
	return w, nil
}

func notHTTP(text string) bool {
	u, err := url.Parse(text)
	return err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"
}

// Handle registers the handler of one biz type, before Run. It is called concurrently. It returns what handlers of a node return: nil completes the
// task, tocsin.Bury, tocsin.RetryIn and tocsin.Snooze ask for another outcome, and any other error, a panic, or a payload that does not decode
// is retried by the policy. A task with a payload of a later version than that of biz is snoozed for 15 s. A policy of biz is not stored.
//
// The handler's context has no deadline. It ends with the cause tocsin.ErrCancelled if the task was cancelled or rescheduled, with ErrLost, and at the
// drain time-out; an error after that time-out is no failed attempt. tocsin.Output is kept of attempts that succeed.
// Handle panics if the handler is nil, or the second one of its type.
func Handle[T any](w *Worker, biz tocsin.BizType[T], handler func(context.Context, *tocsin.Task[T]) error) {
	if handler == nil || w.handlers[biz.Name()] != nil {
		panic(fmt.Sprintf("worker: biz type %q: the handler is nil, or the second one", biz.Name()))
	}
	w.handlers[biz.Name()] = func(ctx context.Context, info tocsin.Info) error {
		if info.PayloadVersion > max(biz.PayloadVersion(), 1) {
			return tocsin.Snooze(15 * time.Second)
		}
		task, err := biz.Decode(info)
		if err != nil {
			return err
		}
		return handler(ctx, &task)
	}
}

// Run delivers tasks until ctx ends. Then it asks for no more, waits for the handlers, stores their outcomes, and returns nil. A handler that goes on
// after its context has ended keeps Run from returning.
//
// Run returns an error if the API refuses the first call, as for a token that is not valid, or a biz type that is unknown or not pulled.
// Later failures are logged, and tried again.
func (w *Worker) Run(ctx context.Context) error {
	telling, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	var loops sync.WaitGroup
	loops.Go(func() { w.extendAll(telling) })
	loops.Go(func() { w.settleAll(telling, ctx) })
	err := w.reserveAll(ctx, telling)
	cut := time.AfterFunc(w.cfg.DrainTimeout, w.cutOff)
	last := time.AfterFunc(w.cfg.DrainTimeout+settleWithin, giveUp)
	w.hands.Wait()
	cut.Stop()
	last.Stop()
	giveUp()
	close(w.settles)
	loops.Wait()
	return err
}

// reserveAll asks for tasks as long as handlers are free.
func (w *Worker) reserveAll(ctx, telling context.Context) error {
	waits := newWaits()
	for answered := false; ; {
		n := w.take(ctx)
		if n == 0 {
			return nil
		}
		a, err := w.post(ctx, "reserve", pollWait+callWithin, w.reserve(n, pollWait))
		w.give(n - len(a.Tasks))
		w.begin(telling, a)
		switch {
		case err == nil:
			answered = true
			waits.Reset()
		case !answered && refused(err):
			return fmt.Errorf("worker: %w", err)
		default:
			_ = loop.Wait(ctx, waits.NextBackOff())
		}
	}
}

// newWaits returns the waits between calls that fail.
func newWaits() *backoff.ExponentialBackOff {
	waits := backoff.NewExponentialBackOff()
	waits.MaxInterval = callWithin
	return waits
}

// reserve asks for tasks.
func (w *Worker) reserve(most int, wait time.Duration) map[string]any {
	return map[string]any{"biz_types": slices.Sorted(maps.Keys(w.handlers)), "max": most, "wait_ms": wait.Milliseconds(), "worker": w.cfg.Name}
}

// take waits for a free handler, and takes as many as there are; 0: ctx has ended.
func (w *Worker) take(ctx context.Context) (n int) {
	select {
	case <-ctx.Done():
		return 0
	case w.slots <- struct{}{}:
	}
	for n = 1; n < min(w.cfg.Batch, w.cfg.AtOnce); n++ {
		select {
		case w.slots <- struct{}{}:
		default:
			return n
		}
	}
	return n
}

// give gives handlers back. There are fewer if an API gave more tasks than it was asked for.
func (w *Worker) give(n int) {
	for range n {
		select {
		case <-w.slots:
		default:
		}
	}
}
