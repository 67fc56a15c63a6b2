package dispatcher

import (
	"context"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

const (
	lostEvery  = time.Second            // claims without an answer are looked at this often,
	lostAtStop = 100 * time.Millisecond // while the dispatcher ends this often
	mostLost   = 100                    // claims without an answer on a server; the first ones are left to the look at the claimed rows of a table
)

// lostClaim is a claim that got no answer: it may stand, now or in a moment. It is never read back. Its rows are released, each second, until the server
// says that the claim's connection is gone, and once more.
type lostClaim struct {
	connection store.Connection
	by         map[tocsin.JobID]string // the claimers
	entries    []duequeue.Entry
}

// noteLost notes a claim that got no answer.
func (s *server) noteLost(lost *store.Unanswered, request store.RowsClaim) {
	s.warn("unanswered", "a claim got no answer; its rows are released until its connection is gone", lost, "rows", len(lost.IDs))
	c := &lostClaim{connection: lost.Connection, by: make(map[tocsin.JobID]string, len(lost.IDs)), entries: request.Rows}
	for _, id := range lost.IDs {
		c.by[id] = request.Claimer(s.d.cfg.DatabaseOf(id.Table()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, c)
	s.lost = s.lost[max(len(s.lost)-mostLost, 0):]
}

// runLost releases the rows of claims that got no answer, until the dispatcher is stopped and none is left, or ctx ends.
func (s *server) runLost(ctx context.Context, stopped <-chan struct{}) {
	tick := time.NewTicker(lostEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stopped:
			stopped = nil
			tick.Reset(lostAtStop)
		case <-tick.C:
		}
		if left := s.releaseLost(ctx); left == 0 && stopped == nil {
			return
		}
	}
}

// releaseLost releases once, and returns how many claims are left. Rows that are free now, or were never claimed, are queued again.
func (s *server) releaseLost(ctx context.Context) (left int) {
	s.mu.Lock()
	all := slices.Clone(s.lost)
	s.mu.Unlock()
	for _, c := range all {
		gone, err := s.releaseOnce(ctx, c)
		if err != nil {
			s.d.metrics.failed("release", err)
			if mysql.ClassOf(err).OfServer() {
				break
			}
			continue
		}
		if refused := s.d.Offer(s.index, c.entries); len(refused) > 0 {
			s.d.cfg.Refused(s.index, refused)
		}
		if gone {
			s.mu.Lock()
			s.lost = slices.DeleteFunc(s.lost, func(other *lostClaim) bool { return other == c })
			s.mu.Unlock()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lost)
}

// releaseOnce asks the server to end the connection, and releases what the claim has got until now.
func (s *server) releaseOnce(ctx context.Context, c *lostClaim) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, watchWithin)
	defer cancel()
	gone, err = s.d.cfg.Store.EndConnection(ctx, s.index, c.connection)
	if err != nil {
		s.d.metrics.failed("kill", err)
	}
	_, err = s.d.cfg.Store.ReleaseDoubtful(ctx, s.index, c.by)
	return gone, err
}
