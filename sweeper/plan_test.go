package sweeper

import (
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
)

func policy(number uint64, timeout time.Duration, paused bool) biztype.Policy {
	return biztype.Policy{Name: "t", Number: number, Timeout: biztype.Duration(timeout), Paused: paused}
}

func TestRoundsPutTypesTogetherThatShareGraceAndFate(t *testing.T) {
	can := func(p biztype.Policy) bool { return p.Number < 4 || p.Number == 5 }
	got := rounds([]biztype.Policy{
		policy(2, time.Second, false), policy(1, 2*time.Second, false), policy(3, time.Second, true),
		policy(4, time.Second, true), policy(5, time.Minute, false), policy(6, time.Second, false),
	}, can, DefaultGrace)
	want := []round{
		{grace: DefaultGrace, types: []uint64{1, 2}},
		{grace: DefaultGrace, types: []uint64{3, 4}, left: leftPaused}, // also 4, which has no handler: a pause is asked for, and no fault
		{grace: 2 * time.Minute, types: []uint64{5}},
		{grace: DefaultGrace, types: []uint64{6}, left: leftForeign},
	}
	if len(got) != len(want) {
		t.Fatalf("%d rounds, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		g := got[i]
		if g.grace != w.grace || g.left != w.left || len(g.types) != len(w.types) || g.types[0] != w.types[0] {
			t.Errorf("round %d is %+v, want %+v", i, g, w)
		}
	}
}
