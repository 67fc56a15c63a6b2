package chaos

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/upkeep"
)

// kept is how long finished rows stay in TestEverythingAtOnceOnOneTable: longer than
// the time between two looks at them, so that each is seen in its final state.
const kept = 8 * time.Second

// TestEverythingAtOnceOnOneTable: add, cancel, reschedule, claim, complete, sweep and
// purge meet on the same rows.
func TestEverythingAtOnceOnOneTable(t *testing.T) {
	s := begin(t, Options{
		Servers: 1, Nodes: 2, Purged: true, Timing: pick(calmTimes, quickTimes), Layout: tocsin.Layout{Databases: 1, Tables: 1, Prefix: "chaos"},
	})
	var purged int
	s.under(Load{Rate: 220, Changes: 0.6, Fails: true, Far: 2 * time.Second, Work: 200}, func(ctx context.Context) error {
		beside, end := context.WithCancel(ctx)
		defer end()
		var g errgroup.Group
		g.Go(func() error { return s.purge(beside, &purged) })
		g.Go(func() error { s.cancelLoaded(beside, pick(300, 1000)); return nil })
		err := s.Do(ctx, Step{Fault: LowSweep, Length: pick(5*time.Second, time.Minute)})
		s.pause(pick(0, kept))
		end()
		return errors.Join(err, g.Wait())
	})
	s.verdict()
	t.Logf("%d rows were purged meanwhile", purged)
	if long() && purged == 0 {
		t.Error("nothing was purged")
	}
}

// cancelLoaded adds strict tasks that are due at once, more than may be delivered at
// a time, and cancels them while those that are loaded wait for their turn.
func (s *scenario) cancelLoaded(ctx context.Context, n int) {
	due := time.Now().Add(time.Second)
	drafts := make([]draft, n)
	for i := range drafts {
		drafts[i] = s.log.newTask("strict", due, Work{Millis: 50})
	}
	s.addAll(ctx, drafts)
	_ = loop.WaitUntil(ctx, due)
	var g errgroup.Group
	g.SetLimit(4)
	for _, d := range drafts {
		g.Go(func() error { s.ask(ctx, d.entry, op{Kind: opCancel}); return nil })
	}
	_ = g.Wait()
}

// purge notes final states and removes old ones, again and again until ctx ends.
func (s *scenario) purge(ctx context.Context, removed *int) error {
	tables, err := store.Open(s.tables(s.harness))
	if err != nil {
		return err
	}
	defer func() { _ = tables.Close() }()
	p := upkeep.NewPurger(upkeep.PurgeConfig{Store: tables, Policies: shortlyKept, Dead: true})
	for loop.Wait(ctx, time.Second) == nil {
		if _, err := s.note(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		result, err := p.Purge(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		total := result.Total()
		*removed += total.Done + total.Cancelled + total.Dead
	}
	return nil
}

func shortlyKept(context.Context) ([]biztype.Policy, error) {
	all := policies("http://127.0.0.1/")
	for i := range all {
		all[i].Retention = biztype.Duration(kept)
	}
	return all, nil
}
