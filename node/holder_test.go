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
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// stuckIntake can't drain table 3.
type stuckIntake struct{ intake }

func (stuckIntake) Drain(context.Context, []int) error {
	return &dispatcher.Undrained{Tables: []int{3}, Err: context.DeadlineExceeded}
}

// scanLog notes what a scan is told.
type scanLog struct{ calls []string }

func (l *scanLog) Set(tables []int, as *duequeue.Access) {
	if as == nil {
		l.calls = append(l.calls, fmt.Sprintf("end %d", tables))
		return
	}
	l.calls = append(l.calls, fmt.Sprintf("%d of %s, types %d", tables, as.Owner, as.Types))
}

// A stand-in follows duties, the policies and the lease; a table that the node takes or holds is its own.
func TestStandIns(t *testing.T) {
	lease, numbers := true, map[string]uint64{"b": 2}
	l := &scanLog{}
	h := newHolder("orders", func(table int) int { return 0 }, slog.New(slog.DiscardHandler))
	h.scan, h.node = l, func() string { return "me" }
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
	}, "[2 4] of n1, types [2]")
	step("nothing new", func() {})
	step("a type is known now", func() { numbers["unknown"] = 3 },
		"end [2 4]", "[2 4] of n1, types [2 3]", "[5] of n2, types [3]")
	step("a table is taken", func() { h.park(map[int]int64{5: 1}); h.begin("me", []int{5}, func() bool { return false }) },
		"[5] of me, types []")
	step("no lease", func() { lease = false }, "end [2 4]")
	step("the lease is back", func() { lease = true }, "[2 4] of n1, types [2 3]")
	step("another owner", func() { h.setDuties([]assign.Duty{{Owner: "n4", Types: []string{"b"}, Tables: []int{4}}}) },
		"end [2 4]", "[4] of n4, types [2]")
	h.intake = stuckIntake{}
	step("a table that could not be drained is dropped again", func() { _ = h.Drop(t.Context(), []int{3, 4}) }, "end [3]")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	step("the end", func() { h.runStandIns(ctx); h.setDuties(nil) }, "end [4]")
}

// noScan scans nothing.
type noScan struct{}

func (noScan) Set([]int, *duequeue.Access) {}

func TestOnlyTheTablesThatAreStuckKeepTheirKeys(t *testing.T) {
	h := holder{intake: stuckIntake{}, scan: noScan{}}
	var refused *assign.Refused
	err := h.Drop(t.Context(), []int{1, 2, 3})
	if !errors.As(err, &refused) || !slices.Equal(refused.Tables, []int{3}) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// A table that the node took under a former id may be another's: it is not taken up again under the new one.
func TestATableOfAFormerIdIsNotResumed(t *testing.T) {
	id := "me-1"
	h := newHolder("orders", func(int) int { return 0 }, slog.New(slog.DiscardHandler))
	h.node, h.scan = func() string { return id }, noScan{}
	h.use([]int{0}, nil)
	h.park(map[int]int64{3: 1})
	h.use(nil, nil)
	if some := h.resumable(); some[3] != 1 {
		t.Errorf("parked: %v", some)
	}
	id = "me-2"
	if some := h.resumable(); len(some) != 0 {
		t.Errorf("of a former id: %v", some)
	}
	h.park(map[int]int64{4: 2})
	h.forget([]int{3})
	h.stop(func(int) bool { return true })
	if some := h.resumable(); len(some) != 1 || some[4] != 2 {
		t.Errorf("taken again: %v", some)
	}
}

func TestWhatTheEndOfAnEngineMeans(t *testing.T) {
	t.Parallel()
	broken, canceled := errors.New("out of paper"), fmt.Errorf("read: %w", context.Canceled)
	for name, c := range map[string]struct {
		over bool // its context has ended
		err  error
		want string
	}{
		"in time":                        {true, nil, ""},
		"in time, with its context's":    {true, canceled, ""},
		"in time, with an error":         {true, broken, "scanner: out of paper"},
		"too soon":                       {false, nil, "scanner has ended before its time"},
		"too soon, with another's":       {false, canceled, "scanner: read: context canceled"},
		"too soon, with an error":        {false, broken, "scanner: out of paper"},
		"in time, with a late statement": {true, context.DeadlineExceeded, "scanner: context deadline exceeded"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if c.over {
			cancel()
		}
		got := ""
		if err := ended(ctx, "scanner", c.err); err != nil {
			got = err.Error()
		}
		cancel()
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
