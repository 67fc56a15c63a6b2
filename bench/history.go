package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
)

// HistoryResult says what a history costs.
type HistoryResult struct {
	Tasks     int             `json:"tasks"` // of each drain
	Rounds    int             `json:"rounds"`
	Rate      []float64       `json:"tasks_per_second"` // without a history: before the first drain with one, and after each
	PerTask   PerTask         `json:"per_task"`         // without a history, in the last of these
	Histories []HistoryFigure `json:"histories"`
	Run
}

// HistoryFigure is about drains with a history.
type HistoryFigure struct {
	Output      int       `json:"output"`            // characters of each run
	Rate        []float64 `json:"tasks_per_second"`  // from the first delivery to the last outcome stored, by round
	Ratio       []float64 `json:"ratio"`             // to the mean of the drains without a history before and after it
	ToRecord    []float64 `json:"seconds_to_record"` // from the last outcome to the last run recorded, by round
	Recorded    int       `json:"recorded"`          // runs, over all rounds
	Dropped     int       `json:"dropped"`
	Failed      int       `json:"failed"`
	BytesPerRun float64   `json:"bytes_per_run"` // of the table run, with its indexes, in the last round
	PerTask     PerTask   `json:"per_task"`      // to the last run recorded, in the last round
}

// History measures how much slower nodes deliver a backlog if each delivery leaves a run: drains without a history and with
// outputs of several lengths, in turn.
func History(ctx context.Context, opts Options) (r HistoryResult, err error) {
	if err := opts.Validate(); err != nil {
		return r, err
	}
	if opts.Tasks < 1 || opts.NoMetrics {
		return r, wrong("history: wants at least 1 task, and the nodes' metrics")
	}
	opts = opts.withDefaults()
	opts.drains = 1 + 2*opts.Rounds*len(opts.Outputs)
	s, err := openSite(ctx, opts, true)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := errors.Join(s.fillPending(ctx), s.warmUp(ctx)); err != nil {
		return r, err
	}
	h := &histories{drain: drain{site: s, n: s.opts.Tasks}, figures: make([]HistoryFigure, len(s.opts.Outputs))}
	for i, n := range s.opts.Outputs {
		h.figures[i].Output = n
	}
	if err := h.measure(ctx); err != nil {
		return r, fmt.Errorf("history: %w", err)
	}
	settings, err := s.settings(ctx)
	return HistoryResult{
		Tasks: h.n, Rounds: s.opts.Rounds, Rate: h.without, PerTask: h.perTask, Histories: h.figures, Run: s.run(settings),
	}, err
}

// histories is one under way.
type histories struct {
	drain
	text    atomic.Pointer[string] // the output of each delivery
	seen    *first
	nodes   *fleet
	without []float64
	perTask PerTask
	figures []HistoryFigure
	counted [3]int // recorded, dropped and failed, so far
}

