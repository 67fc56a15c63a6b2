package dispatcher

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// twoTypes returns two types, and a target that takes a while.
func twoTypes(took time.Duration) ([]biztype.Policy, map[string]Sink) {
	target := handler(func(context.Context, tocsin.Info) error { time.Sleep(took); return nil })
	return []biztype.Policy{policy("order.close", 1), policy("coupon.remind", 2)}, map[string]Sink{"order.close": target, "coupon.remind": target}
}

// claims returns how many rows were claimed so far.
func (r *rig) claims() int {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	return r.store.claims
}

// ownedBy sets the node in the owner rows.
func (r *rig) ownedBy(node string) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.owner = store.Fence{Group: r.cfg.Group, Node: node}
}

func TestAStandInClaimsRowsOfItsTypesAsLongAsTheOwnerIsTheSame(t *testing.T) {
	policies, sinks := twoTypes(0)
	inBubbleOf(t, policies, sinks, nil, func(r *rig) {
		r.Set([]int{3}, nil)
		r.ownedBy("other")
		r.Set([]int{3}, &duequeue.Access{Owner: "other", Types: []uint64{2}})
		mine, others := r.add(3, 2, time.Second), r.add(3, 1, time.Second) // neither is refused
		pass(1100 * time.Millisecond)
		r.status(mine, tocsin.Done)
		r.status(others, tocsin.Pending)
		if n := r.claims(); n != 1 {
			t.Errorf("%d rows were claimed, want the one", n)
		}
		r.ownedBy("a third")
		late := r.add(3, 2, 0)
		pass(time.Minute)
		r.status(late, tocsin.Pending)
		r.ownedBy("me")
		r.Set([]int{3}, &duequeue.Access{Owner: "me"}) // from then on it is the owner
		taken := r.add(3, 1, 0)
		pass(time.Second)
		r.status(taken, tocsin.Done)
		if n := r.claims(); n != 1 {
			t.Errorf("%d rows of own tables were claimed", n-1)
		}
		r.Set([]int{3}, nil)
		if refused := r.Offer(0, []duequeue.Entry{{JobID: late, Type: 2, Due: 1}}); len(refused) == 0 {
			t.Error("an offer is taken after the end")
		}
	})
}

func TestRowsOfATypeThatCouldNotBeDeliveredAreClaimedForAMinute(t *testing.T) {
	policies, sinks := twoTypes(0)
	inBubbleOf(t, policies, sinks, nil, func(r *rig) {
		r.ownedBy("me")
		deliver := func(kind uint64, claims int, when string) {
			t.Helper()
			before := r.claims()
			id := r.add(0, kind, 10*time.Millisecond)
			pass(time.Second)
			r.status(id, tocsin.Done)
			if n := r.claims() - before; n != claims {
				t.Errorf("%s %d rows of type %d were claimed, want %d", when, n, kind, claims)
			}
		}
		deliver(2, 0, "from the start")
		r.SetPolicies(policies[:1])
		r.SetPolicies(policies)
		deliver(1, 0, "a type that was always there:")
		deliver(2, 1, "just after it was lacked")
		r.SetPolicies(policies) // these types are not newly gained
		pass(30 * time.Second)
		deliver(2, 1, "within the minute")
		pass(30 * time.Second)
		deliver(2, 0, "after the minute")
		fresh := policy("order.open", 3)
		sinks[fresh.Name] = sinks["order.close"]
		r.SetPolicies(append(policies, fresh))
		deliver(3, 1, "as a new type")
	})
}

func TestWhatIsInHandOfATypeIsKnown(t *testing.T) {
	policies, sinks := twoTypes(time.Second)
	inBubbleOf(t, policies, sinks, nil, func(r *rig) {
		r.add(0, 2, 0)
		pass(500 * time.Millisecond)
		r.SetPolicies(policies[:1])
		if r.InHand(1) || !r.InHand(2) {
			t.Errorf("in hand: %t, %t; want only the second", r.InHand(1), r.InHand(2))
		}
		pass(time.Second)
		if r.InHand(2) {
			t.Error("in hand after its outcome is stored")
		}
	})
}

// In whatever order an owner loses and gains a type, and another node learns of it and stands in: each task is
// delivered exactly once.
func TestAStandInAndTheOwnerNeverDeliverTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubble{t}, func(draws *rapid.T) { playStandIn(t, draws) })
	})
}

// pair is the owner of table 0 and another node, on the same rows.
type pair struct {
	owner, other *rig
	policies     []biztype.Policy

	mu      sync.Mutex
	started map[tocsin.JobID]int
}

func (p *pair) deliver(_ context.Context, task tocsin.Info) error {
	p.mu.Lock()
	p.started[task.JobID]++
	p.mu.Unlock()
	time.Sleep(time.Duration(task.BizID%4) * 300 * time.Millisecond)
	return nil
}

func newPair(t *testing.T) *pair {
	p := &pair{policies: []biztype.Policy{policy("order.close", 1)}, started: make(map[tocsin.JobID]int)}
	sinks := map[string]Sink{"order.close": handler(p.deliver)}
	p.owner = newRig(t, sinks, nil)
	p.other = newRig(t, sinks, func(c *Config) { c.Store, c.Node = p.owner.store, "node-2" })
	p.other.Set([]int{0, 1, 2, 3}, nil)
	p.owner.ownedBy("me")
	for _, r := range []*rig{p.owner, p.other} {
		r.SetPolicies(p.policies)
		r.run()
	}
	return p
}

// add stores a task and offers it to both nodes.
func (p *pair) add(d time.Duration) tocsin.JobID {
	id := p.owner.insert(0, 1, d)
	p.offer(id)
	return id
}

func (p *pair) offer(ids ...tocsin.JobID) {
	for _, id := range ids {
		if row := p.owner.store.row(id); row.Status == tocsin.Pending {
			e := []duequeue.Entry{{JobID: id, Type: 1, Due: row.Action}}
			p.owner.Offer(0, e) // refused by the node that may not start it
			p.other.Offer(0, e)
		}
	}
}

func playStandIn(t *testing.T, draws *rapid.T) {
	p := newPair(t)
	upTo := func(most time.Duration, what string) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(most)).Draw(draws, what))
	}
	var ids []tocsin.JobID
	work := func(d time.Duration) { // tasks arrive meanwhile, some of them late for one of the two
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(upTo(2*time.Second, "pause")) {
			ids = append(ids, p.add(upTo(1500*time.Millisecond, "due")))
			if rapid.Bool().Draw(draws, "peek") {
				p.offer(ids...)
			}
		}
	}
	for range rapid.IntRange(1, 3).Draw(draws, "rounds") {
		work(upTo(4*time.Second, "before"))
		p.owner.SetPolicies(nil)
		for p.owner.InHand(1) { // only then are others told of it
			time.Sleep(10 * time.Millisecond)
		}
		work(upTo(4*time.Second, "untold"))
		p.other.Set([]int{0}, &duequeue.Access{Owner: "me", Types: []uint64{1}})
		work(upTo(10*time.Second, "stood in"))
		p.owner.SetPolicies(p.policies)
		work(upTo(uncleanFor*9/10, "unheard"))
		p.other.Set([]int{0}, nil)
	}
	for range 3 { // a later peek finds the rows that a claim did not get
		p.offer(ids...)
		pass(10 * time.Second)
	}
	for _, id := range ids {
		if n := p.started[id]; n != 1 || p.owner.store.row(id).Status != tocsin.Done {
			draws.Errorf("task %s: delivered %d times, %s", id, n, p.owner.store.row(id).Status)
		}
	}
	p.owner.finish()
	p.other.finish()
}
