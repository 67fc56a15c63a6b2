package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// A node that resumes a biz type pulls the backlog of the tables that it peeked meanwhile without the type, and finds that of the
// others when it peeks them next. So a drain would take as long as the peeks are apart. The nodes peek every scanEvery, half as
// long again if they find nothing, and the biz types stay paused for longer than that.
const (
	scanEvery     = time.Second
	pausedFor     = 3 * scanEvery
	recordedEvery = 100 * time.Millisecond // between two reads of the nodes' metrics, which cost a millisecond
	drainWithin   = 5 * time.Minute
)

// without is the output of a drain without a history.
const without = -1

// BenchmarkHistory measures what a drain costs if each delivery leaves a run: in each round one drain without a history and one for
// each length of output, in a random order, by the same nodes. The figures are those of all rounds: the speed up to the last
// outcome, and the CPU time of this process and the server up to the last run recorded, which is the whole cost, and steady on a
// busy machine. Runs that are dropped cost nothing.
func BenchmarkHistory(b *testing.B) {
	const n, rounds = 40_000, 8
	outputs := []int{0, 200, 1000}
	s := open(b, Options{Layout: tocsin.Layout{Databases: 8, Tables: 16}, Tasks: n * rounds * (len(outputs) + 1) / 3, Warm: 61 * time.Second}, true)
	for _, k := range measureHistory(b, s, n, rounds, outputs) {
		b.Run(k.name(), func(b *testing.B) { report(b, k.figures()) })
	}
}

// kind is what all drains with the same output took.
type kind struct {
	output  int     // characters
	tasks   int     //
	seconds float64 // from the first delivery to the last outcome
	used    Usage   // to the last run recorded, less what nodes with nothing to do take
	runs    int     // recorded
	dropped int
	bytes   float64 // of the table run, with its indexes
}

func (k *kind) name() string {
	if k.output == without {
		return "without"
	}
	return fmt.Sprintf("output=%d", k.output)
}

func (k *kind) figures() map[string]float64 {
	figures := map[string]float64{
		"tasks/s":     round(float64(k.tasks)/k.seconds, 0),
		"cpu-µs/task": round((k.used.ProcessCPU+k.used.ServerCPU)/float64(k.tasks)*1e6, 2),
	}
	if k.output != without {
		figures["dropped"], figures["bytes/run"] = float64(k.dropped), round(k.bytes/float64(max(k.runs, 1)), 0)
	}
	return figures
}

// histories is a measure under way.
type histories struct {
	drain
	tb    testing.TB
	text  atomic.Pointer[string] // the output of each delivery
	seen  first
	nodes *fleet
}

// measureHistory returns what the drains without a history took, and those with each of the outputs.
func measureHistory(tb testing.TB, s *site, n, rounds int, outputs []int) []*kind {
	tb.Helper()
	s.opts.scan = scanEvery
	h := &histories{tb: tb, drain: drain{site: s, n: n}}
	h.text.Store(new(string))
	var err error
	h.nodes, err = s.startNodes(tb.Context(), func(ctx context.Context, _ tocsin.Info) {
		if text := h.text.Load(); *text != "" {
			tocsin.Output(ctx, *text)
		}
		h.seen.add()
	}, nobody)
	must(tb, err)
	tb.Cleanup(func() { must(tb, h.nodes.stop()) })
	h.once(&kind{output: without}, h.warm())
	kinds := []*kind{{output: without}}
	for _, output := range outputs {
		kinds = append(kinds, &kind{output: output})
	}
	for range rounds {
		for _, i := range rand.Perm(len(kinds)) {
			h.once(kinds[i], time.Time{})
		}
	}
	return kinds
}

