package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"sync"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// tolerance is how far the time of a signature may be from now. standard.Webhook goes by it.
const tolerance = 5 * time.Minute

// Seen remembers signed callbacks, so that a copy of one is refused. It is called concurrently.
type Seen interface {
	// Add notes a callback, to be remembered until a time, at most ten minutes ahead. It reports whether the callback is new: of several
	// calls with one id, that is so for one only.
	Add(ctx context.Context, id string, until time.Time) (isNew bool, err error)
}

// signature is what is signed of a callback, as a short id, and how long its signature is valid.
func signature(body []byte, header http.Header) (id string, until time.Time) {
	text := header.Get(standard.HeaderWebhookTimestamp)
	seconds, _ := strconv.ParseInt(text, 10, 64) // it was verified
	sum := sha256.New()
	sum.Write([]byte(header.Get(standard.HeaderWebhookID) + "." + text + "."))
	sum.Write(body)
	return hex.EncodeToString(sum.Sum(nil)[:16]), time.Unix(seconds, 0).Add(tolerance)
}

// recent is a Seen of this process. It keeps an id for as long as the signature is valid, and a minute more at most.
type recent struct {
	mu  sync.Mutex
	ids map[int64]map[string]bool // by the minute in which they are forgotten
}

// Add implements Seen.
func (r *recent) Add(_ context.Context, id string, until time.Time) (isNew bool, err error) {
	minute, now := until.Unix()/60+1, time.Now().Unix()/60
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids[minute][id] {
		return false, nil
	}
	if r.ids[minute] == nil {
		for old := range r.ids {
			if old < now {
				delete(r.ids, old)
			}
		}
		r.ids[minute] = make(map[string]bool)
	}
	r.ids[minute][id] = true
	return true, nil
}

// Memory is a Done of this process: it forgets all when the process ends. Use it in
// tests, or where handling a task twice does little harm.
type Memory struct {
	mu   sync.Mutex
	most int
	has  map[string]bool
	ring []string
	next int // the place in ring of the oldest key, once it is full
}

// NewMemory makes a Memory of the last n keys, at least one.
func NewMemory(n int) *Memory {
	return &Memory{has: make(map[string]bool), most: max(n, 1)}
}

// Has reports whether the key is among the last ones.
func (m *Memory) Has(_ context.Context, key string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.has[key], nil
}

// Put remembers the key, and forgets the oldest one.
func (m *Memory) Put(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.has[key] {
		return nil
	}
	if m.has[key] = true; len(m.ring) < m.most {
		m.ring = append(m.ring, key)
		return nil
	}
	delete(m.has, m.ring[m.next])
	m.ring[m.next] = key
	m.next = (m.next + 1) % m.most
	return nil
}
