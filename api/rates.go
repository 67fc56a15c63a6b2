package api

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// rates counts the requests of each token.
type rates struct {
	limit rate.Limit

	mu sync.Mutex
	of map[string]*rate.Limiter // by the id of the token: as many as there are tokens
}

func newRates(perSecond float64) *rates {
	return &rates{limit: rate.Limit(perSecond), of: map[string]*rate.Limiter{}}
}

// take counts a request, and returns 0; or the seconds after which the token may send another.
func (r *rates) take(id string) int {
	r.mu.Lock()
	l := r.of[id]
	if l == nil {
		l = rate.NewLimiter(r.limit, int(math.Ceil(float64(r.limit))))
		r.of[id] = l
	}
	r.mu.Unlock()
	if l.Allow() {
		return 0
	}
	missing := 1 - l.TokensAt(time.Now())
	return max(int(math.Ceil(missing/float64(r.limit))), 1)
}
