package assign

import (
	"sync/atomic"
	"time"
)

// trust is how long a lease may be relied on. It ends by whichever clock of this process comes first: the monotonic one
// stands still while the machine is suspended, and the wall clock can be set back. A virtual machine that is paused may
// stop both; then jumped tells. It is safe for concurrent use.
type trust struct {
	granted atomic.Pointer[grant]
	jumped  func() time.Time // when this process last learnt that it had stood still; zero: never
}

// grant is a renewal that succeeded.
type grant struct {
	start time.Time // of the attempt
	until time.Time // by the monotonic clock
	wall  time.Time // the same by the wall clock
}

// newTrust relies on no lease yet.
func newTrust(jumped func() time.Time) *trust { return &trust{jumped: jumped} }

// stopping is what is left at least of a lease when a node stops trusting it: what is in delivery is claimed meanwhile.
const stopping = 500 * time.Millisecond

// longestTrust bounds for how long a node relies on a renewal, however long its lease is: an etcd that has forgotten the lease
// waits as long for the node, whose TTL it does not know.
const longestTrust = 10 * time.Second

// margin is what is kept of a TTL for clocks that run at different speeds, and for stopping.
func margin(ttl time.Duration) time.Duration { return max(ttl/10, stopping) }

// renew notes that an attempt that began at start was granted ttl. etcd began to count later than that.
func (t *trust) renew(start time.Time, ttl time.Duration) {
	ttl = min(ttl, longestTrust)
	until := start.Add(ttl - margin(ttl))
	t.granted.Store(&grant{start, until, until.Round(0)})
}

// end ends the trust at once.
func (t *trust) end() { t.granted.Store(nil) }

// left says for how long the lease may still be relied on; not positive: not any more.
func (t *trust) left() time.Duration {
	g := t.granted.Load()
	if g == nil || !g.start.After(t.jumped()) {
		return 0
	}
	now := time.Now()
	return min(g.until.Sub(now), g.wall.Sub(now.Round(0)))
}
