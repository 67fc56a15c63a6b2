package model

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// quickCasts is how many of the casts the race detector searches too.
const quickCasts = 5

// castPlays are the searches of some casts under the rules, each weakened in some ways.
func castPlays(casts []Cast, weaker ...weakening) (all []play) {
	rs := designed()
	for _, w := range weaker {
		w.make(rs)
	}
	for _, cast := range casts {
		all = append(all, playOf(&machine{cast: &cast, rules: rs}))
	}
	return all
}

func TestEveryPromiseHoldsInEveryHistory(t *testing.T) {
	t.Parallel()
	mustHold(t, castPlays(inTime(Casts(), quickCasts)), bound)
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
	got, err := walk(&machine{cast: &cast, rules: designed()}, bound)
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
	if got, err := walk(&machine{cast: &Casts()[0], rules: designed()}, 1000); err == nil {
		t.Errorf("no error after %d states", got.States)
	}
}

// TestEveryStepIsTaken: a step that no history takes would be checked by nobody.
func TestEveryStepIsTaken(t *testing.T) {
	t.Parallel()
	cast := Cast{Name: "all", Roles: [maxActors]Role{Node, Sweeper}, HandOvers: 1, Faults: 1, Reschedules: 1, Redrives: 1, Breaks: true, InTx: true, Late: true, Coincide: true}
	taken := stepsOf(&machine{cast: &cast, rules: designed()}, 200_000)
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
