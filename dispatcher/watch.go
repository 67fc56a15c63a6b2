package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/store"
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
			s.recheck(ctx, s.long(now.Add(-watchEvery)))
		}
	}
}

// long returns the contexts of the server's deliveries that began before a time.
func (s *server) long(before time.Time) (all []*attemptContext) {
	for _, k := range s.d.allKinds() {
		k.mu.Lock()
		for w := range k.workers {
			w.mu.Lock()
			if a := &w.attempt; a.state == delivering && a.began.Before(before) && a.server() == s {
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
	for _, c := range deliveries {
		c.callOff(fates)
	}
}

// addSeen notes the tasks of a delivery as they were loaded; tasks that are called off are left out.
func (c *attemptContext) addSeen(to map[tocsin.JobID]store.Seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, t := range c.tasks {
		if c.off == nil || c.off[i] == nil {
			to[t.JobID] = store.Seen{Version: t.Version, LastError: t.LastError}
		}
	}
}

// callOff notes which tasks were cancelled or rescheduled, and ends the context when all of them were: the others of a batch
// still want their outcomes.
func (c *attemptContext) callOff(fates map[tocsin.JobID]store.Fate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, t := range c.tasks {
		if cause := whyOff[fates[t.JobID]]; cause != nil {
			if c.off == nil {
				c.off = make([]error, len(c.tasks))
			}
			c.off[i] = cause
		}
	}
	if c.off == nil || slices.Contains(c.off, nil) || c.cause != nil {
		return
	}
	c.cause = c.off[0]
	if c.stop != nil {
		c.stop(c.cause)
	}
}

// whyOff says why a context ends.
var whyOff = [store.Fates]error{store.Cancelled: tocsin.ErrCancelled, store.Rescheduled: tocsin.ErrRescheduled}

// errCalledOff ends a delivery whose task was cancelled or rescheduled: a failure that follows from that is none.
var errCalledOff = fmt.Errorf("called off: %w", tocsin.Snooze(0))

// excuse replaces the failures of tasks that were called off.
func (c *attemptContext) excuse(errs []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, cause := range c.off {
		if verb, _, _ := tocsin.AsOutcome(errs[i]); cause != nil && (verb == tocsin.Retried || verb == tocsin.Buried) {
			errs[i] = errCalledOff
		}
	}
}
