package scanner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// claims is a store of one table with a claim that runs out at a time.
type claims struct {
	*rows
	ends   time.Time // zero: there is no claim
	stuck  bool      // nothing is recovered, and nothing fails
	err    error     // of a recovery
	tries  int
	ended  time.Time // it was recovered
	looked int
}

func (c *claims) NextRunOut(context.Context, int, []int) (time.Duration, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked++
	return max(time.Until(c.ends), 0), !c.ends.IsZero(), nil
}

func (c *claims) Recover(context.Context, int, []int, int, map[string]string) (store.Recovered, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tries++; c.stuck || c.err != nil {
		return store.Recovered{}, c.err
	}
	c.ends, c.ended = time.Time{}, time.Now()
	return store.Recovered{Leases: 1}, nil
}

// looks returns how often claims were to be recovered.
func (c *claims) looks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tries
}

// claiming runs a scanner whose regular peeks and full looks are far apart.
func claiming(t *testing.T, as *duequeue.Access, types ...uint64) (*Scanner, *claims) {
	c := &claims{rows: &rows{places: 1, pending: make(map[tocsin.JobID]row)}}
	s := run(t, Config{Store: c, Intake: newLanes(4, types...), Interval: time.Hour, FullEvery: time.Hour})
	s.Set([]int{0}, as)
	pass(time.Second)
	return s, c
}

func TestAClaimThatCannotBeRecoveredIsLookedAtOnceASecond(t *testing.T) {
	for name, c := range map[string]struct {
		stuck bool
		err   error
		types []uint64
	}{
		"the row is locked":            {err: errors.New("locked"), types: []uint64{1}},
		"the row is not found":         {stuck: true, types: []uint64{1}},
		"and all types are paused":     {stuck: true},
		"locked, all types are paused": {err: errors.New("locked")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, of := claiming(t, owner, c.types...)
				of.mu.Lock()
				of.ends, of.stuck, of.err = time.Now().Add(time.Second), c.stuck, c.err
				of.mu.Unlock()
				s.RunOut(0, []int{0}, of.ends)
				pass(20 * time.Second)
				of.mu.Lock()
				defer of.mu.Unlock()
				if of.tries < 10 || of.tries > 20 {
					t.Errorf("%d tries in 19 s", of.tries)
				}
			})
		})
	}
}

// A node that stands in for the owner of a table has told nobody else of its leases there.
func TestALeaseIsRecoveredAtItsTimeByWhoeverHasGivenIt(t *testing.T) {
	for name, as := range map[string]*duequeue.Access{
		"the owner": owner, "a stand-in": {Owner: "other", Types: []uint64{1}, Guest: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, of := claiming(t, as, 1)
				of.mu.Lock()
				first := time.Now().Add(10 * time.Second)
				of.ends = first.Add(10 * time.Second) // extended since
				of.looked = 0
				of.mu.Unlock()
				s.RunOut(0, []int{0}, first)
				pass(time.Minute)
				of.mu.Lock()
				defer of.mu.Unlock()
				if late := of.ended.Sub(first); late < 10*time.Second || late > 11*time.Second || of.looked > 5 {
					t.Errorf("recovered %s after the first end, after %d looks", late, of.looked)
				}
			})
		})
	}
}

func TestAGuestThatHasGivenNoLeaseLeavesClaimsToTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, of := claiming(t, &duequeue.Access{Owner: "other", Types: []uint64{1}, Guest: true}, 1)
		of.mu.Lock()
		of.ends, of.looked = time.Now().Add(time.Second), 0
		of.mu.Unlock()
		pass(time.Minute)
		of.mu.Lock()
		defer of.mu.Unlock()
		if of.looked > 0 {
			t.Errorf("%d looks", of.looked)
		}
	})
}

// Claims of sessions that have gone are looked for at once, and twice more, as one may commit late; those of other databases are not.
func TestClaimsOfSessionsThatHaveGoneAreLookedForThreeTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &claims{rows: &rows{places: 4, pending: make(map[tocsin.JobID]row)}}
		s := run(t, Config{Store: c, Intake: newLanes(4, 1), Interval: time.Hour, FullEvery: time.Hour, Claims: true, TablesPerStatement: 2})
		s.Set([]int{0, 1, 2, 3}, owner)
		pass(time.Minute)
		before := c.looks()
		for range 5 { // a machine dies with five processes
			s.Gone(0, 2)
		}
		for _, step := range []struct {
			wait time.Duration
			more int
		}{{100 * time.Millisecond, 1}, {1700 * time.Millisecond, 0}, {400 * time.Millisecond, 1}, {7500 * time.Millisecond, 0}, {400 * time.Millisecond, 1}, {time.Minute, 0}} {
			pass(step.wait)
			if n := c.looks() - before; n != step.more {
				t.Errorf("%d looks in %s, not %d", n, step.wait, step.more)
			}
			before = c.looks()
		}
	})
}
