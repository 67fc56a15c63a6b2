package contest

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/internal/loop"
)

const (
	defaultBatch     = 1000
	defaultInserters = 8
	far              = time.Hour              // when inserted tasks are due that are not to be delivered
	rest             = time.Second            // for servers to finish what they do behind an insert
	tickEvery        = 10 * time.Millisecond  // of an inserter that keeps up a rate
	rateInserters    = 4                      // that share a rate
	leastDelay       = 6                      // seconds until a task of the lateness work is due: whole ones, as beanstalkd knows no others, and more than River's 5 s between two looks at what is scheduled
	mostDelay        = 9                      // seconds
	settleIn         = 250 * time.Millisecond // between Start and the first task of the lateness work
)

// turn is one system's part of a round.
type turn struct {
	entry  Entry
	system System
	opts   Options
	next   int // number of the next task
	done   int // tasks that should be settled by now
	deal   atomic.Pointer[ledger]
	runs   bool // the system delivers
	Turn
}

// play does all the works.
func (t *turn) play(ctx context.Context) error {
	for _, rate := range t.opts.Rates {
		late, err := t.lateness(ctx, rate)
		if err != nil {
			return fmt.Errorf("%s: lateness at %g tasks/s: %w", t.entry.Name, rate, err)
		}
		t.Lateness = append(t.Lateness, late)
	}
	for _, work := range []struct {
		name string
		do   func(context.Context) error
	}{{"pause", t.pause}, {"insert", t.insert}, {"warm up", t.warm}, {"drain", t.drain}} {
		if err := work.do(ctx); err != nil {
			return fmt.Errorf("%s: %s: %w", t.entry.Name, work.name, err)
		}
	}
	return nil
}

// begin opens the ledger of the next n tasks and lets deliveries go there.
func (t *turn) begin(n int) *ledger {
	l := newLedger(t.next, n)
	t.deal.Store(l)
	return l
}

// start lets deliveries begin unless they have.
func (t *turn) start(ctx context.Context) error {
	if t.runs {
		return nil
	}
	t.runs = true
	return t.system.Start(ctx)
}

// pause stops deliveries. A system that was never started has yet to take up its
// place and be paused.
func (t *turn) pause(ctx context.Context) error {
	if !t.runs {
		t.begin(0)
		if err := t.start(ctx); err != nil {
			return err
		}
	}
	t.runs = false
	return t.system.Pause(ctx)
}

func (t *turn) warm(ctx context.Context) error {
	if w, ok := t.system.(Warmer); ok && t.opts.Warm {
		return w.Warm(ctx)
	}
	return nil
}

// insert measures how fast tasks are stored that are due much later.
func (t *turn) insert(ctx context.Context) error {
	begin := time.Now()
	if err := t.insertAll(ctx, t.opts.Tasks, begin.Add(far)); err != nil {
		return err
	}
	t.Insert = perSecond(t.opts.Tasks, time.Since(begin))
	t.next += t.opts.Tasks
	return loop.Wait(ctx, rest)
}

// drain measures how fast a backlog goes, from the first delivery until the last
// outcome is stored.
func (t *turn) drain(ctx context.Context) error {
	n := t.opts.Tasks
	l := t.begin(n)
	if err := t.insertAll(ctx, n, time.Now()); err != nil {
		return err
	}
	if err := loop.Wait(ctx, rest); err != nil {
		return err
	}
	if seen, _ := l.count(); seen > 0 {
		return fmt.Errorf("%d tasks were delivered before deliveries were to begin", seen)
	}
	if err := t.start(ctx); err != nil {
		return err
	}
	if err := l.await(ctx, t.system, n); err != nil {
		return err
	}
	t.Drain = perSecond(n, time.Since(l.began()))
	return t.check(ctx, l, n)
}

// check compares the ledger and the store with what should have happened.
func (t *turn) check(ctx context.Context, l *ledger, n int) error {
	seen, again := l.count()
	t.Delivered += seen
	t.Duplicates += again
	t.done += n
	t.next += n
	if stray := l.stray.Load(); stray > 0 {
		return fmt.Errorf("%d deliveries of what is no task of this work", stray)
	}
	settled, err := t.system.Settled(ctx)
	if err == nil && settled != t.done {
		err = fmt.Errorf("its store has %d tasks done, and %d were delivered", settled, t.done)
	}
	return err
}

// insertAll stores n tasks, numbered from t.next, all due at the same time.
func (t *turn) insertAll(ctx context.Context, n int, due time.Time) error {
	batch := cmp.Or(t.entry.Batch, defaultBatch)
	var taken atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range cmp.Or(t.entry.Inserters, defaultInserters) {
		g.Go(func() error {
			for {
				from := int(taken.Add(int64(batch))) - batch
				if from >= n || ctx.Err() != nil {
					return ctx.Err()
				}
				if err := t.system.Insert(ctx, tasks(t.next+from, min(batch, n-from), due)); err != nil {
					return fmt.Errorf("insert %d tasks: %w", batch, err)
				}
			}
		})
	}
	return g.Wait()
}

// tasks makes n of them.
func tasks(first, n int, due time.Time) []Task {
	batch := make([]Task, n)
	for i := range batch {
		batch[i] = Task{Body: Body(first + i), Due: due}
	}
	return batch
}
