package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/node"
)

// without is the kind of a drain without a history; others are the index of their output among Options.Outputs.
const without = -1

// turns returns the kinds of all drains in order: in each round every kind once, at random, and before and after all rounds
// a drain without a history, so that each drain has one before and after it.
func turns(outputs, rounds int) []int {
	order := []int{without}
	for range rounds {
		kinds := rand.Perm(outputs + 1)
		for i := range kinds {
			kinds[i]--
		}
		order = append(order, kinds...)
	}
	return append(order, without)
}

// A node that resumes a biz type pulls the backlog of the tables that it peeked meanwhile without the type, and finds that of the
// others when it peeks them next. So a drain would take as long as the peeks are apart. The nodes peek every scanEvery, half as
// long again if they find nothing, and the biz types stay paused for longer than that.
const (
	scanEvery = time.Second
	pausedFor = 3 * scanEvery
)

// sample is what one drain took.
type sample struct {
	kind     int
	usage    Usage   // to the last outcome; its seconds count from the first delivery
	recorded Usage   // to the last run recorded
	idle     Usage   // of nodes with nothing to do, afterwards
	span     float64 // seconds that recorded covers: from the look before the biz types were resumed
	runs     runCount
	bytes    float64 // of the table run
	tasks    int
}

func (s sample) rate() float64    { return s.usage.rate(s.tasks) }
func (s sample) seconds() float64 { return s.usage.Seconds }
func (s sample) cpu() float64     { return s.recorded.ProcessCPU + s.recorded.ServerCPU }

// runCount is what nodes say of the runs they were given.
type runCount struct{ recorded, dropped, failed int }

func (c runCount) minus(b runCount) runCount {
	return runCount{c.recorded - b.recorded, c.dropped - b.dropped, c.failed - b.failed}
}

func (c runCount) total() int { return c.recorded + c.dropped + c.failed }

// histories is a measure of histories under way.
type histories struct {
	drain
	text    atomic.Pointer[string] // the output of each delivery
	seen    first
	nodes   *fleet
	samples []sample
}

func newHistories(s *site) *histories {
	h := &histories{drain: drain{site: s, n: s.opts.Tasks}}
	h.text.Store(new(string))
	return h
}

// measure does all drains with the same nodes.
func (h *histories) measure(ctx context.Context) (err error) {
	var handlers node.Handlers
	node.Handle(&handlers, other, func(context.Context, *tocsin.Task[string]) error { return nil }) // otherwise the nodes would log that they lack it
	node.Handle(&handlers, plain, func(ctx context.Context, _ *tocsin.Task[string]) error {
		if text := h.text.Load(); *text != "" {
			tocsin.Output(ctx, *text)
		}
		h.seen.add()
		return nil
	})
	if h.nodes, err = h.site.startNodes(ctx, &handlers); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.nodes.stop()) }()
	earliest := h.warm()
	defer func() { lessIdle(h.samples) }()
	return profiled(h.site.opts.Profile, func() error {
		for i, kind := range turns(len(h.site.opts.Outputs), h.site.opts.Rounds) {
			s, err := h.once(ctx, earliest, kind)
			if err != nil {
				return fmt.Errorf("drain %d: %w", i+1, err)
			}
			h.samples, earliest = append(h.samples, s), time.Time{}
		}
		return nil
	})
}

// once drains one backlog and checks what is in the table run then.
func (h *histories) once(ctx context.Context, earliest time.Time, kind int) (s sample, err error) {
	s = sample{kind: kind, tasks: h.n}
	text := ""
	if kind != without {
		text = strings.Repeat("o", h.site.opts.Outputs[kind])
	}
	h.text.Store(&text)
	h.seen.n.Store(0)
	if err := h.paused(ctx, kind != without); err != nil {
		return s, err
	}
	resume := time.Now().Add(pausedFor)
	if err := h.fill(ctx, earliest); err != nil {
		return s, err
	}
	if err := wait.Until(ctx, resume); err != nil {
		return s, err
	}
	before := h.counts()
	if err := h.timed(ctx, &s); err != nil {
		return s, err
	}
	s.runs = h.counts().minus(before)
	if err := h.site.pause(ctx, true); err != nil {
		return s, err
	}
	stored, err := h.site.emptyRuns(ctx, utf8.RuneCountInString(text))
	s.bytes = stored.bytes
	return s, errors.Join(err, s.check(stored))
}

// paused pauses the biz types, with a history or without, and waits until all nodes know: otherwise they would deliver a part
// of the backlog before the drain begins.
func (h *histories) paused(ctx context.Context, history bool) error {
	if err := h.site.applyHistory(ctx, true, history); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stallWithin)
	defer cancel()
	if err := h.nodes.await(ctx, h.nodes.paused); err != nil {
		return fmt.Errorf("wait for the nodes to pause: %w", err)
	}
	return nil
}

// paused reports whether no node begins a delivery.
func (f *fleet) paused() bool {
	for _, n := range f.nodes {
		report, _ := n.Report()
		for _, lane := range report.Lanes {
			if lane.State != dispatcher.Paused {
				return false
			}
		}
	}
	return true
}

// timed lets the nodes drain the backlog and waits for its runs.
func (h *histories) timed(ctx context.Context, s *sample) error {
	before := h.counts()
	begin, err := h.site.look(ctx)
	if err != nil {
		return err
	}
	if err := h.site.pause(ctx, false); err != nil {
		return err
	}
	err = h.nodes.awaitAll(ctx, h.n, func() int {
		n := h.seen.count()
		h.site.opts.Progress("drain", n, h.n)
		return n
	})
	if err != nil {
		return err
	}
	if s.usage, err = h.since(ctx, begin); err != nil {
		return err
	}
	if s.kind != without {
		if err := h.awaitRuns(ctx, before); err != nil {
			return err
		}
	}
	if s.recorded, err = h.since(ctx, begin); err != nil {
		return err
	}
	s.span = time.Since(begin.at).Seconds()
	return h.idle(ctx, s)
}

