package assign

import (
	"sync/atomic"
	"time"
)

// trust is how long a lease may be relied on, by this process's monotonic clock. It is safe for concurrent use.
type trust struct {
	base  time.Time    // its monotonic reading is what times are counted from
	until atomic.Int64 // nanoseconds since base; 0 is never
}

func newTrust() *trust { return &trust{base: time.Now()} }

// margin is what is kept of a TTL for clocks that run at different speeds, and for stopping.
func margin(ttl time.Duration) time.Duration { return ttl / 10 }

// renew notes that an attempt that began at start was granted ttl. etcd began to count later than that.
func (t *trust) renew(start time.Time, ttl time.Duration) {
	t.until.Store(int64(start.Sub(t.base) + ttl - margin(ttl)))
}

// end ends the trust at once.
func (t *trust) end() { t.until.Store(0) }

// left says for how long the lease may still be relied on; not positive: not any more.
func (t *trust) left() time.Duration {
	return time.Duration(t.until.Load()) - time.Since(t.base)
}
