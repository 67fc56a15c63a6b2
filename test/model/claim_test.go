package model

import (
	"maps"
	"testing"
)

// quickClaims is how many of the searches the race detector makes too.
const quickClaims = 4

// claimWorlds are the searches of the claims, the quick ones first.
func claimWorlds() []claimWorld {
	return inTime([]claimWorld{
		{name: "a kill", kills: true, fails: true, left: claimFaults{faults: 1}},
		{name: "lost answers", losses: true, fails: true, left: claimFaults{faults: 1}},
		{name: "a pause", apart: true, pauses: true, left: claimFaults{faults: 1}},
		{name: "writes stall", left: claimFaults{stalls: 2}},
		{name: "a freeze", apart: true, freezes: true, left: claimFaults{faults: 1}},
		{name: "a freeze, a failed attempt", freezes: true, fails: true, left: claimFaults{faults: 1}},
		{name: "cut off", cuts: true, fails: true, left: claimFaults{faults: 1}},
		{name: "slow beats", slowBeats: true, left: claimFaults{faults: 2}},
		{name: "late packets", late: true, fails: true, left: claimFaults{faults: 1}},
		{name: "late packets, a kill", atOnce: true, late: true, kills: true, left: claimFaults{faults: 2}},
		{name: "late packets, a freeze", atOnce: true, late: true, freezes: true, left: claimFaults{faults: 2}},
		{name: "lost answers, a freeze", losses: true, freezes: true, left: claimFaults{faults: 2}},
		{name: "inserts", atOnce: true, doubles: true, freezes: true, left: claimFaults{faults: 2}},
		{name: "two freezes", atOnce: true, freezes: true, left: claimFaults{faults: 2}},
		{name: "a freeze while the first member changes", freezes: true, left: claimFaults{faults: 1, seats: 2}},
		{name: "a fail-over", atOnce: true, fails: true, left: claimFaults{failovers: 1}},
		{name: "a fail-over, a freeze", one: true, freezes: true, fails: true, left: claimFaults{failovers: 1, faults: 1}},
		{name: "two members leave", fails: true, left: claimFaults{leaves: 2}},
		{name: "a member leaves, another is killed", kills: true, left: claimFaults{leaves: 1, faults: 1}},
		{name: "a stall, a freeze", atOnce: true, freezes: true, left: claimFaults{stalls: 1, faults: 1}},
		{name: "the user, redrives", atOnce: true, fails: true, keys: true, left: claimFaults{user: 2}},
		{name: "the user, a freeze", atOnce: true, freezes: true, late: true, left: claimFaults{user: 1, faults: 1}},
		{name: "the user while a claim commits", left: claimFaults{user: 1}},
		{name: "a node and sweeps, a kill or freeze", atOnce: true, sweep: true, kills: true, freezes: true, left: claimFaults{faults: 1}},
	}, quickClaims)
}

// claimPlays search with some guards switched off.
func claimPlays(off ...ClaimGuard) (all []play) {
	for _, w := range claimWorlds() {
		for _, g := range off {
			w.off[g] = true
		}
		all = append(all, playOf(&w))
	}
	return all
}

func TestEveryDeliveryIsClaimedInEveryHistory(t *testing.T) {
	t.Parallel()
	mustHold(t, claimPlays(), bound)
}

// spareGuards break nothing by themselves: others stand for them. They save crashes and time.
var spareGuards = map[ClaimGuard]string{
	ClaimAsks:         "what was claimed under an ended session is recovered, and not started; but a crash is counted",
	EndedGivesBack:    "what was forgotten has no session any more, and is recovered; but a crash is counted",
	InsertNeverReused: "nobody beats or claims under the row that a late INSERT makes, so it is ended again",
	EndsWithoutGaps:   "a session is ended with the beat that was noted, so no beat is missed",
}

// TestEveryGuardOfClaimsIsNeeded switches each guard off.
func TestEveryGuardOfClaimsIsNeeded(t *testing.T) {
	t.Parallel()
	for g := range claimGuards {
		t.Run(claimGuardNames[g], func(t *testing.T) {
			t.Parallel()
			if why := spareGuards[g]; why != "" {
				mustHold(t, claimPlays(g)[:quickClaims], bound)
				t.Log(why)
				return
			}
			mustFind(t, claimPlays(g))
		})
	}
}

// TestEveryStepOfClaimsIsTaken: a step that occurs in no history would not be checked.
func TestEveryStepOfClaimsIsTaken(t *testing.T) {
	t.Parallel()
	taken := map[string]bool{}
	for _, w := range claimWorlds() {
		maps.Copy(taken, stepsOf(&w, 100_000))
	}
	for _, what := range []string{
		"time passes", "the server takes no writes for a while", "the replica becomes the primary", "the user cancels", "the user reschedules", "an operator buries",
		"an operator redrives with the same key", "is first now", "is stopped", "is stopped, with its clocks", "is continued", "is killed", "is started",
		"can't reach the server", "reaches the server again", "is told to stop", "deletes its session, and ends", "sees that another server answers",
		"opens a session", "opens a session by a second try, the first is still under way", "beats", "beats, and the answer is lost", "sends a beat that is slow",
		"gets the answer to its slow beat", "reads the sessions", "recovers what has no session", "sends a claim", "'s claim finds its session, and changes the row",
		"'s claim commits", "gets the answer to its claim", "waits no more for the answer to its claim", "kills the connection of its claim",
		"reads the row of the claim that got no answer", "'s packet is lost", "'s late packet reaches the server", "checks trust and time", "calls the handler",
		"stores its outcome", "stores its outcome, and the answer is lost", "stores its outcome by a second try, the first is still under way",
		"gives the row back", "compares the claims of its session with what it holds", "cuts its handler off, as its time to drain is over",
	} {
		if !taken[what] {
			t.Errorf("nobody ever %s", what)
		}
	}
}
