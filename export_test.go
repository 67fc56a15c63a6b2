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
