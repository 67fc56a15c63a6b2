package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/store"
)

// claimRows claims rows. If the commit gets no answer it reads the claim back, as
// long as the context of within lives: a claim that stands and that nobody knows of
// would run out, which makes the task late and counts as a crash. The error is nil
// if all rows are claimed.
func (s *server) claimRows(ctx context.Context, within func() (context.Context, context.CancelFunc), c store.Claim) ([]store.Row, error) {
	rows, err := s.d.cfg.Store.Claim(ctx, c)
	if err == nil {
		return rows, nil
	}
	s.d.metrics.failed("claim", err)
	doubt := (*store.InDoubt)(nil)
	if !errors.As(err, &doubt) {
		return rows, err
	}
	ctx, cancel := within()
	defer cancel()
	back, unread := s.readBack(ctx, doubt, c.Hold)
	if unread != nil {
		return rows, errors.Join(err, unread)
	}
	s.d.metrics.readBack.Add(float64(len(back)))
	s.d.cfg.Logger.Warn().Err(err).Int("server", s.index).Int("rows", len(doubt.IDs)).Int("claimed", len(back)).
		Msg("a claim got no answer; it was read back")
	if rows = append(rows, back...); len(rows) == len(c.Rows) {
		return rows, nil
	}
	return rows, err
}

// readBack asks until the server answers. A row that stays locked, as where the
// server still holds the connection that was lost, is asked for as long as the
// claim would last.
func (s *server) readBack(ctx context.Context, d *store.InDoubt, hold time.Duration) ([]store.Row, error) {
	end := time.Now().Add(hold)
	return backoff.Retry(ctx, func() ([]store.Row, error) {
		rows, err := s.d.cfg.Store.ReadBack(ctx, d)
		if err == nil {
			return rows, nil
		}
		s.d.metrics.failed("read_back", err)
		if class := mysql.ClassOf(err); !class.Transient() || class == mysql.Contended && time.Now().After(end) {
			err = backoff.Permanent(err)
		}
		return nil, err
	}, backoff.WithBackOff(reconnect()), backoff.WithMaxElapsedTime(0))
}

// again settles the outcome of a row as that of a claim which was in doubt until
// now, if it was not what it was loaded as. Called under s.mu.
func (s *server) again(r result, fate store.Fate) bool {
	if fate != store.ClaimLost || r.claimed || r.doubt == 0 {
		return false
	}
	r.claimed, r.row.Action, r.doubt = true, r.doubt, 0
	s.enqueue(r)
	signal(s.flush)
	return true
}

// whileDraining gives a context that ends with the drain time-out after the end of the
// intake: what must be known of rows in hand may be asked until then.
func (d *Dispatcher) whileDraining() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(d.intake, func() {
		timer := time.AfterFunc(time.Until(d.drainEnd()), cancel)
		context.AfterFunc(ctx, func() { timer.Stop() })
	})
	return ctx, func() { stop(); cancel() }
}
