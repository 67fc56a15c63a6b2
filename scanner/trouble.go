package scanner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tocsinhq/tocsin/internal/store"
)

// patience tells how long to leave a failing server alone, longer each time, and
// whether it has ceased to fail. Not safe for concurrent use.
type patience struct {
	waits   *backoff.ExponentialBackOff
	failing bool
}

// newPatience waits from 100 ms up to longest.
func newPatience(longest time.Duration) *patience {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = min(100*time.Millisecond, longest)
	b.MaxInterval = longest
	return &patience{waits: b}
}

// failed returns how long to wait after a failure.
func (p *patience) failed() time.Duration {
	p.failing = true
	return p.waits.NextBackOff()
}

// well reports whether a failing server has come back.
func (p *patience) well() bool {
	back := p.failing
	if back {
		p.waits.Reset()
	}
	p.failing = false
	return back
}

// judge notes whether a peek found its server well.
func (sv *server) judge(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if err == nil {
		if sv.patience.well() {
			sv.restUntil = time.Time{}
			sv.limit.Of(sv.log, "peeked again").Info("server can be peeked again")
		}
		return
	}
	sv.metrics.failures.WithLabelValues(sv.name, "peek").Inc()
	sv.restUntil = time.Now().Add(sv.patience.failed())
	sv.limit.Of(sv.log, "peek").Error("server can't be peeked, its tables wait", "error", err)
}

// isolate moves the tables of g that could not be read into groups of their own,
// so that the others neither wait for them nor are read in full with them. Called under mu.
func (sv *server) isolate(g *group, failed map[int]error) {
	if g.failures > 0 && len(failed) == 0 {
		g.failures = 0
		sv.limit.Of(sv.log, "table again").Info("table can be peeked again", "tables", g.tables)
	}
	for _, t := range slices.Sorted(maps.Keys(failed)) {
		switch {
		case !slices.Contains(g.tables, t): // disowned meanwhile
		case len(g.tables) == 1:
			sv.leaveAlone(g, failed[t])
		default:
			g.tables = filter(g.tables, func(other int) bool { return other != t })
			alone := newGroup(g.Access, []int{t})
			sv.leaveAlone(alone, failed[t])
			sv.groups = append(sv.groups, alone)
		}
	}
}

// unreadable gives the tables that could not be read. A row that is in the wrong
// table, which only a hand can put there, hides no other.
func (sv *server) unreadable(failed map[int]error, full bool) map[int]error {
	bad := make(map[int]error)
	for t, err := range failed {
		if !errors.Is(err, store.ErrMisplaced) {
			bad[t] = err
			continue
		}
		sv.metrics.failures.WithLabelValues(sv.name, "row").Inc()
		if full { // each minute is often enough
			sv.limit.Of(sv.log, "row").Error("row can't be delivered", "error", err, "table", t)
		}
	}
	return bad
}

// halve makes two groups of one whose full look had no answer in time: together they had too much to read. A single table
// that was never read is left alone for a while; of another, the regular looks go on.
func (sv *server) halve(g *group, first bool, err error) {
	n := len(g.tables)
	g.next, g.deep = time.Time{}, true
	if first {
		g.nextFull = time.Time{}
	}
	switch {
	case n > 1:
		other := newGroup(g.Access, g.tables[n/2:])
		other.read, other.recent, other.nextFull, other.runOut, other.deep = maps.Clone(g.read), g.recent, g.nextFull, g.runOut, true
		g.tables = g.tables[: n/2 : n/2]
		sv.groups = append(sv.groups, other)
	case n == 1 && first:
		sv.leaveAlone(g, err)
	}
}

// leaveAlone puts off the next peek of a table that failed. What it holds is
// unread: it starts with a full peek.
func (sv *server) leaveAlone(g *group, err error) {
	g.failures++
	g.read, g.recent, g.nextFull = make(map[uint64]int64), 0, time.Time{}
	g.next = time.Now().Add(failWait(g.failures, sv.cfg.Interval))
	sv.metrics.failures.WithLabelValues(sv.name, "table").Inc()
	sv.limit.Of(sv.log, "table").Error("table can't be peeked, its tasks wait", "error", err, "table", g.tables[0])
}
