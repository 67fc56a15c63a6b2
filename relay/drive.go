package relay

import (
	"context"

	"github.com/tocsinhq/tocsin/outbox"
)

// Tasks is where rows are moved to. A tocsin.Client is one.
type Tasks = tasks

// Turn relays the only outbox of a config without taking its lock, until ctx ends or the outbox fails. It is for tests of
// relays that are active at the same time, and of everything that can happen to a row.
func Turn(ctx context.Context, cfg Config, to Tasks) error {
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
