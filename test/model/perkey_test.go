package model

import "testing"

func TestOneRowOfAKeyIsInDelivery(t *testing.T) {
	t.Parallel()
	mustHold(t, []play{playOf(&keyWorld{})}, bound)
}

// TestEveryGuardOfKeysIsNeeded switches each guard off.
func TestEveryGuardOfKeysIsNeeded(t *testing.T) {
	t.Parallel()
	for g := range keyGuards {
		t.Run(keyGuardNames[g], func(t *testing.T) {
			t.Parallel()
			w := keyWorld{}
			w.off[g] = true
			mustFind(t, []play{playOf(&w)})
		})
	}
}
