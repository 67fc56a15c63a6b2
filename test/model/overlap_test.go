package model

import "testing"

// overlapPlays are the searches of schedules' runs with some guards switched off, the quick ones first.
func overlapPlays(off ...OverlapGuard) (all []play) {
	for _, w := range inTime([]overlapWorld{
		{name: "skip, a handler over its time-out", policy: Skips, runs: 2, faults: overlapFaults{overtimes: 1, fails: 1}},
		{name: "skip, a frozen process", policy: Skips, runs: 2, faults: overlapFaults{freezes: 1, fails: 1}},
		{name: "skip, late, an edit", policy: Skips, runs: 2, faults: overlapFaults{lates: 2, fails: 1, edits: 1}},
		{name: "replace, a crash", policy: Replaces, runs: 2, faults: overlapFaults{crashes: 1, fails: 1, overtimes: 1}},
		{name: "a run that is redriven beside a later one", policy: Skips, runs: 2, faults: overlapFaults{fails: 3, redrives: 1}},
		{name: "queue, late, a crash", policy: Queues, runs: 3, faults: overlapFaults{lates: 2, crashes: 1, fails: 1}},
		{name: "queue, two by hand, a frozen process", policy: Queues, runs: 3, byHand: 1<<1 | 1<<2, faults: overlapFaults{freezes: 1, overtimes: 1, fails: 1}},
		{name: "replace, a run by hand, a frozen process, an edit", policy: Replaces, runs: 3, byHand: 1, faults: overlapFaults{freezes: 1, fails: 1, edits: 1}},
		{name: "skip, all that may happen", policy: Skips, runs: 3, byHand: 1 << 1, faults: overlapFaults{freezes: 1, crashes: 1, overtimes: 1, fails: 1, lates: 1}},
	}, 5) {
		for _, g := range off {
			w.off[g] = true
		}
		all = append(all, playOf(&w))
	}
	return all
}

func TestRunsDoNotOverlapInAnyHistory(t *testing.T) {
	t.Parallel()
	mustHold(t, overlapPlays(), bound)
}

// TestEveryGuardOfOverlapIsNeeded switches each guard off: each is a naive version of the protocol.
func TestEveryGuardOfOverlapIsNeeded(t *testing.T) {
	t.Parallel()
	for g, name := range overlapGuardNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustFind(t, overlapPlays(OverlapGuard(g)))
		})
	}
}
