package bench

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
)

// outboxLate is a measure of lateness through an outbox.
type outboxLate struct {
	*outboxBench
	mu        sync.Mutex
	committed map[uint64]time.Time // biz_id -> when its transaction's commit was answered
	delivered map[uint64]time.Time // biz_id -> when its handler began
	added     int
}

// late adds tasks that are due at once, each in a transaction of its own, and measures from the answer of the commit to the
// call of the handler.
func (b *outboxBench) late(ctx context.Context, r *OutboxResult) (err error) {
	l := &outboxLate{outboxBench: b, committed: map[uint64]time.Time{}, delivered: map[uint64]time.Time{}}
	var h node.Handlers
	node.Handle(&h, plain, func(_ context.Context, t *tocsin.Task[string]) error {
		at := time.Now()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.delivered[t.BizID] = at
		return nil
	})
	node.Handle(&h, other, func(context.Context, *tocsin.Task[string]) error { return nil })
	nodes, err := b.startNodes(ctx, &h)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodes.stop()) }()
	relay, err := b.startRelay(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, relay.stop()) }()
	if err := l.warm(ctx, nodes); err != nil {
		return err
	}
	begin := time.Now()
	if err := l.addAll(ctx, begin); err != nil {
		return err
	}
	took := time.Since(begin)
	if err := nodes.awaitAll(ctx, l.added+1, l.count); err != nil {
		return err
	}
	r.Late = l.result(took)
	return nil
}

func (l *outboxLate) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opts.Progress("deliver", len(l.delivered), l.added)
	return len(l.delivered)
}

// warm has one task delivered that does not count.
func (l *outboxLate) warm(ctx context.Context, nodes *fleet) error {
	if err := l.addTx(ctx, l.rows.nextBiz()); err != nil {
		return err
	}
	if err := nodes.awaitAll(ctx, 1, l.count); err != nil {
		return err
	}
	clear(l.committed)
	return nil
}

// addAll keeps up the rate for the duration.
func (l *outboxLate) addAll(ctx context.Context, begin time.Time) error {
	g, ctx := errgroup.WithContext(ctx)
	every := time.Duration(float64(adders) / l.opts.Rate * float64(time.Second))
	for range adders {
		g.Go(func() error {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for time.Since(begin) < l.opts.Duration {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-tick.C:
				}
				l.mu.Lock()
				l.added++
				bizID := l.rows.nextBiz()
				l.mu.Unlock()
				if err := l.addTx(ctx, bizID); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// addTx adds one task in a transaction of the business server.
func (l *outboxLate) addTx(ctx context.Context, bizID uint64) error {
	tx, err := l.pool.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := l.shopper.AddTx(ctx, tx, plain.New(bizID, payload, tocsin.In(0))); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	at := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed[bizID] = at
	return nil
}

func (l *outboxLate) result(took time.Duration) Late {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []time.Duration
	for bizID, at := range l.committed {
		all = append(all, max(l.delivered[bizID].Sub(at), 0)) // the commit is visible before its answer is here
	}
	slices.Sort(all)
	return Late{
		Tasks: len(all), Rate: round(float64(len(all))/took.Seconds(), 1),
		P50: quantile(all, 0.5), P99: quantile(all, 0.99), Max: quantile(all, 1),
	}
}

// idle watches a relay whose outbox is empty, and before that the same without it.
func (b *outboxBench) idle(ctx context.Context, r *OutboxResult) (err error) {
	if err := b.calm(ctx); err != nil {
		return err
	}
	alone, err := b.watch(ctx, "alone", b.opts.Duration/3)
	if err != nil {
		return err
	}
	relay, err := b.startRelay(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, relay.stop()) }()
	if _, err := b.watch(ctx, "settle", time.Second); err != nil {
		return err
	}
	before, cpu, err := b.shopStatements(ctx)
	if err != nil {
		return err
	}
	with, err := b.watch(ctx, "watch", b.opts.Duration)
	if err != nil {
		return err
	}
	after, used, err := b.shopStatements(ctx)
	r.Idle = Idleness{
		Seconds: round(with.Seconds, 1), Statements: round((with.Statements-1+after-before-1)/with.Seconds, 2), // two were ours
		RelayCPU:  round(max(100*with.ProcessCPU/with.Seconds-100*alone.ProcessCPU/alone.Seconds, 0), 2),
		ServerCPU: round(100*(used-cpu)/with.Seconds, 2),
	}
	return err
}

// shopStatements is what the business server has counted, and its processor time.
func (b *outboxBench) shopStatements(ctx context.Context) (statements, cpu float64, err error) {
	values, err := namedOf(ctx, b.pool.DB, statusSQL)
	if err != nil {
		return 0, 0, err
	}
	return number(values["Questions"]), b.shopCPU(), nil
}
