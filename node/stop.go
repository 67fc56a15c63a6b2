package node

import (
	"context"
	"time"
)

// beforeCut is how long before the dispatcher cuts off what is in hand it is
// counted.
const beforeCut = 20 * time.Millisecond

// tellStop logs how a stop proceeds: what was in hand when ctx ended, when all tables
// were given up (which ends left), and what is cut off at the end of the drain
// time-out. It returns when drained is closed.
func (p *parts) tellStop(ctx, left context.Context, drained <-chan struct{}) {
	select {
	case <-drained:
		return
	case <-ctx.Done():
	case <-left.Done():
	}
	log, begun, now := p.cfg.Logger, time.Now(), p.dispatcher.Stats()
	log.Info("stopping: giving up all tables, and waiting for what is in hand",
		"in_delivery", now.Open-now.Unsettled, "unsettled", now.Unsettled, "drain_timeout", p.cfg.DrainTimeout.String())
	select {
	case <-drained:
		return
	case <-left.Done():
	}
	log.Info("all tables are given up", "took", time.Since(begun).Round(time.Millisecond).String())
	cut := time.NewTimer(time.Until(begun.Add(p.cfg.DrainTimeout - beforeCut)))
	defer cut.Stop()
	select {
	case <-drained:
	case <-cut.C:
		now = p.dispatcher.Stats()
		log.Warn("the drain time-out is over: deliveries in hand are cut off, and their tasks delivered again by others",
			"in_delivery", now.Open-now.Unsettled, "unsettled", now.Unsettled)
	}
}
