package model

import "testing"

// boundFence is the bound of one search, in states.
const boundFence = 1_000_000

// plays are the searches of the fence, the quick ones first. The last two are too much for the race detector.
func plays() []fenceWorld {
	all := []fenceWorld{
		{name: "a wipe", start: fenceFaults{wipes: 1, others: 2}},
		{name: "a restore, a hand-over", start: fenceFaults{restores: 1, handOvers: 1, losses: 2}},
		{name: "a restore, an owner row that can't be read", start: fenceFaults{restores: 1, losses: 2, unread: 1}},
		{name: "a wipe, an owner row that can't be read", start: fenceFaults{wipes: 1, unread: 1, others: 1}},
		{name: "a wipe, a lost lease", start: fenceFaults{wipes: 1, losses: 1, others: 1}},
		{name: "two wipes", start: fenceFaults{wipes: 2, others: 1}},
	}
	if underRace || testing.Short() {
		return all[:4]
	}
	return all
}

// searchFence walks a play with some guards switched off.
func searchFence(t *testing.T, w fenceWorld, off ...FenceGuard) Result {
	t.Helper()
	for _, g := range off {
		w.off[g] = true
	}
	got, err := walk(&w, fences{life: 1, left: w.start}, boundFence)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestOwnersFollowOneAnotherInEveryHistory(t *testing.T) {
	t.Parallel()
	for _, play := range plays() {
		t.Run(play.name, func(t *testing.T) {
			t.Parallel()
			got := searchFence(t, play)
			t.Logf("%d states, %d steps", got.States, got.Steps)
			if got.Finding != nil {
				t.Errorf("\n%s", got.Finding)
			}
		})
	}
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
		t.Run(guards[0].String(), func(t *testing.T) {
			t.Parallel()
			for _, play := range plays() {
				if got := searchFence(t, play, guards...); got.Finding != nil {
					t.Logf("%s:\n%s", play.name, got.Finding)
					return
				}
			}
			t.Error("nothing breaks without it")
		})
	}
}

// TestEveryStepOfTheFenceIsTaken: a step that occurs in no history would not be checked.
func TestEveryStepOfTheFenceIsTaken(t *testing.T) {
	t.Parallel()
	taken := map[string]bool{}
	for _, play := range plays() {
		first := fences{life: 1, left: play.start}
		seen := map[fences]bool{first: true}
		for todo := []fences{first}; len(todo) > 0 && len(seen) < 100_000; todo = todo[1:] {
			for _, mv := range play.moves(&todo[0]) {
				taken[mv.what] = true
				if !seen[mv.to] {
					seen[mv.to] = true
					todo = append(todo, mv.to)
				}
			}
		}
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
