package relay

import (
	"context"

	"github.com/tocsinhq/tocsin/outbox"
)

// Turn relays the only outbox of a config without taking its lock, until ctx ends or the outbox fails. It is for tests of
// relays that are active at the same time, and of everything that can happen to a row.
func Turn(ctx context.Context, cfg Config, to Mover) error {
	r, err := New(cfg)
	if err != nil {
		return err
	}
	from, err := outbox.Open(r.cfg.Outboxes[0])
	if err != nil {
		return err
	}
	defer from.Close()
	session, err := from.Session(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	return newTurn(&line{Relay: r, outbox: from, tasks: to, gauges: r.metrics.of(from.Name)}, session).run(ctx)
}
