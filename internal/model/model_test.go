package model

import (
	"testing"
	"time"
)

// bound of one search, in states.
const bound = 3_000_000

func TestEveryPromiseHoldsInEveryHistory(t *testing.T) {
	start, states, steps := time.Now(), 0, 0
	for _, cast := range Casts() {
		got, err := run(&cast, designed(), bound)
		if err != nil {
			t.Fatal(err)
		}
		states, steps = states+got.States, steps+got.Steps
		t.Logf("%8d states %9d steps: %s", got.States, got.Steps, cast.Name)
		if got.Finding != nil {
			t.Errorf("%s:\n%s", cast.Name, got.Finding)
		}
	}
	t.Logf("%8d states %9d steps in %s", states, steps, time.Since(start).Round(time.Millisecond))
}

func TestW(t *testing.T) {
	for _, w := range weakenings() {
		start := time.Now()
		found := false
		for _, cast := range Casts() {
			rs := designed()
			w.make(rs)
			got, err := run(&cast, rs, bound)
			if err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
			if got.Finding != nil {
				t.Logf("%s: %s, %d steps, %s (%s)", w.name, got.Finding.Promise, len(got.Finding.Trace), time.Since(start), cast.Name)
				found = true
				break
			}
		}
		if !found {
			t.Errorf("%s: nothing found %s", w.name, time.Since(start))
		}
	}
}
