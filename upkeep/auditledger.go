package upkeep

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/outbox"
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
	after := store.RelayedKey{}
	return paged(ctx, func() (bool, error) {
		began := time.Now()
		rows, err := p.Store.Relayed(ctx, server, database, after, ledgerPage)
		p.cost.spent(1, len(rows), began)
		if err != nil || len(rows) == 0 {
			return false, err
		}
		after = rows[len(rows)-1].RelayedKey
		return len(rows) == ledgerPage, p.lookFor(ctx, server, database, rows, kept)
	})
}

// lookFor checks that the tasks of rows of the ledger are there, and counts those that are not.
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

// outbox looks for rows that no relay has moved. A row's age counts from its insert, and its transaction may have been open
// for longer than the bound and have committed a moment ago. So old rows are looked at twice: a relay that works has moved
// them by then.
func (p *outboxPart) outbox(ctx context.Context, box *outbox.Outbox) error {
	old, err := p.oldRows(ctx, box)
	if err != nil || len(old) == 0 {
		return err
	}
	if err := wait.For(ctx, lookAgain); err != nil {
		return err
	}
	return p.still(ctx, box, old)
}

// oldRows returns the rows that have waited for longer than the bound, without their payload.
func (p *outboxPart) oldRows(ctx context.Context, box *outbox.Outbox) (old []outbox.Row, err error) {
	after := uint64(0)
	err = paged(ctx, func() (bool, error) {
		began := time.Now()
		rows, err := box.List(ctx, after, outboxPage, false)
		p.cost.spent(1, len(rows), began)
		if err != nil || len(rows) == 0 {
			return false, err
		}
		p.waiting += len(rows)
		after = rows[len(rows)-1].ID
		for _, row := range rows {
			if row.Age > p.Older || row.Created.IsZero() && row.LastError != "" { // whose age is unknown
				row.Payload = ""
				old = append(old, row)
			}
		}
		return len(rows) == outboxPage && p.waiting < mostWaiting, nil
	})
	return old, err
}

// still counts old rows that are in the outbox still, unless the ledger knows them: these are moved, and only have to be
// deleted.
func (p *outboxPart) still(ctx context.Context, box *outbox.Outbox, old []outbox.Row) error {
	session, err := box.Session(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	byDatabase := map[int][]outbox.Row{}
	for some := range slices.Chunk(old, outboxPage) {
		keys := make([]outbox.Key, len(some))
		for i, row := range some {
			keys[i] = row.Key
		}
		began := time.Now()
		present, err := session.Present(ctx, keys)
		p.cost.spent(1, 0, began)
		if err != nil {
			return err
		}
		for _, row := range some {
			database := p.Store.Layout().DatabaseOf(p.Store.Layout().TableOf(row.BizID))
			if present[row.Key] {
				byDatabase[database] = append(byDatabase[database], row)
			}
		}
	}
	var errs []error
	for _, database := range slices.Sorted(maps.Keys(byDatabase)) {
		errs = append(errs, p.unmoved(ctx, session.Identity, database, byDatabase[database]))
	}
	return errors.Join(errs...)
}

// unmoved counts rows for one database that do not stand in its ledger.
func (p *outboxPart) unmoved(ctx context.Context, identity string, database int, rows []outbox.Row) error {
	keys := make([]store.RelayedKey, len(rows))
	for i, row := range rows {
		keys[i] = store.RelayedKey{Outbox: identity, ID: row.ID, Created: row.Created.UTC().Format("2006-01-02 15:04:05.000000")}
	}
	began := time.Now()
	moved, err := p.Store.Noted(ctx, p.Store.ServerOf(database*p.Store.Layout().Tables), database, keys)
	p.cost.spent(1, 0, began)
	if err != nil {
		return err
	}
	for i, row := range rows {
		switch {
		case moved[keys[i]]:
		case row.LastError != "":
			p.count(p.name, setAside, strconv.FormatUint(row.ID, 10))
		default:
			p.count(p.name, notMoved, strconv.FormatUint(row.ID, 10))
		}
	}
	return nil
}
