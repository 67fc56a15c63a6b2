package dispatcher

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/store"
)

func TestClaimsFirst(t *testing.T) {
	cases := map[string]struct {
		adapt   func(*biztype.Policy)
		row     func(*store.Row)
		unclean bool
		overdue time.Duration
		claims  int
	}{
		"not in time":                    {claims: 0},
		"not a little late":              {overdue: 20 * time.Second, claims: 0},
		"where the sweeper may look":     {overdue: 55 * time.Second, claims: 1},
		"a strict biz type always":       {adapt: func(p *biztype.Policy) { p.Strict = true }, claims: 1},
		"a row that ended a process":     {row: func(row *store.Row) { row.Crashes = 1 }, claims: 1},
		"overdue after an unclean end":   {unclean: true, overdue: 5 * time.Second, claims: 1},
		"not in time after one, though":  {unclean: true, claims: 0},
		"a row that somebody has by now": {overdue: 55 * time.Second, row: func(row *store.Row) { row.Status = tocsin.Claimed }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := policy("order.close", 1)
			if c.adapt != nil {
				c.adapt(&p)
			}
			policies, sinks := one(p, func(context.Context, tocsin.Info) error { return nil })
			inBubble(t, 1, policies, sinks, func(r *rig) {
				r.Admit([]int{0}, c.unclean)
				id := r.insert(0, 1, -c.overdue)
				if c.row != nil {
					r.store.change(id, c.row)
				}
				r.offer(id)
				time.Sleep(time.Second)
				if n, _ := r.store.counts(store.Stored); n != c.claims {
					t.Errorf("%d claims, want %d", n, c.claims)
				}
				if c.claims > 0 {
					r.status(id, tocsin.Done)
				}
			})
		})
	}
}

func TestNothingStartsWithoutTheLease(t *testing.T) {
	var calls atomic.Int32
	var lease atomic.Bool
	sinks := map[string]Sink{"order.close": handler(func(context.Context, tocsin.Info) error { calls.Add(1); return nil })}
	inBubbleWith(t, sinks, func(c *Config) { c.LeaseOK = lease.Load }, func(r *rig) {
		r.SetPolicies([]biztype.Policy{policy("order.close", 1)})
		r.add(0, 1, 0)
		time.Sleep(2 * time.Second)
		if calls.Load() != 0 {
			t.Error("delivered without a lease")
		}
		lease.Store(true)
		time.Sleep(time.Second)
		if calls.Load() != 1 {
			t.Error("not delivered with the lease back")
		}
	})
}
