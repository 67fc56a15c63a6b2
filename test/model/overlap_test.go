package model

import "testing"

// boundOverlap is the bound of one search, in states.
const boundOverlap = 3_000_000

// overlapPlays are the searches of schedules' runs, the quick ones first.
func overlapPlays() []overlapWorld {
	all := []overlapWorld{
		{name: "skip, a handler over its time-out", policy: Skips, runs: 2, faults: overlapFaults{overtimes: 1, fails: 1}},
		{name: "skip, a frozen process", policy: Skips, runs: 2, faults: overlapFaults{freezes: 1, fails: 1}},
		{name: "skip, late, an edit", policy: Skips, runs: 2, faults: overlapFaults{lates: 2, fails: 1, edits: 1}},
		{name: "replace, a crash", policy: Replaces, runs: 2, faults: overlapFaults{crashes: 1, fails: 1, overtimes: 1}},
		{name: "a run that is redriven beside a later one", policy: Skips, runs: 2, faults: overlapFaults{fails: 3, redrives: 1}},
		{name: "queue, late, a crash", policy: Queues, runs: 3, faults: overlapFaults{lates: 2, crashes: 1, fails: 1}},
		{name: "skip, a run by hand, a crash, a handler over its time-out", policy: Skips, runs: 3, byHand: 1 << 1, faults: overlapFaults{crashes: 1, overtimes: 1, fails: 1}},
		{name: "queue, two by hand, a frozen process", policy: Queues, runs: 3, byHand: 1<<1 | 1<<2, faults: overlapFaults{freezes: 1, overtimes: 1, fails: 1}},
		{name: "replace, a run by hand, a frozen process, an edit", policy: Replaces, runs: 3, byHand: 1, faults: overlapFaults{freezes: 1, fails: 1, edits: 1}},
		{name: "skip, all that may happen", policy: Skips, runs: 3, byHand: 1 << 1, faults: overlapFaults{freezes: 1, crashes: 1, overtimes: 1, fails: 1, lates: 1}},
	}
	if underRace || testing.Short() {
		return all[:5]
	}
	return all
}

func searchOverlap(t *testing.T, w overlapWorld, off ...OverlapGuard) Result {
	t.Helper()
	for _, g := range off {
		w.off[g] = true
	}
	got, err := walk(&w, w.start(), boundOverlap)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRunsDoNotOverlapInAnyHistory(t *testing.T) {
	t.Parallel()
	for _, play := range overlapPlays() {
		t.Run(play.name, func(t *testing.T) {
			t.Parallel()
			got := searchOverlap(t, play)
			t.Logf("%d states, %d steps", got.States, got.Steps)
			if got.Finding != nil {
				t.Errorf("\n%s", got.Finding)
			}
		})
	}
}

// TestEveryGuardOfOverlapIsNeeded switches each guard off: each is a naive version of the protocol.
func TestEveryGuardOfOverlapIsNeeded(t *testing.T) {
	t.Parallel()
	for g := range overlapGuards {
		t.Run(g.String(), func(t *testing.T) {
			t.Parallel()
			for _, play := range overlapPlays() {
				if got := searchOverlap(t, play, g); got.Finding != nil {
					t.Logf("%s:\n%s", play.name, got.Finding)
					return
				}
			}
			t.Error("nothing breaks without it")
		})
	}
}
