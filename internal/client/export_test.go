package client

import (
	"context"
	"time"
)

// ServerClock returns the first server's clock as a look at its databases tells it.
func (c *Client) ServerClock(ctx context.Context) (time.Time, error) {
	s := c.home[0]
	f, err := s.look(ctx, s.DB)
	if err != nil {
		return time.Time{}, err
	}
	return f.now, nil
}

// StoreInDoubt stores a task under an id that an earlier try of the same AddMany may have stored, while its row is locked, as by that
// try. Then meanwhile runs; if it returns an error, the server is gone.
func (c *Client) StoreInDoubt(ctx context.Context, t Task, id uint64, meanwhile func() error) Added {
	r, err := c.Row(ctx, t)
	if err != nil {
		return Added{Err: err}
	}
	r.id = id
	s := c.homeOf(r.table)
	f, err := s.seen(ctx)
	if err != nil {
		return Added{Err: err}
	}
	b := &batch{client: c, server: s, facts: f}
	b.store(ctx, chunk{[]*Row{&r}, true})
	if gone := meanwhile(); gone != nil {
		b.gone.Store(&gone)
	}
	b.finish(ctx)
	return r.Out
}
