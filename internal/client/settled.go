package client

import (
	"context"
	"slices"
	"sync"
	"time"
)

// settledCreated is the time of creation of a note in the ledger that is no row of an outbox.
var settledCreated = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// settledOf is the outbox of such a note: no identity has a space.
func settledOf(identity string) string { return identity + " settled" }

// settledSQL notes an id; settledOthersSQL deletes other notes, a 0 only anew. Parameters: outbox, id, created; outbox, id,
// anew. Primary key.
const (
	settledSQL = `INSERT /* tocsin relayed settled */ IGNORE INTO {database}.relayed (outbox, id, created, job_id, gmt_create)
VALUES (?, ?, ?, 0, UTC_TIMESTAMP(3))`

	settledOthersSQL = `DELETE /* tocsin relayed settled others */ FROM {database}.relayed
WHERE outbox = ?
    AND id <> ?
    AND (id > 0 OR ?)`
)

// settledReadSQL reads the lowest note. Parameter: outbox. Primary key.
const settledReadSQL = `SELECT /* tocsin relayed settled read */
    COALESCE(MIN(id), 0)
FROM {database}.relayed FORCE INDEX (PRIMARY)
WHERE outbox = ?`

// NoteSettled notes in one database that an outbox had no row with an id below this one, neither committed nor of an
// open transaction, and so never will unless it gives ids again: then 0 is noted.
// A note of an id takes the place of a 0 only anew: by a turn that began without a note, and once. A 0 that was noted since
// says that the id is no longer true.
func (c *Client) NoteSettled(ctx context.Context, identity string, database int, id uint64, anew bool) error {
	s := c.home[database]
	render := func(statement string) string { return c.layout.Render(statement, database*c.layout.Tables) }
	if _, err := s.exec(ctx, database, render(settledSQL), settledOf(identity), id, settledCreated); err != nil {
		return err
	}
	_, err := s.exec(ctx, database, render(settledOthersSQL), settledOf(identity), id, anew)
	return err
}

// SettledBelow returns the lowest id that NoteSettled has noted in any database; 0 if one has no note. All must answer:
// one that was away may have an old note.
func (c *Client) SettledBelow(ctx context.Context, identity string) (below uint64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	notes := make([]uint64, c.layout.Databases)
	var all sync.WaitGroup
	for database := range notes {
		all.Go(func() {
			var err error
			if notes[database], err = c.settledIn(ctx, identity, database); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return slices.Min(notes), context.Cause(ctx)
}

// forgetMovedSQL forgets what was moved from an outbox. Parameters: outbox; limit. Primary key.
const forgetMovedSQL = `DELETE /* tocsin relayed replay */ FROM {database}.relayed
WHERE outbox = ?
ORDER BY outbox, id, created
LIMIT ?`

// ForgetMoved has all databases, which must answer, forget what was moved from an outbox, and notes that nothing is settled: all of it is
// moved again. If it fails, it is to be called again before anything is moved.
func (c *Client) ForgetMoved(ctx context.Context, identity string) error {
	for database, s := range c.home {
		query := c.layout.Render(forgetMovedSQL, database*c.layout.Tables)
		for n := int64(ledgerPage); n == ledgerPage; {
			var err error
			if n, err = s.exec(ctx, database, query, identity, ledgerPage); err != nil {
				return err
			}
		}
	}
	return c.NoteSettled(ctx, identity, 0, 0, false)
}

func (c *Client) settledIn(ctx context.Context, identity string, database int) (id uint64, err error) {
	err = c.Read(ctx, database*c.layout.Tables, settledReadSQL, []any{settledOf(identity)}, func(scan func(...any) error) error { return scan(&id) })
	return id, err
}
