package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/store"
)

// book keeps what is recorded.
type book struct {
	mu   sync.Mutex
	runs []*store.Run
}

func (b *book) record(_ int, runs []*store.Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs = append(b.runs, runs...)
}

// all returns the runs so far.
func (b *book) all() []*store.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.runs)
}

// lines are the runs so far: "1 completed: text".
func (b *book) lines() (lines []string) {
	for _, r := range b.all() {
		lines = append(lines, fmt.Sprintf("%d %s: %s", r.Attempt, r.Outcome, r.Output))
	}
	return lines
}

// kept is a policy that keeps a history.
func kept(p biztype.Policy) biztype.Policy {
	p.History = true
	return p
}

// recorded runs f with a dispatcher that keeps a book.
func recorded(t *testing.T, p biztype.Policy, sink Sink, f func(*rig, *book)) {
	t.Helper()
	var b *book
	inBubbleWith(t, p, sink, func(cfg *Config) {
		b = &book{}
		cfg.Record = b.record
	}, func(r *rig) {
		f(r, b)
	})
}

func TestARunSaysWhenAndHowLong(t *testing.T) { eachWay(t, testARunSaysWhenAndHowLong) }

func testARunSaysWhenAndHowLong(t *testing.T) {
	sink := handler(func(context.Context, tocsin.Info) error {
		time.Sleep(700 * time.Millisecond)
		return nil
	})
	recorded(t, kept(policy("order.close", 1)), sink, func(r *rig, b *book) {
		due := time.Now().Add(time.Second)
		id := r.add(0, 1, time.Second)
		pass(3 * time.Second)
		runs := b.all()
		if len(runs) != 1 {
			t.Fatalf("%+v", runs)
		}
		run := runs[0]
		if run.JobID != id || run.Type != 1 || run.Node != r.cfg.Node || run.Took != 700 || run.Schedule != 0 {
			t.Errorf("%+v", run)
		}
		if run.Lateness > 50 || run.Started != due.UnixMilli()+run.Lateness {
			t.Errorf("started at %d, %d ms late, due at %d", run.Started, run.Lateness, due.UnixMilli())
		}
	})
}

func TestTheLatenessOfAClaimedTaskHasItsWaitForASlot(t *testing.T) {
	eachWay(t, testTheLatenessOfAClaimedTaskHasItsWaitForASlot)
}

func testTheLatenessOfAClaimedTaskHasItsWaitForASlot(t *testing.T) {
	p := kept(oneSlot())
	p.Strict = true
	sink := handler(func(context.Context, tocsin.Info) error { time.Sleep(700 * time.Millisecond); return nil })
	recorded(t, p, sink, func(r *rig, b *book) {
		r.loadAhead(1)
		for range 2 {
			r.add(0, 1, 0)
		}
		pass(3 * time.Second)
		if runs := b.all(); len(runs) != 2 || runs[1].Lateness < 700 || runs[1].Lateness > 750 || r.claims() != 2 {
			t.Errorf("%d runs after %d claims, the last one %+v", len(runs), r.claims(), runs[len(runs)-1])
		}
	})
}

func TestABatchGivesAnOutputToEachTaskOrToAll(t *testing.T) {
	eachWay(t, testABatchGivesAnOutputToEachTaskOrToAll)
}

func testABatchGivesAnOutputToEachTaskOrToAll(t *testing.T) {
	sink := batchHandler(func(ctx context.Context, tasks []tocsin.Info) []error {
		tocsin.Output(ctx, fmt.Sprintf("one of %d", len(tasks)))
		tocsin.OutputOf(ctx, tasks[0].JobID, "the first")
		return make([]error, len(tasks))
	})
	var b *book
	inBubbleOf(t, []biztype.Policy{kept(policy("order.close", 1))}, nil, func(cfg *Config) {
		b = &book{}
		cfg.Record = b.record
		inBatches(sink, 10)(cfg)
	}, func(r *rig) {
		r.together(3)
		pass(2 * time.Second)
		got := b.lines()
		slices.Sort(got)
		if want := []string{"1 completed: one of 3", "1 completed: one of 3", "1 completed: the first"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// batchHandler is a Sink of batches.
type batchHandler func(context.Context, []tocsin.Info) []error

// Deliver calls the handler.
func (h batchHandler) Deliver(ctx context.Context, tasks []tocsin.Info) []error { return h(ctx, tasks) }

func TestOnlyTypesWithAHistoryAndRunsOfSchedulesAreRecorded(t *testing.T) {
	eachWay(t, testOnlyTypesWithAHistoryAndRunsOfSchedulesAreRecorded)
}

func testOnlyTypesWithAHistoryAndRunsOfSchedulesAreRecorded(t *testing.T) {
	sink := handler(func(ctx context.Context, _ tocsin.Info) error {
		tocsin.Output(ctx, "sent")
		tocsin.Output(context.Background(), "nowhere")
		return nil
	})
	recorded(t, policy("order.close", 1), sink, func(r *rig, b *book) {
		r.add(0, 1, 0)
		of := r.insert(0, 1, 0)
		r.store.change(of, func(row *store.Row) { row.DedupKey = ids.OfTime(4711, 3, time.Now()).String() })
		r.offer(of)
		pass(time.Second)
		if runs := b.all(); len(runs) != 1 || runs[0].JobID != of || runs[0].Schedule != 4711 || runs[0].Output != "sent" {
			t.Errorf("%+v", runs)
		}
	})
}

func TestALongOutputIsCutWithItsReason(t *testing.T) { eachWay(t, testALongOutputIsCutWithItsReason) }

func testALongOutputIsCutWithItsReason(t *testing.T) {
	sink := handler(func(ctx context.Context, _ tocsin.Info) error {
		tocsin.Output(ctx, strings.Repeat("é", 3000))
		return tocsin.Bury(errors.New("no answer"))
	})
	recorded(t, kept(policy("order.close", 1)), sink, func(r *rig, b *book) {
		r.add(0, 1, 0)
		pass(time.Second)
		if runs := b.all(); len(runs) != 1 || runs[0].Output != "no answer\n"+strings.Repeat("é", tocsin.MaxOutput-10) {
			t.Errorf("%+v", runs)
		}
	})
}