// measure does all rounds with the same nodes.
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
	h.seen = &first{}
	h.text.Store(new(string))
	if h.nodes, err = h.site.startNodes(ctx, &handlers); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.nodes.stop()) }()
	if err := h.bare(ctx, h.warm()); err != nil {
		return err
	}
	for range h.site.opts.Rounds {
		for i := range h.figures {
			if err := h.with(ctx, &h.figures[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// bare measures one drain without a history.
func (h *histories) bare(ctx context.Context, earliest time.Time) error {
	usage, _, err := h.once(ctx, earliest, false, 0)
	if err == nil {
		h.without, h.perTask = append(h.without, round(usage.rate(h.n), 0)), usage.perTask(h.n)
	}
	return err
}

// with measures one drain with a history, and then one without.
func (h *histories) with(ctx context.Context, f *HistoryFigure) error {
	before := h.counted
	usage, recorded, err := h.once(ctx, time.Time{}, true, f.Output)
	if err != nil {
		return err
	}
	f.Recorded += h.counted[0] - before[0]
	f.Dropped += h.counted[1] - before[1]
	f.Failed += h.counted[2] - before[2]
	f.PerTask = recorded.perTask(h.n)
	if f.BytesPerRun, err = h.site.emptyRuns(ctx); err != nil {
		return err
	}
	if err := h.bare(ctx, time.Time{}); err != nil {
		return err
	}
	bare := h.without[len(h.without)-2:]
	f.Rate = append(f.Rate, round(usage.rate(h.n), 0))
	f.Ratio = append(f.Ratio, ratio(usage.rate(h.n), (bare[0]+bare[1])/2))
	f.ToRecord = append(f.ToRecord, round(recorded.Seconds-usage.Seconds, 2))
	return nil
}

// once drains one backlog. usage ends with the last outcome, recorded with the last run.
func (h *histories) once(ctx context.Context, earliest time.Time, history bool, output int) (usage, recorded Usage, err error) {
	text := strings.Repeat("o", output)
	h.text.Store(&text)
	h.seen.n.Store(0)
	if err := h.site.applyHistory(ctx, true, history); err != nil {
		return usage, recorded, err
	}
	if err := h.fill(ctx, earliest); err != nil {
		return usage, recorded, err
	}
	begin, err := h.site.look(ctx)
	if err != nil {
		return usage, recorded, err
	}
	if err := h.site.pause(ctx, false); err != nil {
		return usage, recorded, err
	}
	err = h.nodes.awaitAll(ctx, h.n, func() int {
		n := h.seen.count()
		h.site.opts.Progress("drain", n, h.n)
		return n
	})
	if err != nil {
		return usage, recorded, err
	}
	if usage, err = h.since(ctx, begin); err != nil {
		return usage, recorded, err
	}
	if history {
		if err := h.awaitRuns(ctx); err != nil {
			return usage, recorded, err
		}
	}
	if recorded, err = h.since(ctx, begin); err != nil {
		return usage, recorded, err
	}
	return usage, recorded, h.site.pause(ctx, true)
}

// since is what has been used since begin; its seconds count from the first delivery.
func (h *histories) since(ctx context.Context, begin glance) (Usage, error) {
	end := time.Now()
	usage, err := h.site.until(ctx, begin, end)
	usage.Seconds = end.Sub(h.seen.began()).Seconds()
	return usage, err
}

// awaitRuns waits until every run of the drain is recorded, or is known not to be.
func (h *histories) awaitRuns(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stallWithin)
	defer cancel()
	before, looked := h.counted, time.Time{}
	err := h.nodes.await(ctx, func() bool {
		if time.Since(looked) < recordedEvery {
			return false
		}
		looked = time.Now()
		total := -before[0] - before[1] - before[2]
		for i, name := range []string{"recorded", "dropped", "failed"} {
			h.counted[i] = int(h.nodes.counted("tocsin_history_" + name + "_total"))
			total += h.counted[i]
		}
		return total >= h.n
	})
	if err != nil {
		return fmt.Errorf("wait for the runs: %v recorded, dropped and failed, %v before: %w", h.counted, before, err)
	}
	return nil
}

// recordedEvery is how often the nodes' metrics are read while runs are waited for: they cost a millisecond.
const recordedEvery = 50 * time.Millisecond

// emptyRuns returns how many bytes a run takes, and removes all runs.
func (s *site) emptyRuns(ctx context.Context) (perRun float64, err error) {
	var bytes, runs float64
	for database := range s.config.Layout.Databases {
		table := database * s.config.Layout.Tables
		db := s.pools[s.store.ServerOf(table)].DB
		var size, n float64
		if _, err = db.ExecContext(ctx, s.text(analyzeSQL, table)); err == nil {
			err = db.GetContext(ctx, &size, runsSizeSQL, s.config.Layout.Database(database))
		}
		if err == nil {
			err = db.GetContext(ctx, &n, s.text(runsSQL, table))
		}
		if err == nil {
			_, err = db.ExecContext(ctx, s.text(emptyRunsSQL, table))
		}
		if err != nil {
			return 0, fmt.Errorf("size of the runs: %w", err)
		}
		bytes, runs = bytes+size, runs+n
	}
	return round(bytes/max(runs, 1), 0), nil
}

// String is the result for people.
func (r HistoryResult) String() string {
	var l lines
	l.line("drained", "%d tasks, %d times without a history: %s tasks/s", r.Tasks, len(r.Rate), listed("%.0f", r.Rate))
	l.cost("a task", r.PerTask)
	for _, f := range r.Histories {
		l.line("output", "of %d characters: %s tasks/s, %s of without; the last run %s s after the last outcome", f.Output,
			listed("%.0f", f.Rate), listed("%.2f", f.Ratio), listed("%.1f", f.ToRecord))
		l.line("", "%d recorded, %d dropped, %d failed; %.0f bytes a run", f.Recorded, f.Dropped, f.Failed, f.BytesPerRun)
		l.cost("a task", f.PerTask)
	}
	l.line("metrics", "%s", r.Metrics)
	l.run(r.Run)
	return l.String()
}

// listed writes figures in order: "0.81, 0.83 and 0.90".
func listed(format string, figures []float64) string {
	texts := make([]string, len(figures))
	for i, x := range slices.Sorted(slices.Values(figures)) {
		texts[i] = fmt.Sprintf(format, x)
	}
	if n := len(texts); n > 1 {
		return strings.Join(texts[:n-1], ", ") + " and " + texts[n-1]
	}
	return strings.Join(texts, "")
}
