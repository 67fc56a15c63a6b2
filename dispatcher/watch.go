package dispatcher

import (
	"context"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/store"
)

const (
	watchEvery  = time.Second     // deliveries that take longer are rechecked this often, until their targets return
	watchWithin = 5 * time.Second // a recheck that takes longer has failed
)

// watch looks once a second for tasks that were cancelled or rescheduled during a long delivery, until ctx ends. Short deliveries
// cost nothing: their outcomes meet the change when they are settled.
func (s *server) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			long := now.Add(-watchEvery)
			s.recheck(ctx, s.inHand(func(a *attempt) bool { return a.state == delivering && a.began.Before(long) }))
		}
	}
}

// inHand returns the contexts of the server's deliveries that match, whose targets have not returned.
func (s *server) inHand(match func(*attempt) bool) (all []*attemptContext) {
	for _, k := range s.d.allKinds() {
		k.mu.Lock()
		for w := range k.workers {
			w.mu.Lock()
			if a := &w.attempt; a.state != atRest && a.server() == s && match(a) {
				all = append(all, a.ctx)
			}
			w.mu.Unlock()
		}
		k.mu.Unlock()
	}
	return all
}

// recheck reads the tasks of deliveries, and calls off those that were cancelled or rescheduled.
func (s *server) recheck(ctx context.Context, deliveries []*attemptContext) {
	seen := make(map[tocsin.JobID]store.Seen)
	for _, c := range deliveries {
		c.addSeen(seen)
	}
	if len(seen) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, watchWithin)
	defer cancel()
	fates, err := s.d.cfg.Store.Recheck(ctx, s.index, seen)
	if err != nil && s.d.work.Err() == nil {
		s.d.metrics.failed("recheck", err)
	}
	if len(fates) == 0 {
		return
	}
	causes := make(map[tocsin.JobID]error, len(fates))
	for id, fate := range fates {
		causes[id] = whyOff[fate]
	}
	for _, c := range deliveries {
		c.callOff(causes)
	}
}

// addSeen notes the tasks of a delivery as they were loaded; tasks that are called off are left out.
func (c *attemptContext) addSeen(to map[tocsin.JobID]store.Seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tasks {
		if c.off[t.JobID] == nil {
			to[t.JobID] = store.Seen{Version: t.Version, LastError: t.LastError}
		}
	}
}

// callOff notes which tasks are not wanted any more, and why, and ends the context when none of them is: the others of a batch
// still want their outcomes.
func (c *attemptContext) callOff(causes map[tocsin.JobID]error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tasks {
		if cause := causes[t.JobID]; cause != nil {
			if c.off == nil {
				c.off = make(map[tocsin.JobID]error)
			}
			c.off[t.JobID] = cause
		}
	}
	if cause := c.cause(); cause != nil && c.stop != nil {
		c.stop(cause)
	}
}

// cause says why the context has ended before its time; nil: a task is wanted, or the delivery is over. Called under c.mu.
func (c *attemptContext) cause() error {
	if c.tasks == nil || len(c.off) < len(c.tasks) {
		return nil
	}
	return c.off[c.tasks[0].JobID]
}

// whyOff says why a context ends.
var whyOff = [store.Fates]error{store.Cancelled: tocsin.ErrCancelled, store.Rescheduled: tocsin.ErrRescheduled}

// calledOff ends a delivery whose task is not wanted any more: a failure that follows from that is none.
var calledOff = reply{verb: tocsin.Snoozed}

// excuse replaces the failures of tasks that were called off.
func (a *attempt) excuse(replies []reply) {
	a.ctx.mu.Lock()
	defer a.ctx.mu.Unlock()
	if a.ctx.off == nil {
		return
	}
	for i, t := range a.tasks {
		if verb := replies[i].verb; a.ctx.off[t.row.JobID] != nil && (verb == tocsin.Retried || verb == tocsin.Buried) {
			replies[i] = calledOff
		}
	}
}
