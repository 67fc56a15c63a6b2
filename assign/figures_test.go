package assign

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// figures are the worst that many plans and groups at work have shown.
type figures struct {
	cases     int
	imbalance float64       // of a node, in tables from its exact share by weight
	excess    int           // moves above the least possible, of nodes of equal weight
	weighted  int           // the same of unequal ones, where the least is that of any shares within a table of the exact ones
	rounds    int           // in which every node steps once, until nothing is left to do
	steps     int           // takes and give-ups of a table by one node until then
	longest   time.Duration // of one plan
}

// TestFiguresOfThePlan plays groups of any size with old views; see it with go test -v -run Figures ./assign.
func TestFiguresOfThePlan(t *testing.T) {
	t.Parallel()
	r, f := rand.New(rand.NewPCG(7, 11)), figures{}
	for range 3000 {
		f.play(t, r)
	}
	t.Logf("%d cases: worst imbalance %.2f tables from the share by weight, worst excess of moves over the least %d, "+
		"by unequal weights %d, most rounds to converge %d, most steps %d", f.cases, f.imbalance, f.excess, f.weighted, f.rounds, f.steps)
	if f.imbalance >= 1 || f.excess > 0 || f.rounds > 3 {
		t.Error("worse than promised")
	}
	f.large(t, r)
}

// drawWorld makes up to 12 nodes, equal or not, that own up to 256 tables in any way.
func drawWorld(r *rand.Rand) *world {
	members, equal := make([]Member, 1+r.IntN(12)), r.IntN(2) == 0
	for i := range members {
		members[i] = Member{ID: fmt.Sprintf("n%02d", i), Weight: 1}
		if !equal {
			members[i].Weight = 1 + r.IntN(9)
		}
	}
	owners := make([]string, 1+r.IntN(256))
	for i := range owners {
		if n := r.IntN(len(members) + 1); n < len(members) {
			owners[i] = members[n].ID
		}
	}
	return newWorld(members, owners)
}

// play checks one plan, and then has the nodes carry it out with views of any age.
func (f *figures) play(t *testing.T, r *rand.Rand) {
	w := drawWorld(r)
	members, owners := w.now().members, w.now().owners
	f.judge(members, owners)
	for range r.IntN(40) {
		node := w.nodes[r.IntN(len(w.nodes))]
		f.steps = max(f.steps, w.step(node, r.IntN(w.rev()+1), 1+r.IntN(9)))
	}
	before := w.rev()
	for round, did := 0, 1; did > 0; round++ {
		if did = 0; round > 20 {
			t.Fatalf("no end: %q", w.now().owners)
		}
		for _, node := range w.nodes {
			did += w.step(node, w.rev(), 1<<30)
		}
		if did > 0 {
			f.rounds = max(f.rounds, round+1)
		}
	}
	f.steps = max(f.steps, w.rev()-before)
}

// judge holds a plan against the exact shares and the least moves.
func (f *figures) judge(members []Member, owners []string) {
	began := time.Now()
	target := Plan(members, owners)
	f.longest = max(f.longest, time.Since(began))
	f.cases++
	have, sum := countOf(target), 0
	for _, m := range members {
		sum += m.Weight
	}
	for _, m := range members {
		exact := float64(len(owners)*m.Weight) / float64(sum)
		f.imbalance = max(f.imbalance, exact-float64(have[m.ID]), float64(have[m.ID])-exact)
	}
	d, equal := dryRun(members, owners, misses{}), true
	for _, m := range members {
		equal = equal && m.Weight == members[0].Weight
	}
	if excess := d.Moves - d.Least; equal {
		f.excess = max(f.excess, excess)
	} else {
		f.weighted = max(f.weighted, excess)
	}
}

// large times 8192 tables and 200 nodes, also where some miss databases.
func (f *figures) large(t *testing.T, r *rand.Rand) {
	members, owners := make([]Member, 200), make([]string, 8192)
	for i := range members {
		members[i] = Member{ID: fmt.Sprintf("node-%03d", i), Weight: 1}
	}
	for i := range owners {
		owners[i] = members[r.IntN(len(members))].ID
	}
	big := figures{}
	for range 20 {
		big.judge(members, owners)
	}
	around := missing(1024, map[string][]int{"node-001": {3}, "node-002": {3, 4}})
	began := time.Now()
	PlanAround(members, owners, around)
	t.Logf("8192 tables, 200 nodes: a plan takes %s at most, one around databases that some miss %s; imbalance %.2f, excess %d",
		big.longest, time.Since(began), big.imbalance, big.excess)
}
