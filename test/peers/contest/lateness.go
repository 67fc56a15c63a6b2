package contest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// Lateness is delivery start minus due time, in milliseconds.
type Lateness struct {
	Rate      float64 `json:"rate"`             // asked for
	AddedRate float64 `json:"tasks_per_second"` // reached
	Tasks     int     `json:"tasks"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	Max       float64 `json:"max_ms"`
	Early     int     `json:"early"` // deliveries that began before they were due
}

// adding is the lateness work under way.
type adding struct {
	*turn
	ledger *ledger
	due    []time.Time // by task, each written by the inserter that has the number
	begin  time.Time
}

// lateness adds tasks at the rate and looks at when each is delivered.
func (t *turn) lateness(ctx context.Context, rate float64) (Lateness, error) {
	n := max(int(rate*t.opts.Adding.Seconds()), 1)
	first := t.next
	a := &adding{turn: t, ledger: t.begin(n), due: make([]time.Time, n)}
	if err := t.start(ctx); err != nil {
		return Lateness{}, err
	}
	if err := loop.Wait(ctx, settleIn); err != nil {
		return Lateness{}, err
	}
	a.begin = time.Now()
	g, run := errgroup.WithContext(ctx)
	for i := range rateInserters {
		g.Go(func() error { return a.keepUp(run, first, i, rate) })
	}
	if err := g.Wait(); err != nil {
		return Lateness{}, err
	}
	took := time.Since(a.begin)
	if err := a.ledger.await(ctx, t.system, n); err != nil {
		return Lateness{}, err
	}
	return a.result(rate, took), t.check(ctx, a.ledger, n)
}

// keepUp adds, at every tick, those tasks among every fourth beginning with i
// whose moment has come.
func (a *adding) keepUp(ctx context.Context, first, i int, rate float64) error {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for i < len(a.due) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now := time.Now()
		reached := int(rate * now.Sub(a.begin).Seconds())
		var batch []Task
		for ; i < min(reached, len(a.due)); i += rateInserters {
			a.due[i] = now.Add(time.Duration(leastDelay+rand.N(mostDelay-leastDelay+1)) * time.Second)
			batch = append(batch, Task{Body: Body(first + i), Due: a.due[i]})
		}
		if err := a.insertBatches(ctx, batch); err != nil {
			return fmt.Errorf("insert %d tasks: %w", len(batch), err)
		}
	}
	return nil
}

func (a *adding) insertBatches(ctx context.Context, tasks []Task) error {
	for batch := range slices.Chunk(tasks, cmp.Or(a.entry.Batch, defaultBatch)) {
		if err := a.system.Insert(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (a *adding) result(rate float64, took time.Duration) Lateness {
	l := Lateness{Rate: rate, AddedRate: perSecond(len(a.due), took), Tasks: len(a.due)}
	late := make([]time.Duration, len(a.due))
	for i, due := range a.due {
		if late[i] = a.ledger.start(i).Sub(due); late[i] < 0 {
			l.Early++
		}
	}
	slices.Sort(late)
	l.P50, l.P99, l.Max = millis(late, 0.5), millis(late, 0.99), millis(late, 1)
	return l
}