// idleFor is how long nodes with nothing to do are watched after each drain.
const idleFor = time.Second

// idle measures what the nodes take with nothing to do. They wait longer for the runs of a drain than for its outcomes.
func (h *histories) idle(ctx context.Context, s *sample) error {
	begin, err := h.site.look(ctx)
	if err != nil {
		return err
	}
	if err := wait.For(ctx, idleFor); err != nil {
		return err
	}
	s.idle, err = h.site.since(ctx, begin)
	return err
}

// lessIdle takes from each drain the CPU time that nodes with nothing to do take in the same time, by the mean of all drains.
func lessIdle(all []sample) {
	var idle Usage
	for _, s := range all {
		idle = idle.plus(s.idle)
	}
	for i := range all {
		share := all[i].span / idle.Seconds
		all[i].recorded.ProcessCPU -= idle.ProcessCPU * share
		all[i].recorded.ServerCPU -= idle.ServerCPU * share
	}
}

// since is what has been used since begin; its seconds count from the first delivery.
func (h *histories) since(ctx context.Context, begin glance) (Usage, error) {
	end := time.Now()
	usage, err := h.site.until(ctx, begin, end)
	usage.Seconds = end.Sub(h.seen.began()).Seconds()
	return usage, err
}

// recordedEvery is how often the nodes' metrics are read while runs are waited for: they cost a millisecond.
const recordedEvery = 100 * time.Millisecond

// awaitRuns waits until every run of the drain is recorded, or is known not to be.
func (h *histories) awaitRuns(ctx context.Context, before runCount) error {
	ctx, cancel := context.WithTimeout(ctx, stallWithin)
	defer cancel()
	var now runCount
	var looked time.Time
	err := h.nodes.await(ctx, func() bool {
		if time.Since(looked) < recordedEvery {
			return false
		}
		now, looked = h.counts().minus(before), time.Now()
		return now.total() >= h.n
	})
	if err != nil {
		return fmt.Errorf("wait for the runs of %d tasks: %d recorded, %d dropped, %d failed: %w", h.n, now.recorded, now.dropped, now.failed, err)
	}
	return nil
}

// counts are the nodes' so far.
func (h *histories) counts() runCount {
	all := h.nodes.counters("tocsin_history_recorded_total", "tocsin_history_dropped_total", "tocsin_history_failed_total")
	return runCount{int(all[0]), int(all[1]), int(all[2])}
}

// storedRuns is what is in the tables run.
type storedRuns struct {
	bytes float64
	n     int
	other int // have an output of another length
}

// emptyRuns looks at the tables run and removes all runs.
func (s *site) emptyRuns(ctx context.Context, output int) (all storedRuns, err error) {
	for database := range s.config.Layout.Databases {
		table := database * s.config.Layout.Tables
		db := s.pools[s.store.ServerOf(table)].DB
		var size float64
		var n, other int
		if _, err = db.ExecContext(ctx, s.text(analyzeSQL, table)); err == nil {
			err = db.GetContext(ctx, &size, runsSizeSQL, s.config.Layout.Database(database))
		}
		if err == nil {
			err = db.QueryRowContext(ctx, s.text(runsSQL, table), output).Scan(&n, &other)
		}
		if err == nil {
			_, err = db.ExecContext(ctx, s.text(emptyRunsSQL, table))
		}
		if err != nil {
			return all, fmt.Errorf("look at the runs: %w", err)
		}
		all = storedRuns{all.bytes + size, all.n + n, all.other + other}
	}
	return all, nil
}

// check refuses the figures of a drain whose runs are not all stored or counted as dropped: they would be those of other work.
func (s sample) check(stored storedRuns) error {
	want := s.tasks
	if s.kind == without {
		want = 0
	}
	switch c := s.runs; {
	case c.failed > 0:
		return fmt.Errorf("%d of %d runs could not be recorded", c.failed, want)
	case c.total() != want:
		return fmt.Errorf("%d tasks: %d runs recorded and %d dropped, want %d together", s.tasks, c.recorded, c.dropped, want)
	case stored.n != c.recorded:
		return fmt.Errorf("%d runs are stored, and the nodes say that they recorded %d", stored.n, c.recorded)
	case want > 0 && stored.n == 0:
		return fmt.Errorf("all of %d runs were dropped", want)
	case stored.other > 0:
		return fmt.Errorf("%d of %d runs have an output of another length", stored.other, stored.n)
	}
	return nil
}

// compare returns for each drain of a kind, in order, the mean cost of its nearest drains without a history, one before and one
// after it, over its own cost. Nil: a cost is unknown.
func compare(all []sample, kind int, cost func(sample) float64) (ratios []float64) {
	for i, s := range all {
		if s.kind != kind {
			continue
		}
		before, after := i-1, i+1
		for all[before].kind != without {
			before--
		}
		for all[after].kind != without {
			after++
		}
		bare := (cost(all[before]) + cost(all[after])) / 2
		if own := cost(s); math.IsNaN(bare) || math.IsNaN(own) || own == 0 {
			return nil
		}
		ratios = append(ratios, round(bare/cost(s), 3))
	}
	return ratios
}
