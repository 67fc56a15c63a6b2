package tocsin

import (
	"context"
	"time"
)

// NextIDAt makes the client's ids go on from a time of the future, so that a
// test can make it give the same ids twice.
func (c *Client) NextIDAt(t time.Time) { c.ids.maker.Start(t) }

// ServerClock returns the first server's clock as a look at its databases tells it.
func (c *Client) ServerClock(ctx context.Context) (time.Time, error) {
	s := c.home[0]
	f, err := s.look(ctx, s.DB, c.want)
	if err != nil {
		return time.Time{}, err
	}
	return f.now, nil
}

// ListStatement is a statement of ListPage, and its parameters.
type ListStatement struct {
	Text string
	Args []any
}

// ListStatements returns the statements that read a page after a place, in order.
func ListStatements(l Layout, bizID uint64, after *ListPlace, types []uint64, limit int) (all []ListStatement) {
	for _, s := range after.spans(types) {
		all = append(all, ListStatement{l.render(listSQL(s, limit), l.TableOf(bizID)), append([]any{bizID}, s.args...)})
	}
	return all
}

// StoreInDoubt stores a task under an id that an earlier try of the same AddMany may have stored, while its row is locked, as by that
// try. Then meanwhile runs; if it returns an error, the server is gone.
func (c *Client) StoreInDoubt(ctx context.Context, t NewTask, id JobID, meanwhile func() error) (added Added) {
	r, err := c.row(ctx, t)
	if err != nil {
		return Added{Err: err}
	}
	r.id, r.out = id, &added
	s := c.home[c.layout.DatabaseOf(r.table)]
	f, err := s.seen(ctx, c.want)
	if err != nil {
		return Added{Err: err}
	}
	b := &batch{client: c, server: s, facts: f}
	b.store(ctx, chunk{[]*row{&r}, true})
	if gone := meanwhile(); gone != nil {
		b.gone.Store(&gone)
	}
	b.finish(ctx)
	return added
}
