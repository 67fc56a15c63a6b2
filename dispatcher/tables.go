package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// set is a set of table numbers.
type set map[int]bool

// waiter waits until no open task of its server matches.
type waiter struct {
	match func(*task) bool // called under server.mu
	gone  chan struct{}
}

// Set lets rows of the tables start as the access says; with nil what is queued and loaded of them is forgotten. When it
// returns, nothing starts any more under the former access; what is in delivery goes on (see Drain). Rows of an Owner start
// without a claim while Config.LeaseOK says so for it, else each by a claim that the owner row fences.
func (d *Dispatcher) Set(tables []int, as *duequeue.Access) {
	by := d.byServer(tables)
	for index, numbers := range by {
		if s := d.servers[index]; as != nil {
			s.admit(numbers, as)
		} else {
			s.drop(numbers)
		}
	}
	if as != nil {
		return
	}
	for _, k := range d.allKinds() {
		giveBack(k.takeReady(func(t *task) bool { return by[t.lane.server.index][t.table()] }))
	}
}

// Loosen is called when the lease behind an owner can't be proven any more, and
// LeaseOK says so already: it claims what is in delivery without a claim, so that
// the next owner will not deliver it too. What it could not claim goes on; its
// error says why.
func (d *Dispatcher) Loosen(ctx context.Context, owner string) error {
	var g errgroup.Group
	for _, s := range d.servers {
		g.Go(func() error {
			return s.claimOpen(ctx, owner, func(t *task) bool { return s.known(t.table()).access.Owner == owner })
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("claim what is in delivery: %w", err)
	}
	return nil
}

// Drain returns when nothing of the tables is in delivery or waiting to be
// settled. What is still in delivery after half a second is claimed instead, so
// that nobody else delivers it; it goes on and is settled as claimed. Call Set with
// nil first. An error, when ctx ends, is *Undrained; a ctx of less than half a second
// tells which tables have something in delivery, and claims nothing.
func (d *Dispatcher) Drain(ctx context.Context, tables []int) error {
	var mu sync.Mutex
	var stuck []int
	var wg sync.WaitGroup
	for index, numbers := range d.byServer(tables) {
		wg.Go(func() {
			left := d.servers[index].drain(ctx, numbers)
			mu.Lock()
			defer mu.Unlock()
			stuck = append(stuck, left...)
		})
	}
	wg.Wait()
	if len(stuck) == 0 {
		return nil
	}
	return &Undrained{Tables: stuck, Err: context.Cause(ctx)}
}

// Undrained is the error of a Drain that ended too early for some tables. They
// are not safe to give away; the others are.
type Undrained struct {
	Tables []int
	Err    error
}

// Error tells how many tables, and why.
func (u *Undrained) Error() string {
	return fmt.Sprintf("%d tables have outcomes that are not stored yet: %v", len(u.Tables), u.Err)
}

// Unwrap gives the reason.
func (u *Undrained) Unwrap() error { return u.Err }

func (d *Dispatcher) byServer(tables []int) map[int]set {
	m := make(map[int]set)
	for _, n := range tables {
		index := d.cfg.ServerOf(n)
		if m[index] == nil {
			m[index] = make(set)
		}
		m[index][n] = true
	}
	return m
}

func (s *server) admit(numbers set, as *duequeue.Access) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if as.Types == nil {
		s.owner = as.Owner
	}
	for n := range numbers {
		t := s.known(n)
		t.admitted, t.access, t.since = true, *as, time.Now()
		if as.Unclean {
			t.uncleanUntil = time.Now().Add(uncleanFor)
		}
	}
	s.settler.retry(numbers) // they may have been waiting for this
}

func (s *server) drop(numbers set) {
	s.mu.Lock()
	for n := range numbers {
		s.known(n).admitted = false
	}
	for _, l := range s.order {
		l.queue.Drop(func(table int) bool { return numbers[table] })
	}
	taken := s.takeEarly(func(t *task) bool { return numbers[t.table()] })
	s.mu.Unlock()
	giveBack(taken)
}

// drain returns the tables that are not drained when ctx ends.
func (s *server) drain(ctx context.Context, numbers set) []int {
	patience, cancel := context.WithTimeout(ctx, handOverAfter)
	defer cancel()
	mine := func(t *task) bool { return numbers[t.table()] }
	if s.awaitNone(patience, mine) == nil {
		return nil
	}
	left := func(t *task) bool { return mine(t) && !t.foreign && (!t.claimed || t.reported) }
	for ctx.Err() == nil {
		_ = s.claimOpen(ctx, "", mine) // the failure is counted
		again, cancel := context.WithTimeout(ctx, handOverAfter)
		err := s.awaitNone(again, left)
		cancel()
		if err == nil {
			return nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(set)
	for _, t := range s.open {
		if left(t) {
			found[t.table()] = true
		}
	}
	return slices.Collect(maps.Keys(found))
}

// awaitNone returns when no open task matches, or ctx's error.
func (s *server) awaitNone(ctx context.Context, match func(*task) bool) error {
	w := &waiter{match: match, gone: make(chan struct{})}
	s.mu.Lock()
	s.waiters[w] = struct{}{}
	s.tellWaiters()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiters, w)
	}()
	select {
	case <-w.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tellWaiters is called under s.mu whenever open tasks have gone.
func (s *server) tellWaiters() {
	for w := range s.waiters {
		if !slices.ContainsFunc(s.open, w.match) {
			close(w.gone)
			delete(s.waiters, w)
		}
	}
}

// claimOpen claims what is in delivery without a claim, each for as long as its
// biz type's time-out and the margin; fenced by the owner if that is not "".
// Outcomes that come meanwhile wait, so that they are settled as what the row has
// become.
func (s *server) claimOpen(ctx context.Context, owner string, match func(*task) bool) error {
	var failed error
	marked := make(map[*lane][]*task)
	s.mu.Lock()
	for _, t := range s.open {
		if match(t) && !t.claimed && !t.claiming && !t.reported && !t.foreign {
			t.claiming = true
			marked[t.lane] = append(marked[t.lane], t)
		}
	}
	s.mu.Unlock()
	for _, tasks := range marked {
		for part := range slices.Chunk(tasks, chunk) {
			if err := s.claimInDelivery(ctx, owner, part); err != nil {
				failed = err
			}
		}
	}
	return failed
}

func (s *server) claimInDelivery(ctx context.Context, owner string, tasks []*task) error {
	entries := make([]duequeue.Entry, len(tasks))
	timeout := time.Duration(0)
	for i, t := range tasks {
		entries[i] = t.entry(t.row.Action)
		timeout = max(timeout, t.timeout)
	}
	asLong := func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }
	rows, err := s.claimRows(ctx, asLong, store.Claim{
		Server: s.index,
		Rows:   entries,
		By:     s.d.cfg.Node,
		Hold:   timeout + claimMargin,
		Fence:  s.d.fence(owner),
	})
	s.unmarkClaiming(tasks, rows, err)
	return err
}

// unmarkClaiming books what a claim got and lets the outcomes that waited for
// it go on.
func (s *server) unmarkClaiming(tasks []*task, rows []store.Row, err error) {
	doubt := &store.InDoubt{}
	errors.As(err, &doubt)
	claimed := make(map[tocsin.JobID]store.Row, len(rows))
	for _, row := range rows {
		claimed[row.JobID] = row
	}
	s.mu.Lock()
	for _, t := range tasks {
		t.claiming = false
		switch row, got := claimed[t.row.JobID]; {
		case !got && slices.Contains(doubt.IDs, t.row.JobID):
			t.doubt = doubt.Deadline
		case !got:
			t.foreign = err == nil
		case row.Version == t.row.Version && row.Attempts == t.row.Attempts:
			t.claimed, t.row.Action = true, row.Action
		default: // changed to the very millisecond it was loaded at: another's attempt now, and its claim runs out
			t.foreign = true
		}
		if t.parked != nil {
			s.enqueue(result{task: t, ending: *t.parked})
			t.parked = nil
		}
	}
	s.tellWaiters()
	s.mu.Unlock()
	signal(s.settler.flush)
}

// InHand reports whether rows of a biz type are in delivery or wait to be settled.
func (d *Dispatcher) InHand(bizType uint64) bool {
	return slices.ContainsFunc(d.servers, func(s *server) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.ContainsFunc(s.open, func(t *task) bool { return t.row.Type == bizType })
	})
}
