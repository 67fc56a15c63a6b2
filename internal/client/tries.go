package client

import (
	"context"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// How long a write that lost its connection goes on. One that was never sent
// ends soon, its caller knows that nothing is stored; one that may have
// happened asks longer, to be able to say what did.
const (
	unsentFor = 3 * time.Second
	unsureFor = 15 * time.Second
	lostPause = 10 * time.Millisecond // before the first repeat; it doubles
	lostLimit = time.Second           // the longest pause
)

// tries is the history of one write over lost connections.
type tries struct {
	began time.Time
	pause time.Duration
	maybe bool // an earlier try may have been carried out
}

func newTries() *tries { return &tries{began: time.Now(), pause: lostPause} }

// again notes a failed try and waits before the next one; sent tells whether
// the statement left this process. It returns false where no further try is to
// be made: the error is of another kind, ctx has ended or it took too long.
func (t *tries) again(ctx context.Context, sent bool, err error) bool {
	t.maybe = t.maybe || sent && mysql.InDoubt(err)
	limit := unsentFor
	if t.maybe {
		limit = unsureFor
	}
	if !mysql.Away(err) || time.Since(t.began) > limit {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(t.pause):
	}
	t.pause = min(2*t.pause, lostLimit)
	return true
}

// failure words the last error of a write to a place: "toc_3.task_0517 on db1".
func (t *tries) failure(id uint64, where string, err error) error {
	if t.maybe {
		return fmt.Errorf("add task %d to %s: %w: %w", id, where, ErrUnknownOutcome, err)
	}
	return fmt.Errorf("add task to %s: %w", where, outage(err))
}