// once drains one backlog, and adds to the kind what it took.
func (h *histories) once(k *kind, earliest time.Time) {
	h.tb.Helper()
	ctx, cancel := context.WithTimeout(h.tb.Context(), drainWithin)
	defer cancel()
	text := strings.Repeat("o", max(k.output, 0))
	h.text.Store(&text)
	h.seen.n.Store(0)
	must(h.tb, h.site.applyTypes(ctx, biztype.Policy{Paused: true, History: k.output != without}))
	must(h.tb, h.nodes.Await(ctx, lookEvery, h.paused)) // otherwise they would deliver a part of the backlog before the drain begins
	resume := time.Now().Add(pausedFor)
	must(h.tb, h.fill(ctx, earliest))
	must(h.tb, loop.WaitUntil(ctx, resume))
	recorded, dropped := h.runs()
	used, err := h.site.measured(ctx, func() error {
		err := errors.Join(h.site.pause(ctx, false), h.nodes.awaitAll(ctx, "drain", h.n, h.seen.count))
		k.seconds += time.Since(h.seen.began()).Seconds()
		if k.output == without || err != nil {
			return err
		}
		return h.awaitRuns(ctx, recorded+dropped+h.n)
	})
	must(h.tb, err)
	must(h.tb, h.site.pause(ctx, true))
	idle, err := h.site.watch(ctx, "settle", time.Second) // the nodes wait longer for runs than for outcomes
	must(h.tb, err)
	k.tasks += h.n
	k.used = k.used.plus(used, 1).plus(idle, -used.Seconds/idle.Seconds)
	now, gone := h.runs()
	k.runs, k.dropped = k.runs+now-recorded, k.dropped+gone-dropped
	k.bytes += h.emptyRuns(now - recorded)
}

// paused reports whether no node begins a delivery.
func (h *histories) paused() bool {
	for _, n := range h.nodes.Nodes {
		report, _ := n.Report()
		for _, lane := range report.Lanes {
			if lane.State != dispatcher.Paused {
				return false
			}
		}
	}
	return true
}

// runs returns how many runs the nodes have recorded, and how many they have dropped.
func (h *histories) runs() (recorded, dropped int) {
	h.tb.Helper()
	if failed := h.nodes.counted("tocsin_history_failed_total"); failed > 0 {
		h.tb.Fatalf("%d runs could not be recorded", failed)
	}
	return h.nodes.counted("tocsin_history_recorded_total"), h.nodes.counted("tocsin_history_dropped_total")
}

// awaitRuns returns when as many runs are recorded or dropped.
func (h *histories) awaitRuns(ctx context.Context, all int) error {
	for {
		recorded, dropped := h.runs()
		if recorded+dropped == all {
			return nil
		}
		if err := loop.Wait(ctx, recordedEvery); err != nil {
			return fmt.Errorf("wait for %d runs: %d recorded, %d dropped: %w", all, recorded, dropped, err)
		}
	}
}

// emptyRuns removes all runs and returns how many bytes they took. If there are not n, the figures are those of other work.
func (h *histories) emptyRuns(n int) (bytes float64) {
	h.tb.Helper()
	ctx, s, stored := h.tb.Context(), h.site, 0
	for database := range s.config.Layout.Databases {
		db := s.pools[s.store.ServerOf(database*s.config.Layout.Tables)].DB
		name := s.config.Layout.Database(database)
		var size float64
		var runs int
		_, err := db.ExecContext(ctx, "ANALYZE TABLE "+name+".run")
		must(h.tb, err)
		must(h.tb, db.GetContext(ctx, &size, `SELECT /* tocsin bench_size */ data_length + index_length
FROM information_schema.tables
WHERE table_schema = ?
  AND table_name = 'run'`, name))
		must(h.tb, db.GetContext(ctx, &runs, "SELECT /* tocsin bench_runs */ COUNT(*) FROM "+name+".run"))
		_, err = db.ExecContext(ctx, "TRUNCATE TABLE "+name+".run")
		must(h.tb, err)
		bytes, stored = bytes+size, stored+runs
	}
	if stored != n {
		h.tb.Fatalf("%d runs are stored, and the nodes say that they recorded %d", stored, n)
	}
	return bytes
}
