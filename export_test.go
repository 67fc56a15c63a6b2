package tocsin

import "time"

// NextIDAt makes the client's ids go on from a time of the future, so that a
// test can make it give the same ids twice.
func (c *Client) NextIDAt(t time.Time) { c.ids.last.Store(t.Sub(Epoch).Milliseconds() << seqBits) }
