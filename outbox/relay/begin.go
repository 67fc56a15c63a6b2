package relay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/outbox"
)

// askWithin bounds the search for the id at which a turn begins. Without an answer in time the turn begins at the first
// id.
const askWithin = 300 * time.Millisecond

// begin skips the ids below which an earlier turn found all rows gone and all gaps closed. Reading over rows that were
// deleted but can't be purged takes long.
//
// The note of that turn is void if the outbox has given ids again since: it was emptied, or its server has lost its last
// transactions. So the outbox must say that its next id is not a lower one, then that no transaction is open below, and
// then that no row is there. Otherwise the turn begins at the first id.
//
// None of these questions sees a statement that has taken an id but has not inserted its row yet. The notes cover it:
// their gaps were closed a minute later, and a turn that sees a lower next id voids them.
func (t *turn) begin(ctx context.Context) error {
	t.settled.Store(0)
	asked, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	below, err := t.tasks.SettledBelow(asked, t.session.Identity)
	t.anew.Store(err == nil && below == 0)
	if err != nil || below == 0 { // the databases of the tasks are no reason not to begin
		return nil
	}
	settled := []outbox.Range{{First: 0, Last: below - 1}}
	next, err := t.session.Next(ctx)
	if err != nil {
		return err
	}
	switch {
	case next == 0:
		t.limit.Of(t.cfg.Logger, "next "+t.outbox.Name).Warn("the next id of the outbox can't be read: the relay begins at the first id, see `tocsin outbox verify`",
			"outbox", t.outbox.Name)
		return nil
	case next < below:
		t.void(ctx)
		return nil
	}
	open, err := t.session.Writers(ctx)
	if err != nil {
		return err
	}
	found, err := t.session.Settled(ctx, settled, open)
	if errors.Is(err, outbox.ErrRewound) && t.cfg.Replay { // the ledgers may remember some of the rows, and not those before them
		return t.tasks.ForgetMoved(ctx, t.session.Identity)
	}
	if err != nil || !slices.Equal(found, settled) {
		return err
	}
	t.known.addRange(settled[0])
	t.gone.addRange(settled[0])
	return nil
}

// void notes that the outbox has given ids again. A database that can't be reached keeps its note: a 0 in any other is enough.
func (t *turn) void(ctx context.Context) {
	t.settled.Store(0)
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var all sync.WaitGroup
	for database := range t.cfg.Tables.Layout.Databases {
		all.Go(func() { _ = t.tasks.NoteSettled(ctx, t.session.Identity, database, 0, false) }) // see above
	}
	all.Wait()
}

// noteGone notes which ids have no rows any more, after all were read. For later turns it stores how far these ids go
// without a gap.
func (t *turn) noteGone(gone ids) {
	for id := range t.hand {
		gone.remove(outbox.Range{First: id, Last: id})
	}
	for _, r := range gone {
		t.gone.addRange(r)
	}
	if len(t.gone) > 0 && t.gone[0].First == 0 {
		t.settled.Store(t.gone[0].Last + 1)
	}
}
