package model

import "testing"

func TestLeasesHoldInEveryHistory(t *testing.T) {
	t.Parallel()
	mustHold(t, []play{playOf(&leaseWorld{})}, bound)
}

// TestEveryGuardOfLeasesIsNeeded switches each guard off.
func TestEveryGuardOfLeasesIsNeeded(t *testing.T) {
	t.Parallel()
	for g := range leaseGuards {
		t.Run(leaseGuardNames[g], func(t *testing.T) {
			t.Parallel()
			w := leaseWorld{}
			w.off[g] = true
			mustFind(t, []play{playOf(&w)})
		})
	}
}
