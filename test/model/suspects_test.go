package model

import "testing"

func TestRowsThatKillBuryNoOther(t *testing.T) {
	t.Parallel()
	mustHold(t, []play{playOf(&suspectWorld{poisons: 2})}, bound)
}

// TestEveryGuardOfSuspectsIsNeeded switches each guard off.
func TestEveryGuardOfSuspectsIsNeeded(t *testing.T) {
	t.Parallel()
	for g := range suspectGuards {
		t.Run(suspectGuardNames[g], func(t *testing.T) {
			t.Parallel()
			w := suspectWorld{poisons: 2}
			w.off[g] = true
			mustFind(t, []play{playOf(&w)})
		})
	}
}

// TestThreeRowsThatKillMayBuryAnother shows what the rule does not prevent.
func TestThreeRowsThatKillMayBuryAnother(t *testing.T) {
	t.Parallel()
	mustFind(t, []play{playOf(&suspectWorld{poisons: 3})})
}
