package model

import "testing"

// payloadPlays are the searches of payloads in two versions with some guards switched off, the quick ones first.
func payloadPlays(off ...PayloadGuard) (all []play) {
	for _, w := range []payloadWorld{
		{name: "through an outbox, the other program is deployed", relay: true, nodes: [2]uint8{1, 0}, budget: payloadBudget{starts: 1, looks: 1}},
		{name: "a deploy is broken off, and begins again", nodes: [2]uint8{1, 0}, budget: payloadBudget{starts: 2, stops: 2, looks: 1}},
		{name: "a sweep", nodes: [2]uint8{2, 0}, budget: payloadBudget{sweeps: 1, crashes: 1}},
		{name: "both programs, a sweep and crashes", nodes: [2]uint8{1, 2}, budget: payloadBudget{starts: 1, stops: 1, crashes: 2, sweeps: 1, looks: 1}},
	} {
		for _, g := range off {
			w.off[g] = true
		}
		all = append(all, playOf(&w))
	}
	return all
}

func TestPayloadsAreLeftToProgramsThatReadThem(t *testing.T) {
	t.Parallel()
	mustHold(t, payloadPlays(), bound)
}

// TestEveryGuardOfPayloadsIsNeeded switches each guard off: each is a naive version of the protocol.
func TestEveryGuardOfPayloadsIsNeeded(t *testing.T) {
	t.Parallel()
	for g, name := range payloadGuardNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustFind(t, payloadPlays(PayloadGuard(g)))
		})
	}
}
