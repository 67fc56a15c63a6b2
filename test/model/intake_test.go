package model

import "testing"

var (
	noRow   = intakeRow{over: true}
	overdue = intakeRow{there: true}
)

func soon(due uint8) intakeRow  { return intakeRow{there: true, due: due} }
func added(due uint8) intakeRow { return intakeRow{due: due} }

// intakePlays are the searches of a lane with some guards switched off, the quick ones first.
func intakePlays(off ...IntakeGuard) (all []play) {
	for _, w := range []intakeWorld{
		{name: "two rows that are due at once", rows: [intakeRows]intakeRow{overdue, overdue, noRow}, ring: 1, slots: 2, page: 1, ahead: 1},
		{name: "one is committed late", rows: [intakeRows]intakeRow{overdue, {late: true}, noRow}, ring: 1, slots: 1, page: 1, ahead: 1},
		{name: "a row is tried again", rows: [intakeRows]intakeRow{soon(1), soon(2), noRow}, ring: 2, slots: 1, page: 1, ahead: 2, budget: intakeBudget{retries: 2}},
		{name: "bells, and a small ring", rows: [intakeRows]intakeRow{added(1), added(2), noRow}, ring: 1, slots: 1, page: 1, ahead: 2, bells: true},
		{name: "rows are changed", rows: [intakeRows]intakeRow{soon(2), soon(1), noRow}, ring: 2, slots: 1, page: 1, ahead: 2, bells: true, budget: intakeBudget{changes: 1}},
		{name: "reads fail", rows: [intakeRows]intakeRow{soon(1), added(1), noRow}, ring: 2, slots: 1, page: 1, ahead: 1, budget: intakeBudget{fails: 1, stalls: 2}},
		{name: "a type is paused", rows: [intakeRows]intakeRow{soon(1), soon(2), noRow}, ring: 1, slots: 1, page: 1, ahead: 1, budget: intakeBudget{pauses: 1, retries: 1}},
	} {
		for _, g := range off {
			w.off[g] = true
		}
		all = append(all, playOf(&w))
	}
	return all
}

func TestNoRowOfAnIntakeIsOverlooked(t *testing.T) {
	t.Parallel()
	mustHold(t, intakePlays(), bound)
}

// TestEveryGuardOfTheIntakeIsNeeded switches each guard off: each is a naive version of the protocol.
func TestEveryGuardOfTheIntakeIsNeeded(t *testing.T) {
	t.Parallel()
	for g, name := range intakeGuardNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustFind(t, intakePlays(IntakeGuard(g)))
		})
	}
}
