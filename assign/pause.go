package assign

import (
	"sync"
	"time"
)

// outage is the last time that etcd was away, as this node noticed it. It is safe for concurrent use.
type outage struct {
	mu   sync.Mutex
	over time.Time // when etcd was back; zero: it was never away
	late bool      // the lease has outlived it
}

// end notes that etcd is back.
func (o *outage) end(late bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over, o.late = time.Now(), late
}

func (o *outage) last() (over time.Time, late bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.over, o.late
}

// Bounds of the time before a table is tried again that the holder could not take.
const (
	minRefusal = time.Second
	maxRefusal = 30 * time.Second
)

// refusal is a table that the holder could not take.
type refusal struct {
	delay time.Duration
	until time.Time
}

// again is the refusal after one more failure.
func (r refusal) again(now time.Time) refusal {
	delay := min(max(2*r.delay, minRefusal), maxRefusal)
	return refusal{delay: delay, until: now.Add(delay)}
}

// orphan is a key without a node, and since when it was seen so unchanged.
type orphan struct {
	mod   int64
	since time.Time
}
