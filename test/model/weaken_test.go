package model

import "testing"

// redundant names every weakening that breaks nothing by itself, with the reason, and with what else has to go before
// the search finds a broken promise: a condition that no second one stood for would have no business in the table.
var redundant = map[string]struct{ why, beside string }{
	"retry: drop claimed by me": {
		why:    "only a row that was not begun is given back as it was found, and claimed again in the same millisecond",
		beside: "retry: drop action_time as left",
	},
	"bury: drop claimed by me": {
		why:    "only a row that was not begun is given back as it was found, and claimed again in the same millisecond",
		beside: "bury: drop action_time as left",
	},
	"claim: pending weakened to pending or claimed": {
		why:    "a claim moves action_time to its deadline, so a claimed row is not as it was read",
		beside: "claim: drop action_time as read",
	},
	"claim: pending weakened to pending or dead": {
		why:    "a burial moves action_time, so a dead row is not as it was read",
		beside: "claim: drop action_time as read",
	},
	"claim: drop action_time <= now": {
		why:    "who claims has loaded the row as due, and claims it as it was read; it matters where a server's clock steps back",
		beside: "guard off: load waits for what is not due",
	},
	"guard off: sweepers look at what is overdue by the grace time": {
		why:    "what a sweeper has peeked too early is not overdue by the grace time when it loads it",
		beside: "guard off: what sweepers load is still overdue by the grace time",
	},
	"read back: drop deadline as written": {
		why:    "a process has one claim of a row at a time, and another process another id",
		beside: "read back: drop claimed by me",
	},
	"recover (give back): drop not the last crash": {
		why:    "the burial stands before it in the same transaction and has taken those rows",
		beside: "guard off: recover buries before it gives back",
	},
	"guard off: recover buries before it gives back": {
		why:    "each row meets one of the two statements by its crashes, in either order",
		beside: "recover (give back): drop not the last crash",
	},
}

// triedInTime leaves out, under the race detector, all but every tenth weakening; see inTime.
func triedInTime() (few []weakening) {
	all := weakenings()
	if !underRace && !testing.Short() {
		return all
	}
	for i := 0; i < len(all); i += 10 {
		few = append(few, all[i])
	}
	return few
}

func TestEveryWeakerConditionBreaksAPromise(t *testing.T) {
	t.Parallel()
	all := map[string]weakening{}
	for _, w := range weakenings() {
		all[w.name] = w
	}
	for name := range redundant {
		if all[name].make == nil || all[redundant[name].beside].make == nil {
			t.Errorf("no such weakening: %s, or %s", name, redundant[name].beside)
		}
	}
	for _, w := range triedInTime() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			second, alone := redundant[w.name]
			if !alone {
				mustFind(t, castPlays(Casts(), w))
				return
			}
			mustFind(t, castPlays(Casts(), w, all[second.beside]))
			mustHold(t, castPlays(Casts()[:quickCasts], w), bound)
			t.Logf("redundant: %s", second.why)
		})
	}
}
