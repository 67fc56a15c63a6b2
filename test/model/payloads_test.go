package model

import "testing"

// boundPayloads is the bound of one search, in states.
const boundPayloads = 1_000_000

// payloadPlays are the searches of payloads in two versions, the quick ones first.
func payloadPlays() []payloadWorld {
	return []payloadWorld{
		{name: "one node of the first program", nodes: [2]uint8{1, 0}, budget: payloadBudget{looks: 1}},
		{name: "one node of the second program", nodes: [2]uint8{2, 0}},
		{name: "through an outbox, the other program is deployed", relay: true, nodes: [2]uint8{1, 0}, budget: payloadBudget{starts: 1, looks: 1}},
		{name: "a deploy is broken off, and begins again", nodes: [2]uint8{1, 0}, budget: payloadBudget{starts: 2, stops: 2, looks: 1}},
		{name: "a sweep", nodes: [2]uint8{2, 0}, budget: payloadBudget{sweeps: 1, crashes: 1}},
		{name: "both programs, a sweep and crashes", nodes: [2]uint8{1, 2}, budget: payloadBudget{starts: 1, stops: 1, crashes: 2, sweeps: 1, looks: 1}},
	}
}

func searchPayloads(t *testing.T, w payloadWorld, off ...PayloadGuard) Result {
	t.Helper()
	for _, g := range off {
		w.off[g] = true
	}
	got, err := walk(&w, w.start(), boundPayloads)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestPayloadsAreLeftToProgramsThatReadThem(t *testing.T) {
	t.Parallel()
	for _, play := range payloadPlays() {
		t.Run(play.name, func(t *testing.T) {
			t.Parallel()
			got := searchPayloads(t, play)
			t.Logf("%d states, %d steps", got.States, got.Steps)
			if got.Finding != nil {
				t.Errorf("\n%s", got.Finding)
			}
		})
	}
}

// TestEveryGuardOfPayloadsIsNeeded switches each guard off: each is a naive version of the protocol.
func TestEveryGuardOfPayloadsIsNeeded(t *testing.T) {
	t.Parallel()
	for g := range payloadGuards {
		t.Run(g.String(), func(t *testing.T) {
			t.Parallel()
			for _, play := range payloadPlays() {
				if got := searchPayloads(t, play, g); got.Finding != nil {
					t.Logf("%s:\n%s", play.name, got.Finding)
					return
				}
			}
			t.Error("nothing breaks without it")
		})
	}
}
