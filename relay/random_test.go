package relay

import (
	"context"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/relay/relaytest"
)

// Whatever happens to rows, and however transactions end, each row is moved once, and those of one biz_id in the order of
// their ids.
func TestOrderWhateverHappens(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	cfg := s.config()
	cfg.Whole, cfg.GapAge = 50*time.Millisecond, 100*time.Millisecond
	operator := s.outbox()
	relaytest.Random(t, relaytest.Shop{
		Client: s.client, Begin: s.db.Begin, BizType: closeOrder,
		Turn:  func(ctx context.Context, to *relaytest.Moody) { _ = Turn(ctx, cfg, to) }, // it ends with ctx, or is repeated
		Retry: func() error { _, err := operator.Retry(t.Context(), nil, true); return err },
		Rows:  func() int { return s.number("SELECT COUNT(*) FROM {outbox}") },
	})
}
