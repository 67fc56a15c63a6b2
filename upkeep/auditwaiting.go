package upkeep

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin/internal/outboxrow"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/store"
)

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
func (p *outboxPart) oldRows(ctx context.Context, box *outbox.Outbox) (old []outboxrow.Row, err error) {
	for after, more := uint64(0), true; more && p.waiting < mostWaiting; {
		began := time.Now()
		rows, err := box.List(ctx, after, outboxPage, false)
		p.cost.spent(1, len(rows), began)
		if err != nil || len(rows) == 0 {
			return old, err
		}
		p.waiting += len(rows)
		after, more = rows[len(rows)-1].ID, len(rows) == outboxPage
		for _, row := range rows {
			if row.Age > p.Older || row.Created.IsZero() && row.LastError != "" { // whose age is unknown
				row.Payload = ""
				old = append(old, row)
			}
		}
		if err := pauseAfter(ctx, began); err != nil {
			return nil, err
		}
	}
	return old, nil
}

// still counts old rows that are in the outbox still, unless the ledger knows them: these are moved, and only have to be
// deleted.
func (p *outboxPart) still(ctx context.Context, box *outbox.Outbox, old []outboxrow.Row) error {
	session, err := box.Session(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	byDatabase := map[int][]outboxrow.Row{}
	for some := range slices.Chunk(old, outboxPage) {
		keys := make([]outboxrow.Key, len(some))
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
func (p *outboxPart) unmoved(ctx context.Context, identity string, database int, rows []outboxrow.Row) error {
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
