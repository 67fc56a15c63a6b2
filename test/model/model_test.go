package model

import (
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

// bound of one search, in states.
const bound = 3_000_000

// inTime returns the casts that can be searched quickly. The race detector makes a search ten times slower and has
// nothing to find in it: `make model` and `make test` search all casts without it.
func inTime() []Cast {
	casts := Casts()
	if underRace || testing.Short() {
		return casts[:5]
	}
	return casts
}

func TestEveryPromiseHoldsInEveryHistory(t *testing.T) {
	t.Parallel()
	var states, steps atomic.Int64
	t.Cleanup(func() { t.Logf("%d states, %d steps", states.Load(), steps.Load()) })
	for _, cast := range inTime() {
		t.Run(cast.Name, func(t *testing.T) {
			t.Parallel()
			got, err := run(&cast, designed(), bound)
			if err != nil {
				t.Fatal(err)
			}
			states.Add(int64(got.States))
			steps.Add(int64(got.Steps))
			t.Logf("%d states, %d steps", got.States, got.Steps)
			if got.Finding != nil {
				t.Errorf("\n%s", got.Finding)
			}
		})
	}
}

// TestMakeTestSearchesEveryCast: under the race detector five casts are searched and every tenth weakening is tried, so
// `make test`, which .ci/run calls, must search and try all of them, without it.
func TestMakeTestSearchesEveryCast(t *testing.T) {
	t.Parallel()
	if steps := recipe(t, "test"); !strings.Contains(steps, "'nice -n 19 $(MODEL) ") {
		t.Errorf("make test does not run what make model runs:\n%s", steps)
	}
	if steps := recipe(t, "model"); steps != "\t$(MODEL)\n" {
		t.Errorf("make model does more:\n%s", steps)
	}
	makefile, err := os.ReadFile("../../Makefile")
	command := regexp.MustCompile(`(?m)^MODEL = (.*)$`).FindSubmatch(makefile)
	if err != nil || command == nil || !strings.HasPrefix(string(command[1]), "go test ") || !strings.HasSuffix(string(command[1]), " ./test/model") ||
		strings.Contains(string(command[1]), "-race") || strings.Contains(string(command[1]), "-short") {
		t.Errorf("%v: make model does not search every cast: %s", err, command)
	}
	script, err := os.ReadFile("../../.ci/run")
	if err != nil || !strings.Contains(string(script), "'make test'") {
		t.Errorf("%v: .ci/run does not run make test:\n%s", err, script)
	}
}

// recipe returns the commands of a target of the Makefile.
func recipe(t *testing.T, target string) string {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + target + `:.*\n((?:\t.*\n)+)`).FindSubmatch(makefile)
	if found == nil {
		t.Fatalf("the Makefile has no target %s", target)
	}
	return string(found[1])
}

// TestWhatOneMillisecondCanDo shows the one thing known to go wrong: a hand-over claims by action_time alone, so where
// a row was given the very millisecond it was loaded with again, it claims what it has not loaded, and leaves it to run
// out. The row is late by the claim and has a crash too many; no promise of a user is broken.
func TestWhatOneMillisecondCanDo(t *testing.T) {
	t.Parallel()
	cast := Cast{Name: "a hand-over after a reschedule in the same millisecond", Roles: [maxActors]Role{Node, Node}, Coincide: true, HandOvers: 1, Reschedules: 1}
	got, err := run(&cast, designed(), bound)
	if err != nil {
		t.Fatal(err)
	}
	if got.Finding == nil || got.Finding.Promise != ownClaimLeft {
		t.Fatalf("found %v: does the hand-over compare versions now?", got.Finding)
	}
	t.Logf("\n%s", got.Finding)
}

// TestSearchRefusesToBeCutShort guards the guard: a search that stops at its bound has shown nothing.
func TestSearchRefusesToBeCutShort(t *testing.T) {
	t.Parallel()
	if got, err := run(&Casts()[0], designed(), 1000); err == nil {
		t.Errorf("no error after %d states", got.States)
	}
}

// TestEveryStepIsTaken: a step that no history takes would be checked by nobody.
func TestEveryStepIsTaken(t *testing.T) {
	t.Parallel()
	taken := map[string]bool{}
	cast := Cast{Name: "all", Roles: [maxActors]Role{Node, Sweeper}, HandOvers: 1, Faults: 1, Reschedules: 1, Redrives: 1, Breaks: true, InTx: true, Late: true, Coincide: true}
	m := machine{cast: &cast, rules: designed()}
	seen := map[state]bool{cast.start(): true}
	for todo := []state{cast.start()}; len(todo) > 0 && len(seen) < 200_000; todo = todo[1:] {
		for _, mv := range m.moves(&todo[0]) {
			taken[mv.what] = true
			if !seen[mv.to] {
				seen[mv.to] = true
				todo = append(todo, mv.to)
			}
		}
	}
	for _, what := range []string{
		"time passes", "the user cancels", "the user reschedules to now", "the user reschedules to the next tick",
		"an operator redrives", "an operator buries", "somebody recovers the claim", "purge deletes the row",
		"a handler succeeds after its time-out", "is killed", "is stopped", "is continued", "can't reach the database",
		"takes the table", "gives the table up", "releases the table", "loads the row", "peeks the row", "loads what it peeked",
		"claims the row", "claims the row, but does not hear of it", "claims the row in vain, and does not hear of it",
		"reads its claim back", "reads back the claim of what it has in delivery", "checks that it may start the row unclaimed",
		"checks that its claim lasts", "decides to give the row back", "forgets the row", "starts the delivery",
		"claims what it has in delivery", "completes in its own transaction", "times out while its handler goes on",
		"complete: stored", "retry: stored", "snooze: stored", "bury: stored", "retry: stored, but it does not hear of it",
		"complete: the row is another's", "retry: the row is another's",
	} {
		if !taken[what] {
			t.Errorf("nobody ever %s", what)
		}
	}
}
