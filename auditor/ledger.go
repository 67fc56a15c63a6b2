package auditor

import (
	"context"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/store"
)

// What the ledger says, and what follows if the task is not there: a move stores both in one transaction, so the task was
// there. It is settled after it was moved and purged a retention later at the earliest. The ledger does not know the biz
// type, so the shortest retention of all counts; and a purge may still work under earlier policies for a while after a
// change. A task that is gone earlier than that was removed by something else: it is lost.

// ledgers looks for the tasks that the ledgers of one server name.
func (p *part) ledgers(ctx context.Context, server int) {
	judged := p.judge()
	var databases []int
	for _, table := range p.TablesOf(server) {
		databases = append(databases, p.Layout.DatabaseOf(table))
	}
	slices.Sort(databases)
	for _, database := range slices.Compact(databases) {
		if err := p.ledger(ctx, server, database, judged); err != nil {
			p.errs = append(p.errs, err)
		}
	}
}

// judge returns whether a task that was moved can't have been purged.
func (p *part) judge() func(store.Relayed) bool {
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

func (p *part) ledger(ctx context.Context, server, database int, judged func(store.Relayed) bool) error {
	for after, more := (store.RelayedKey{}), true; more; {
		began := time.Now()
		rows, err := p.Ledgers.Relayed(ctx, server, database, after, ledgerPage)
		took := p.timed(len(rows), began)
		if err != nil || len(rows) == 0 {
			return err
		}
		after, more = rows[len(rows)-1].RelayedKey, len(rows) == ledgerPage
		began = time.Now()
		unread, err := p.lookFor(ctx, server, database, rows, judged)
		took += p.timed(0, began)
		if err != nil || unread != nil {
			return errorsOf(err, unread)
		}
		if err := wait.For(ctx, took); err != nil {
			return err
		}
	}
	return nil
}

// lookFor looks for the tasks of rows of the ledger.
func (p *part) lookFor(ctx context.Context, server, database int, rows []store.Relayed, judged func(store.Relayed) bool) (map[int]error, error) {
	ids, byID := make([]tocsin.JobID, len(rows)), make(map[tocsin.JobID]store.Relayed, len(rows))
	for i, r := range rows {
		ids[i], byID[r.JobID] = r.JobID, r
	}
	absent, failed, err := p.Ledgers.Absent(ctx, server, ids)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		if failed[r.JobID.Table()] == nil {
			p.moved++
		}
	}
	for _, id := range absent {
		if judged(byID[id]) {
			p.count(p.Layout.Database(database), MovedWithoutTask, id.String())
		} else {
			p.purged++
		}
	}
	return failed, nil
}
