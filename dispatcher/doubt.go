package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// claimRows claims rows. If the commit gets no answer, it reads the claim back, for
// as long as the context of within lives. Otherwise a claim could stand that no
// process knows of; it would run out, which makes the task late and counts as a
// crash. The error is nil if all rows are claimed.
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
	s.d.cfg.Logger.Warn("a claim got no answer; it was read back",
		"error", err, "server", s.index, "rows", len(doubt.IDs), "claimed", len(back))
	if rows = append(rows, back...); len(rows) == len(c.Rows) {
		return rows, nil
	}
	return rows, err
}

// readBack retries until the server answers. A row may stay locked, because the
// server still holds the lost connection; such a row is retried for as long as the
// claim would last.
func (s *server) readBack(ctx context.Context, d *store.InDoubt, hold time.Duration) ([]store.Row, error) {
	end := time.Now().Add(hold)
	again := func(of mysql.Class) bool { return of.Transient() && (of != mysql.Contended || time.Now().Before(end)) }
	return persist(ctx, s, "read_back", again, func() ([]store.Row, error) { return s.d.cfg.Store.ReadBack(ctx, d) })
}

// again settles outcomes once more, as those of claims that were in doubt until now, if
// these seem to stand. It returns the others, in place.
func (s *server) again(batch []result, fates []store.Fate) ([]result, []store.Fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for i, r := range batch {
		if fates[i] == store.ClaimLost && !r.after && !r.claimed && r.doubt != 0 {
			r.claimed, r.row.Action, r.doubt = true, r.doubt, 0
			s.enqueue(r)
			signal(s.settler.flush)
			continue
		}
		batch[n], fates[n] = r, fates[i]
		n++
	}
	return batch[:n], fates[:n]
}

// whileDraining returns a context that ends with the drain time-out after the end of
// the intake. Claims, and questions about them, may run until then.
func (d *Dispatcher) whileDraining() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(d.intake, func() {
		timer := time.AfterFunc(time.Until(d.drainEnd()), cancel)
		context.AfterFunc(ctx, func() { timer.Stop() })
	})
	return ctx, func() { stop(); cancel() }
}
