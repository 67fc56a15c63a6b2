package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/dispatcher"
)

// stuckIntake can't drain table 3.
type stuckIntake struct{ intake }

func (stuckIntake) Drop([]int) {}

func (stuckIntake) Drain(context.Context, []int) error {
	return &dispatcher.Undrained{Tables: []int{3}, Err: context.DeadlineExceeded}
}

// callLog is an intake and a scan that note what they are told.
type callLog struct {
	intake
	calls []string
}

func (l *callLog) note(format string, args ...any) {
	l.calls = append(l.calls, fmt.Sprintf(format, args...))
}

func (l *callLog) Admit(tables []int, _ string, _ bool) { l.note("admit %d", tables) }
func (l *callLog) StandIn(tables []int, owner string, types []uint64) {
	l.note("stand in %d %s %d", tables, owner, types)
}
func (l *callLog) StandDown(tables []int) { l.note("stand down %d", tables) }

// scanLog is the scan of a callLog.
type scanLog struct{ *callLog }

func (l scanLog) Own(tables []int)                     { l.note("own %d", tables) }
func (l scanLog) StandIn(tables []int, types []uint64) { l.note("look %d %d", tables, types) }
func (l scanLog) Disown(tables []int)                  { l.note("disown %d", tables) }

// A stand-in follows duties, the policies and the lease; a table that the node takes or holds is its own.
func TestStandIns(t *testing.T) {
	lease, numbers := true, map[string]uint64{"b": 2}
	l := &callLog{}
	h := newHolder("orders", func(table int) int { return 0 }, slog.New(slog.DiscardHandler))
	h.intake, h.scan = l, scanLog{l}
	h.standIns = newStandIns(func(name string) (uint64, bool) { n, ok := numbers[name]; return n, ok }, func() bool { return lease }, nil)
	h.park(map[int]int64{9: 1})
	step := func(name string, change func(), want ...string) {
		t.Helper()
		l.calls = nil
		change()
		h.standIn(h.standIns.wanted(h.standIns.duties))
		if !slices.Equal(l.calls, want) {
			t.Errorf("%s: %q, want %q", name, l.calls, want)
		}
	}
	step("nothing to do", func() {})
	step("new duties", func() {
		h.setDuties([]assign.Duty{{Owner: "n1", Types: []string{"b", "unknown"}, Tables: []int{2, 4}}, {Owner: "n2", Types: []string{"unknown"}, Tables: []int{5}}, {Owner: "n3", Types: []string{"b"}, Tables: []int{9}}})
	}, "stand in [2 4] n1 [2]", "look [2 4] [2]")
	step("nothing new", func() {})
	step("a type is known now", func() { numbers["unknown"] = 3 },
		"disown [2 4]", "stand down [2 4]", "stand in [2 4] n1 [2 3]", "look [2 4] [2 3]", "stand in [5] n2 [3]", "look [5] [3]")
	step("a table is taken", func() { h.park(map[int]int64{5: 1}); h.begin("me", []int{5}, func() bool { return false }) },
		"disown [5]", "admit [5]", "own [5]")
	step("no lease", func() { lease = false }, "disown [2 4]", "stand down [2 4]")
	step("the lease is back", func() { lease = true }, "stand in [2 4] n1 [2 3]", "look [2 4] [2 3]")
	step("another owner", func() { h.setDuties([]assign.Duty{{Owner: "n4", Types: []string{"b"}, Tables: []int{4}}}) },
		"disown [2 4]", "stand down [2 4]", "stand in [4] n4 [2]", "look [4] [2]")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	step("the end", func() { h.runStandIns(ctx); h.setDuties(nil) }, "disown [4]", "stand down [4]")
}

// noScan scans nothing.
type noScan struct{ scan }

func (noScan) Disown([]int) {}

func TestOnlyTheTablesThatAreStuckKeepTheirKeys(t *testing.T) {
	h := holder{intake: stuckIntake{}, scan: noScan{}}
	var refused *assign.Refused
	err := h.Drop(t.Context(), []int{1, 2, 3})
	if !errors.As(err, &refused) || !slices.Equal(refused.Tables, []int{3}) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
