package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/upkeep"
)

// briefly is how long finished rows of some runs are kept.
const briefly = time.Second

// runPolicies are those of schedules' runs, made of those of other tasks.
func runPolicies(of []biztype.Policy) []biztype.Policy {
	brief, kept, claimed, called, brittle := of[0], of[0], of[1], of[2], of[0]
	brief.Name, brief.Number, brief.Retention = briefRun.Name(), 11, biztype.Duration(briefly)
	kept.Name, kept.Number = keptRun.Name(), 12
	claimed.Name, claimed.Number, claimed.Concurrency = strictRun.Name(), 13, 64
	called.Name, called.Number, called.Retention = hookRun.Name(), 14, biztype.Duration(briefly)
	brittle.Name, brittle.Number, brittle.Attempts = brittleRun.Name(), 15, brittleAttempts
	return []biztype.Policy{brief, kept, claimed, called, brittle}
}

// purge deletes finished rows until ctx ends. What a round could not do, the next one may.
func (r role) purge(ctx context.Context) (err error) {
	tables, err := store.Connect(ctx, r.Tables)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tables.Close()) }()
	p := upkeep.NewPurger(upkeep.PurgeConfig{
		Store:    tables,
		Policies: func(ctx context.Context) ([]biztype.Policy, error) { return biztype.Load(ctx, r.Tables) },
	})
	for loop.Wait(ctx, r.Pause) == nil {
		if _, err := p.Purge(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "purge: %v\n", err)
		}
	}
	return nil
}
