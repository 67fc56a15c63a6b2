package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/wait"
)

// How long a change that lost its connection is tried again: it may have been made.
const (
	triesFor   = 15 * time.Second
	triesPause = 10 * time.Millisecond // before the first repeat; it doubles
	triesLimit = time.Second           // the longest pause
)

// tries is the history of one change over lost connections. The zero value is ready.
type tries struct {
	began time.Time
	pause time.Duration
	maybe bool // an earlier try may have been carried out
}

// again notes a failed try and waits before the next one. It returns false if there must be no further try.
func (t *tries) again(ctx context.Context, err error) bool {
	class := mysql.ClassOf(err)
	t.maybe = t.maybe || class == mysql.Lost || class == mysql.Canceled
	if t.began.IsZero() {
		t.began, t.pause = time.Now(), triesPause
	}
	if class != mysql.Lost && class != mysql.Demoted || time.Since(t.began) > triesFor {
		return false
	}
	pause := t.pause
	t.pause = min(2*t.pause, triesLimit)
	return wait.For(ctx, pause) == nil
}

// failure words the last error of a change.
func (t *tries) failure(err error) error {
	class := mysql.ClassOf(err)
	switch {
	case err == nil:
		return nil
	case t.maybe && (class.OfServer() || class == mysql.Canceled):
		return fmt.Errorf("%w: %w", tocsin.ErrUnknownOutcome, err)
	case class.OfServer():
		return fmt.Errorf("%w: %w", tocsin.ErrUnreachable, err)
	}
	return err
}
