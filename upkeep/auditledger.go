package upkeep

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/store"
)

// What the ledger says, and what follows if the task is not there: a move stores both in one transaction, so the task was
// there. It is settled after it was moved and purged a retention later at the earliest. The ledger does not know the biz
// type, so the shortest retention of all counts; and a purge may still work under earlier policies for a while after a
// change. A task that is gone earlier than that was removed by something else: it is lost.

// ledgers looks for the tasks that the ledgers of one server name.
func (p *outboxPart) ledgers(ctx context.Context, server int) error {
	kept := p.kept()
	var errs []error
	for _, database := range p.Store.DatabasesOf(server) {
		errs = append(errs, p.ledger(ctx, server, database, kept))
	}
	return store.Join(errs...)
}

// kept returns whether a task that was moved can't have been purged.
func (p *outboxPart) kept() func(store.Relayed) bool {
	var shortest time.Duration
	var changed time.Time
	for i, policy := range p.Policies {
		if kept := policy.WithDefaults().Retention.D(); i == 0 || kept < shortest {
			shortest = kept
		}
		if policy.Changed.After(changed) {
			changed = policy.Changed
		}
	}
	return func(r store.Relayed) bool {
		return r.Age+purgeMargin < shortest && r.Moved.After(changed.Add(policyMargin))
	}
}

// ledger looks for the tasks of one ledger, page by page.
func (p *outboxPart) ledger(ctx context.Context, server, database int, kept func(store.Relayed) bool) error {
	for after, more := (store.RelayedKey{}), true; more; {
		began := time.Now()
		rows, err := p.Store.Relayed(ctx, server, database, after, ledgerPage)
		p.cost.spent(1, len(rows), began)
		if err != nil || len(rows) == 0 {
			return err
		}
		after, more = rows[len(rows)-1].RelayedKey, len(rows) == ledgerPage
		if err := p.lookFor(ctx, server, database, rows, kept); err != nil {
			return err
		}
		if err := pauseAfter(ctx, began); err != nil {
			return err
		}
	}
	return nil
}

// lookFor looks for the tasks of rows of the ledger.
func (p *outboxPart) lookFor(ctx context.Context, server, database int, rows []store.Relayed, kept func(store.Relayed) bool) error {
	ids, byID := make([]tocsin.JobID, len(rows)), make(map[tocsin.JobID]store.Relayed, len(rows))
	for i, r := range rows {
		ids[i], byID[r.JobID] = r.JobID, r
	}
	began := time.Now()
	absent, failed, err := p.Store.Absent(ctx, server, ids)
	p.cost.spent(1, 0, began)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if failed[r.JobID.Table()] == nil {
			p.moved++
		}
	}
	for _, id := range absent {
		if kept(byID[id]) {
			p.count(p.Store.Layout().Database(database), movedWithoutTask, id.String())
		} else {
			p.purged++
		}
	}
	return errors.Join(slices.Collect(maps.Values(failed))...)
}
