package api

import (
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// What bodies and pages of tasks in hand may hold: of one token as much as 8 of the largest bodies, of all tokens as much as 32.
const (
	shareBodies = 8
	allBodies   = 32
	pageBytes   = 1 << 20 // of a page of tasks
)

// rates counts the requests of each token, and what they hold.
type rates struct {
	limit rate.Limit
	bytes int64 // of a token
	all   *semaphore.Weighted

	mu     sync.Mutex
	shares map[string]*share // by the id of the token: as many as there are tokens, and groups of the console
}

// share is what one token has used.
type share struct {
	requests *rate.Limiter
	held     *semaphore.Weighted
	all      *semaphore.Weighted // of all shares
	connects *semaphore.Weighted // requests with connections of their own
}

// maxConnects is how many requests of a token at once may have connections of their own; others of it wait for them.
const maxConnects = 8

func newRates(perSecond float64, body int64) *rates {
	body = max(body, pageBytes)
	return &rates{limit: rate.Limit(perSecond), bytes: shareBodies * body, all: semaphore.NewWeighted(allBodies * body), shares: map[string]*share{}}
}

// of returns the share of a token.
func (r *rates) of(id string) *share {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.shares[id]
	if s == nil {
		s = &share{rate.NewLimiter(r.limit, int(math.Ceil(float64(r.limit)))), semaphore.NewWeighted(r.bytes), r.all, semaphore.NewWeighted(maxConnects)}
		r.shares[id] = s
	}
	return s
}

// take counts a request, and returns 0; or the seconds after which the token may send another.
func (s *share) take() int {
	if s.requests.Allow() {
		return 0
	}
	missing := 1 - s.requests.TokensAt(time.Now())
	return max(int(math.Ceil(missing/float64(s.requests.Limit()))), 1)
}

// hold counts bytes as held by a call until it ends, and reports whether there was room for them.
func (c *call) hold(bytes int64) bool {
	if !c.share.held.TryAcquire(bytes) {
		return false
	}
	if !c.share.all.TryAcquire(bytes) {
		c.share.held.Release(bytes)
		return false
	}
	c.held += bytes
	return true
}

// release gives back what a call holds.
func (c *call) release() {
	if c.held > 0 {
		c.share.held.Release(c.held)
		c.share.all.Release(c.held)
	}
}

// maxWide is how many requests at once may read an index of every table.
const maxWide = 2

// widely does what reads all tables, unless as much is under way.
func widely[T any](a *API, do func() (T, error)) (out T, err error) {
	if !a.wide.TryAcquire(1) {
		return out, problem(http.StatusTooManyRequests, "busy", "%d requests that read all tables are under way: repeat this one after Retry-After", maxWide).after(retrySoon)
	}
	defer a.wide.Release(1)
	return do()
}

// full is the problem of a request that there is no room for.
func full() *Problem {
	return problem(http.StatusTooManyRequests, "busy", "the requests in hand hold as much as they may: send fewer at once, and repeat this one after Retry-After").after(retrySoon)
}
