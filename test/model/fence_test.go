package model

import (
	"maps"
	"testing"
)

// fenceWorlds are the searches of the fence, the quick ones first. The last two are too much for the race detector.
func fenceWorlds() []fenceWorld {
	return inTime([]fenceWorld{
		{name: "a wipe", faults: fenceFaults{wipes: 1, others: 2}},
		{name: "a restore, a hand-over", faults: fenceFaults{restores: 1, handOvers: 1, losses: 2}},
		{name: "a restore, an owner row that can't be read", faults: fenceFaults{restores: 1, losses: 2, unread: 1}},
		{name: "a wipe, an owner row that can't be read", faults: fenceFaults{wipes: 1, unread: 1, others: 1}},
		{name: "a wipe, a lost lease", faults: fenceFaults{wipes: 1, losses: 1, others: 1}},
		{name: "two wipes", faults: fenceFaults{wipes: 2, others: 1}},
	}, 4)
}

// fencePlays search with some guards switched off.
func fencePlays(off ...FenceGuard) (all []play) {
	for _, w := range fenceWorlds() {
		for _, g := range off {
			w.off[g] = true
		}
		all = append(all, playOf(&w))
	}
	return all
}

func TestOwnersFollowOneAnotherInEveryHistory(t *testing.T) {
	t.Parallel()
	mustHold(t, fencePlays(), bound)
}

// TestEveryGuardOfTheFenceIsNeeded switches each guard off; two that replace each other are switched off together.
func TestEveryGuardOfTheFenceIsNeeded(t *testing.T) {
	t.Parallel()
	off := [][]FenceGuard{{EpochAhead, EpochProven}}
	for g := range fenceGuards {
		if g != EpochAhead && g != EpochProven {
			off = append(off, []FenceGuard{g})
		}
	}
	for _, guards := range off {
		t.Run(fenceGuardNames[guards[0]], func(t *testing.T) {
			t.Parallel()
			mustFind(t, fencePlays(guards...))
		})
	}
}

// TestEveryStepOfTheFenceIsTaken: a step that occurs in no history would not be checked.
func TestEveryStepOfTheFenceIsTaken(t *testing.T) {
	t.Parallel()
	taken := map[string]bool{}
	for _, w := range fenceWorlds() {
		maps.Copy(taken, stepsOf(&w, 100_000))
	}
	want := []string{
		"others write to etcd", "etcd is wiped", "etcd is restored from an older snapshot", "the pause is over",
		"can't read the table's owner row", "creates the table's key", "sends its owner row", "gives the table up",
		"writes the owner row of its former life", "can't prove its lease", "loses its key",
	}
	for _, do := range alone {
		if do.step != nil {
			want = append(want, do.what)
		}
	}
	for _, what := range want {
		if !taken[what] {
			t.Errorf("nobody ever %s", what)
		}
	}
}
