package dispatcher

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// inflate gives a row a payload of the given size.
func (r *rig) inflate(id tocsin.JobID, bytes int) tocsin.JobID {
	r.store.change(id, func(row *store.Row) { row.Payload = strings.Repeat("x", bytes) })
	return id
}

// Payloads in memory stay within the limit however many rows are due and however many
// slots there are; a type with large payloads stops only itself.
func TestPayloadsInMemoryAreBounded(t *testing.T) { eachWay(t, testPayloadsInMemoryAreBounded) }

func testPayloadsInMemoryAreBounded(t *testing.T) {
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

// A row is delivered once if it is still as it was found, and its payload counts no longer than the row is held, whatever becomes of it.
func TestWhatBecomesOfRowsAndTheirPayloads(t *testing.T) {
	eachWay(t, testWhatBecomesOfRowsAndTheirPayloads)
}

func testWhatBecomesOfRowsAndTheirPayloads(t *testing.T) {
	strict := func(p *biztype.Policy) { p.Strict = true }
	cases := map[string]struct {
		adapt func(*biztype.Policy)
		row   func(*store.Row) // before it is loaded
		then  func(*rig)
		calls int32 // for two rows
		known int   // of these, after ten seconds
	}{
		"they are delivered":           {calls: 2},
		"they are claimed":             {adapt: strict, calls: 2},
		"they are gone":                {row: cancelled},
		"they are another's":           {row: func(row *store.Row) { row.Status = tocsin.Claimed }},
		"they are rescheduled":         {row: inAnHour},
		"one waits, and is given up":   {adapt: func(p *biztype.Policy) { p.Rate = 0.001 }, then: func(r *rig) { pass(time.Second); r.Set([]int{0}, nil) }, calls: 1},
		"their claims fail":            {adapt: strict, then: failing("claim"), known: 2},
		"they can't be loaded":         {then: failing("load", "claim"), known: 2},
		"outcomes are not stored":      {then: failing("settle"), calls: 2, known: 2},
		"they are some that end lives": {row: func(row *store.Row) { row.Crashes = suspectFrom }, calls: 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := policy("order.close", 1)
			if c.adapt != nil {
				c.adapt(&p)
			}
			var calls atomic.Int32
			inBubble(t, p, func(context.Context, tocsin.Info) error { calls.Add(1); return nil }, func(r *rig) {
				ids := []tocsin.JobID{r.insert(0, 1, 50*time.Millisecond), r.insert(0, 1, 50*time.Millisecond)}
				for _, id := range ids {
					r.offer(r.inflate(id, 5000))
					if c.row != nil {
						r.store.change(id, c.row)
					}
				}
				if c.then != nil {
					c.then(r)
				}
				pass(10 * time.Second)
				known, _, _ := r.Lane(0, 1)
				if n := r.Stats().PayloadBytes; n != 0 || known != c.known || calls.Load() != c.calls {
					t.Errorf("%d bytes are still counted, %d rows are known, after %d deliveries", n, known, calls.Load())
				}
				r.store.fail(nil)
			})
		})
	}
}

// failing makes statements fail from now on.
func failing(statements ...string) func(*rig) {
	return func(r *rig) {
		r.store.fail(func(s string, _ []tocsin.JobID) error {
			if slices.Contains(statements, s) {
				return context.DeadlineExceeded
			}
			return nil
		})
	}
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
