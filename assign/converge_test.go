package assign

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// world plays nodes that see the keys at different revisions. Its rules are those of etcd and of a session: a key is
// created only where there is none, deleted only by its owner, and a node acts on a view not older than its own last write.
type world struct {
	history []instant // by revision
	nodes   []string  // that take steps
	seen    map[string]int
	wrote   map[string]int
	misses  misses // that all nodes know of
}

// instant is what the keys are at one revision.
type instant struct {
	members []Member
	owners  []string
	idle    map[string]bool // members that pause: they do nothing
}

func newWorld(members []Member, owners []string) *world {
	w := &world{history: []instant{{members, owners, nil}}, seen: map[string]int{}, wrote: map[string]int{}}
	for _, m := range members {
		w.nodes = append(w.nodes, m.ID)
	}
	return w
}

func (w *world) now() instant { return w.history[len(w.history)-1] }
func (w *world) rev() int     { return len(w.history) - 1 }

// write adds a revision with one change.
func (w *world) write(table int, owner string) {
	i := w.now()
	i.owners = slices.Clone(i.owners)
	i.owners[table] = owner
	w.history = append(w.history, i)
}

// setMembers adds a revision with other members; tables of those gone are free, as their lease is.
func (w *world) setMembers(members []Member) {
	i := instant{members, slices.Clone(w.now().owners), w.now().idle}
	for table, owner := range i.owners {
		if !slices.ContainsFunc(members, func(m Member) bool { return m.ID == owner }) {
			i.owners[table] = ""
		}
	}
	w.history = append(w.history, i)
}

// setIdle makes these members pause, at a new revision.
func (w *world) setIdle(idle map[string]bool) {
	i := w.now()
	i.idle = idle
	w.history = append(w.history, i)
}

// step has a node look at a revision and do up to limit of what it would do. It reports how much it did.
func (w *world) step(node string, rev, limit int) int {
	rev = max(rev, w.wrote[node], w.seen[node])
	w.seen[node] = rev
	view, did := w.history[rev], 0
	if w.now().idle[node] {
		return 0
	}
	others := maps.Clone(view.idle)
	delete(others, node)
	for table, target := range PlanMeanwhile(view.members, view.owners, w.misses, others) {
		if did == limit {
			break
		}
		was, is := view.owners[table], w.now().owners[table]
		switch {
		case was == node && target != node && is == node:
			w.write(table, "")
		case was == "" && target == node && is == "":
			w.write(table, node)
		default:
			continue
		}
		did++
		w.wrote[node] = w.rev()
	}
	return did
}

// rounds lets all nodes step with current views until nothing is left to do, and returns after how many rounds.
func (w *world) rounds(t *rapid.T) int {
	for round := range 20 {
		did := 0
		for _, node := range w.nodes {
			did += w.step(node, w.rev(), 1<<30)
		}
		if did == 0 {
			return round
		}
	}
	t.Fatalf("no end: %q", w.now().owners)
	return 0
}

func (w *world) check(t *rapid.T) {
	if i := w.now(); len(i.idle) > 0 {
		t.Fatalf("%v pause still", i.idle)
	} else if !slices.Equal(PlanAround(i.members, i.owners, w.misses), i.owners) {
		t.Fatalf("at rest, but not as planned: %q", i.owners)
	}
}

// checkFree fails if a table has no owner although a member takes tables.
func (w *world) checkFree(t *rapid.T) {
	i := w.now()
	takes := slices.ContainsFunc(i.members, func(m Member) bool { return m.Weight > 0 && !i.idle[m.ID] })
	if table := slices.Index(i.owners, ""); table >= 0 && takes {
		t.Fatalf("nobody takes table %d of %q while %v pause", table, i.owners, i.idle)
	}
}

// without returns a set without one member, nil if that leaves none.
func without(set map[string]bool) map[string]bool {
	all := slices.Sorted(maps.Keys(set))
	if len(all) < 2 {
		return nil
	}
	rest := maps.Clone(set)
	delete(rest, all[0])
	return rest
}

