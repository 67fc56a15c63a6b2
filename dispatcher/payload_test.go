package dispatcher

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/store"
)

// inflate gives a row a payload of the given size.
func (r *rig) inflate(id tocsin.JobID, bytes int) tocsin.JobID {
	r.store.change(id, func(row *store.Row) { row.Payload = strings.Repeat("x", bytes) })
	return id
}

// Payloads in memory stay within the limit however many rows are due and however many
// slots there are; a type with large payloads stops only itself.
func TestPayloadsInMemoryAreBounded(t *testing.T) {
	const limit, large = 1 << 20, 16 << 10
	var small, big, most atomic.Int64
	var d *Dispatcher
	note := func() {
		if n := d.payloads.used.Load(); n > most.Load() {
			most.Store(n)
		}
	}
	sinks := map[string]Sink{
		"big": handler(func(_ context.Context, task tocsin.Info) error {
			if len(task.Payload) != large {
				return tocsin.Bury(nil)
			}
			note()
			time.Sleep(time.Second)
			big.Add(1)
			return nil
		}),
		"small": handler(func(context.Context, tocsin.Info) error { note(); small.Add(1); return nil }),
	}
	inBubbleOf(t, nil, sinks, func(c *Config) { c.PayloadBytes = limit }, func(r *rig) {
		d = r.Dispatcher
		policies := []biztype.Policy{policy("big", 1), policy("small", 2)}
		policies[0].Concurrency, policies[1].Concurrency = 500, 500
		r.SetPolicies(policies)
		for i := range 300 {
			r.offer(r.inflate(r.insert(i%rigTables, 1, 0), large))
		}
		pass(500 * time.Millisecond)
		for i := range 300 {
			r.offer(r.insert(i%rigTables, 2, 0))
		}
		pass(100 * time.Millisecond)
		if n := small.Load(); n != 300 {
			t.Errorf("%d of 300 of the type with small payloads are delivered", n)
		}
		pass(20 * time.Second)
		if n := big.Load(); n != 300 {
			t.Errorf("%d of 300 of the type with large payloads are delivered", n)
		}
		if n := most.Load(); n > limit || n < limit/4 {
			t.Errorf("%d bytes at most, of %d", n, limit)
		}
		if st := r.Stats(); st.PayloadBytes != 0 || st.PayloadLimit != limit {
			t.Errorf("at the end %d bytes of %d", st.PayloadBytes, st.PayloadLimit)
		}
	})
}

// A row's payload counts no longer than the row is held, whatever becomes of it.
func TestPayloadsAreGivenBack(t *testing.T) {
	cases := map[string]struct {
		adapt func(*biztype.Policy)
		row   func(*store.Row) // before it is loaded
		then  func(*rig)
	}{
		"it is delivered":            {},
		"it is claimed":              {adapt: func(p *biztype.Policy) { p.Strict = true }},
		"it is gone":                 {row: func(row *store.Row) { row.Status = tocsin.Cancelled }},
		"it is rescheduled":          {row: func(row *store.Row) { row.Action += time.Hour.Milliseconds() }},
		"it waits, and is given up":  {adapt: func(p *biztype.Policy) { p.Rate = 0.001 }, then: func(r *rig) { r.Set([]int{0}, nil) }},
		"its claim is another's":     {adapt: func(p *biztype.Policy) { p.Strict = true }, then: failing("claim")},
		"it can't be loaded":         {then: failing("load")},
		"its outcome is not stored":  {then: failing("settle")},
		"it is one that ended lives": {row: func(row *store.Row) { row.Crashes = suspectFrom }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := policy("order.close", 1)
			if c.adapt != nil {
				c.adapt(&p)
			}
			inBubble(t, p, succeeds, func(r *rig) {
				id := r.inflate(r.insert(0, 1, 50*time.Millisecond), 5000)
				other := r.inflate(r.insert(0, 1, 50*time.Millisecond), 5000)
				r.offer(id)
				r.offer(other)
				if c.row != nil {
					r.store.change(id, c.row)
					r.store.change(other, c.row)
				}
				if c.then != nil {
					c.then(r)
				}
				pass(10 * time.Second)
				if n := r.Stats().PayloadBytes; n != 0 {
					t.Errorf("%d bytes are still counted", n)
				}
				r.store.fail(nil)
			})
		})
	}
}

// failing makes a statement fail from now on.
func failing(statement string) func(*rig) {
	return func(r *rig) { r.failOn(statement, context.DeadlineExceeded) }
}

func TestAShareOfThePayloads(t *testing.T) {
	all := &payloads{limit: 1000}
	first, second, third := &share{all: all}, &share{all: all}, &share{all: all}
	for _, h := range []*share{first, second, third} {
		h.learn(1)
	}
	fill := func(h *share) int64 {
		for n := h.rows(1000); n > 0; n = h.rows(1000) {
			h.add(int64(n))
		}
		return h.used.Load()
	}
	if n := fill(first); n < 300 || n > 500 {
		t.Errorf("the first has %d", n)
	}
	if n := fill(second); n < 150 || n > 350 {
		t.Errorf("the second has %d", n)
	}
	if n := fill(third); n < 75 {
		t.Errorf("the third has %d", n)
	}
	if n := all.used.Load(); n > all.limit {
		t.Errorf("all have %d", n)
	}
	large := &share{all: all}
	if large.learn(5000); large.rows(10) != 1 {
		t.Errorf("a type with nothing in memory may load %d rows", large.rows(10))
	}
	if large.add(5000); large.rows(10) != 0 || third.rows(10) != 0 {
		t.Error("more is loaded beside one that is larger than the limit")
	}
}
