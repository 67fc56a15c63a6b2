package model

import (
	"maps"
	"testing"
)

// claimWorlds are the searches of the claims, the quick ones first.
func claimWorlds() []claimWorld {
	return inTime([]claimWorld{
		{name: "a kill", kills: true, fails: true, left: claimFaults{faults: 1}},
		{name: "lost answers", losses: true, fails: true, left: claimFaults{faults: 1}},
		{name: "a pause", apart: true, pauses: true, left: claimFaults{faults: 1}},
		{name: "writes stall", left: claimFaults{stalls: 2}},
		{name: "a freeze", apart: true, freezes: true, left: claimFaults{faults: 1}},
		{name: "a freeze, a failed attempt", freezes: true, fails: true, left: claimFaults{faults: 1}},
		{name: "cut off", cuts: true, fails: true, left: claimFaults{faults: 1}},
		{name: "slow beats", slowBeats: true, left: claimFaults{faults: 2}},
		{name: "late packets", late: true, fails: true, left: claimFaults{faults: 1}},
		{name: "late packets, a kill", atOnce: true, late: true, kills: true, left: claimFaults{faults: 2}},
		{name: "late packets, a freeze", atOnce: true, late: true, freezes: true, left: claimFaults{faults: 2}},
		{name: "lost answers, a freeze", losses: true, freezes: true, left: claimFaults{faults: 2}},
		{name: "inserts", atOnce: true, doubles: true, freezes: true, left: claimFaults{faults: 2}},
		{name: "two freezes", atOnce: true, freezes: true, left: claimFaults{faults: 2}},
		{name: "a freeze while the first member changes", freezes: true, left: claimFaults{faults: 1, seats: 2}},
		{name: "a fail-over", atOnce: true, fails: true, left: claimFaults{failovers: 1}},
		{name: "a fail-over, a freeze", one: true, freezes: true, fails: true, left: claimFaults{failovers: 1, faults: 1}},
		{name: "two members leave", fails: true, left: claimFaults{leaves: 2}},
		{name: "a member leaves, another is killed", kills: true, left: claimFaults{leaves: 1, faults: 1}},
		{name: "a stall, a freeze", atOnce: true, freezes: true, left: claimFaults{stalls: 1, faults: 1}},
		{name: "the user, redrives", atOnce: true, fails: true, keys: true, left: claimFaults{user: 2}},
		{name: "the user, a freeze", atOnce: true, freezes: true, late: true, left: claimFaults{user: 1, faults: 1}},
		{name: "the user while a claim commits", left: claimFaults{user: 1}},
		{name: "a node and sweeps, a kill or freeze", atOnce: true, sweep: true, kills: true, freezes: true, left: claimFaults{faults: 1}},
	}, 4)
}

// claimPlays search with some guards switched off.
func claimPlays(off ...ClaimGuard) (all []play) {
	for _, w := range claimWorlds() {
		for _, g := range off {
			w.off[g] = true
		}
		all = append(all, playOf(&w))
	}
	return all
}

func TestEveryDeliveryIsClaimedInEveryHistory(t *testing.T) {
	t.Parallel()
	mustHold(t, claimPlays(), bound)
}

// TestEveryGuardOfClaimsIsNeeded switches each guard off.
func TestEveryGuardOfClaimsIsNeeded(t *testing.T) {
	t.Parallel()
	for g := range claimGuards {
		t.Run(claimGuardNames[g], func(t *testing.T) {
			t.Parallel()
			mustFind(t, claimPlays(g))
		})
	}
}

// TestEveryStepOfClaimsIsTaken: a step that occurs in no history would not be checked.
func TestEveryStepOfClaimsIsTaken(t *testing.T) {
	t.Parallel()
	taken := map[string]bool{}
	for _, w := range claimWorlds() {
		maps.Copy(taken, stepsOf(&w, 100_000))
	}
	for what := range taken {
		t.Log(what)
	}
}