// drawIdle draws the members that pause.
func drawIdle(t *rapid.T, all []Member) map[string]bool {
	idle := map[string]bool{}
	for _, m := range all {
		if rapid.Bool().Draw(t, "pauses") {
			idle[m.ID] = true
		}
	}
	return idle
}

// drawGroup draws who of all is there now, some of them draining.
func drawGroup(t *rapid.T, all []Member) []Member {
	members := rapid.Permutation(all).Draw(t, "members")[:rapid.IntRange(1, len(all)).Draw(t, "n")]
	for i := range members {
		if rapid.IntRange(0, 3).Draw(t, "drains") == 0 {
			members[i].Weight = 0
		}
	}
	return members
}

// withoutStrangers makes owners that are not members nobody: their keys are gone with their leases.
func withoutStrangers(members []Member, owners []string) []string {
	for i, owner := range owners {
		if !slices.ContainsFunc(members, func(m Member) bool { return m.ID == owner }) {
			owners[i] = ""
		}
	}
	return owners
}

func TestNodesWithOldViewsConverge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := drawMembers(t)
		w := newWorld(all, withoutStrangers(all, drawOwners(t, all)))
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0:
				w.setMembers(drawGroup(t, all))
				continue
			case 1:
				w.setIdle(drawIdle(t, all))
				continue
			}
			node := rapid.SampledFrom(w.now().members).Draw(t, "node").ID
			w.step(node, rapid.IntRange(0, w.rev()).Draw(t, "view"), rapid.IntRange(1, 5).Draw(t, "limit"))
		}
		w.nodes = nil
		for _, m := range w.now().members {
			w.nodes = append(w.nodes, m.ID)
		}
		w.rounds(t)
		w.checkFree(t)
		for w.now().idle != nil { // each comes forward in turn
			w.setIdle(without(w.now().idle))
			w.step(rapid.SampledFrom(w.nodes).Draw(t, "first"), w.rev(), rapid.IntRange(1, 5).Draw(t, "some"))
		}
		if n := w.rounds(t); n > 3 {
			t.Fatalf("took %d rounds", n)
		}
		w.check(t)
	})
}

// Views may lag behind for ever, as long as they move on.
func TestNodesThatAlwaysLagConverge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := drawMembers(t)
		w := newWorld(all, withoutStrangers(all, drawOwners(t, all)))
		idle := 0
		for turn := 0; idle < 3*len(w.nodes)+9; turn++ {
			if turn > 200*len(w.nodes) {
				t.Fatalf("no end after %d turns: %q", turn, w.now().owners)
			}
			lag := 0
			if idle < 2*len(w.nodes) {
				lag = rapid.IntRange(0, 3).Draw(t, "lag")
			}
			if w.step(w.nodes[turn%len(w.nodes)], w.rev()-lag, 1<<30) > 0 {
				idle = 0
			} else {
				idle++
			}
		}
		w.check(t)
	})
}

// Once every node has its floor and none more than one above it, no table that has an owner moves any more.
func TestNothingBalancedMovesWhateverTheView(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t)
		tables := rapid.IntRange(0, 60).Draw(t, "tables")
		w := newWorld(members, Plan(members, make([]string, tables)))
		for range rapid.IntRange(0, 10).Draw(t, "losses") { // a key is deleted by hand
			if tables > 0 {
				w.write(rapid.IntRange(0, tables-1).Draw(t, "table"), "")
			}
		}
		before := len(w.history)
		for range 40 {
			node := rapid.SampledFrom(w.nodes).Draw(t, "node")
			w.step(node, rapid.IntRange(before-1, w.rev()).Draw(t, "view"), 3)
		}
		for i := before; i < len(w.history); i++ {
			for table, owner := range w.history[i].owners {
				if was := w.history[i-1].owners[table]; was != "" && owner != was {
					t.Fatalf("revision %d: table %d went from %s to %q", i, table, was, fmt.Sprint(owner))
				}
			}
		}
		w.rounds(t)
		w.check(t)
	})
}
