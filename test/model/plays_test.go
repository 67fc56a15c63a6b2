package model

import "testing"

// bound of one search, in states.
const bound = 3_000_000

// play is a search that visits a limited number of states and can be started again with a higher limit.
type play struct {
	name string
	walk func(bound int) (Result, error)
}

func playOf[S comparable](w world[S]) play {
	return play{name: w.String(), walk: func(bound int) (Result, error) { return walk(w, bound) }}
}

// inTime leaves out, under the race detector, what it can't search quickly: it makes a search ten times slower and has
// nothing to find in it. `make model` and `make test` search all of it without.
func inTime[T any](all []T, quick int) []T {
	if underRace || testing.Short() {
		return all[:quick]
	}
	return all
}

// mustHold searches each play to its end.
func mustHold(t *testing.T, plays []play, bound int) {
	t.Helper()
	for _, p := range plays {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			got, err := p.walk(bound)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states, %d steps", got.States, got.Steps)
			if got.Finding != nil {
				t.Errorf("\n%s", got.Finding)
			}
		})
	}
}

// mustFind searches until a play breaks a promise, and prints how. Most mistakes show after a few states of some play, so none
// is searched to its end before all were begun.
func mustFind(t *testing.T, plays []play) {
	t.Helper()
	for few := 10_000; len(plays) > 0; few = min(10*few, bound) {
		var more []play
		for _, p := range plays {
			got, err := p.walk(few)
			switch {
			case got.Finding != nil:
				t.Logf("%s, %d states:\n%s", p.name, got.States, got.Finding)
				return
			case err != nil && few == bound:
				t.Fatal(err)
			case err != nil:
				more = append(more, p)
			}
		}
		plays = more
	}
	t.Error("nothing breaks: is it needed?")
}

// stepsOf gives what is done in the first states of a world.
func stepsOf[S comparable](w world[S], few int) map[string]bool {
	steps := map[string]bool{}
	first := w.start()
	seen := map[S]bool{first: true}
	for todo := []S{first}; len(todo) > 0 && len(seen) < few; todo = todo[1:] {
		for _, mv := range w.moves(&todo[0]) {
			steps[mv.what] = true
			if !seen[mv.to] {
				seen[mv.to] = true
				todo = append(todo, mv.to)
			}
		}
	}
	return steps
}
