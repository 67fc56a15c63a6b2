package bench

import (
	"context"
	"errors"
	"fmt"
)

// HistoryResult says what a history costs.
type HistoryResult struct {
	Tasks     int             `json:"tasks"`            // of each drain
	Rounds    int             `json:"rounds"`           //
	Rate      []float64       `json:"tasks_per_second"` // without a history, in the order of the drains
	Rates     Quartiles       `json:"tasks_per_second_quartiles"`
	PerTask   PerTask         `json:"per_task"` // without a history, the mean of these drains
	Histories []HistoryFigure `json:"histories"`
	Run
}

// HistoryFigure is about drains with a history. A ratio compares a drain with the mean of the nearest drain without a history
// before it and the nearest one after it: 1 is no cost, 0.5 twice the cost.
type HistoryFigure struct {
	Output      int        `json:"output"`           // characters of each run
	Rate        []float64  `json:"tasks_per_second"` // from the first delivery to the last outcome stored, by round
	Rates       Quartiles  `json:"tasks_per_second_quartiles"`
	Ratio       []float64  `json:"ratio"` // of the rates
	Ratios      Quartiles  `json:"ratio_quartiles"`
	CPURatio    []float64  `json:"cpu_ratio"` // of the CPU time of this process and the server, to the last run recorded, less that of nodes with nothing to do; null: unknown
	CPURatios   *Quartiles `json:"cpu_ratio_quartiles"`
	ToRecord    []float64  `json:"seconds_to_record"` // from the last outcome to the last run recorded, by round
	Recorded    int        `json:"recorded"`          // runs, over all rounds
	Dropped     int        `json:"dropped"`           // cost nothing, so they make the ratio of CPU time better than it is
	BytesPerRun float64    `json:"bytes_per_run"`     // of the table run, with its indexes, the mean of all rounds
	PerTask     PerTask    `json:"per_task"`          // to the last run recorded, the mean of all rounds
}

// History measures how much slower nodes deliver a backlog if each delivery leaves a run: drains without a history and with
// outputs of several lengths, in a random order in each round. It fails if a run is neither stored nor counted as dropped.
func History(ctx context.Context, opts Options) (r HistoryResult, err error) {
	if err := opts.Validate(); err != nil {
		return r, err
	}
	if opts.Tasks < 1 || opts.NoMetrics {
		return r, wrong("history: wants at least 1 task, and the nodes' metrics")
	}
	opts = opts.withDefaults()
	opts.scan, opts.drains = scanEvery, len(turns(len(opts.Outputs), opts.Rounds))
	s, err := openSite(ctx, opts, true)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := errors.Join(s.fillPending(ctx), s.warmUp(ctx)); err != nil {
		return r, err
	}
	h := newHistories(s)
	if err := h.measure(ctx); err != nil {
		return r, fmt.Errorf("history: %w", err)
	}
	settings, err := s.settings(ctx)
	return h.result(settings), err
}

func (h *histories) result(settings map[string]string) HistoryResult {
	r := HistoryResult{Tasks: h.n, Rounds: h.site.opts.Rounds, Run: h.site.run(settings)}
	r.Rate, r.PerTask = h.of(without)
	r.Rates = quartiles(r.Rate)
	for i, output := range h.site.opts.Outputs {
		r.Histories = append(r.Histories, h.figure(i, output))
	}
	return r
}

// of returns the rates of the drains of one kind and what a task cost in them.
func (h *histories) of(kind int) (rates []float64, cost PerTask) {
	var all Usage
	for _, s := range h.samples {
		if s.kind == kind {
			rates, all = append(rates, round(s.rate(), 0)), all.plus(s.recorded)
		}
	}
	return rates, all.perTask(h.n * len(rates))
}

func (h *histories) figure(kind, output int) HistoryFigure {
	f := HistoryFigure{Output: output, Ratio: compare(h.samples, kind, sample.seconds), CPURatio: compare(h.samples, kind, sample.cpu)}
	f.Rate, f.PerTask = h.of(kind)
	f.Rates, f.Ratios = quartiles(f.Rate), quartiles(f.Ratio)
	if f.CPURatio != nil {
		all := quartiles(f.CPURatio)
		f.CPURatios = &all
	}
	var bytes float64
	for _, s := range h.samples {
		if s.kind == kind {
			f.ToRecord = append(f.ToRecord, round(s.recorded.Seconds-s.usage.Seconds, 2))
			f.Recorded, f.Dropped, bytes = f.Recorded+s.runs.recorded, f.Dropped+s.runs.dropped, bytes+s.bytes
		}
	}
	f.BytesPerRun = round(bytes/float64(max(f.Recorded, 1)), 0)
	return f
}

// String is the result for people.
func (r HistoryResult) String() string {
	var l lines
	l.line("without", "a history: %d drains of %d tasks, %s tasks/s", len(r.Rate), r.Tasks, r.Rates.text("%.0f"))
	l.cost("a task", r.PerTask)
	for _, f := range r.Histories {
		l.line("output", "of %d characters: %d drains, %s tasks/s", f.Output, len(f.Rate), f.Rates.text("%.0f"))
		l.line("ratio", "%s of the speed without", f.Ratios.text("%.2f"))
		cpu := "unknown"
		if f.CPURatios != nil {
			cpu = f.CPURatios.text("%.3f")
		}
		l.line("by CPU time", "%s, what recording takes included", cpu)
		l.line("recorded", "%d runs, each drain's last %s s after its last outcome; %.0f bytes a run", f.Recorded, quartiles(f.ToRecord).text("%.1f"), f.BytesPerRun)
		if f.Dropped > 0 {
			l.line("DROPPED", "%d of %d runs, as too many waited: by CPU time the ratio is better than the cost of a whole history", f.Dropped, f.Recorded+f.Dropped)
		}
		l.cost("a task", f.PerTask)
	}
	l.line("figures", "median (lower to upper quartile)")
	l.line("metrics", "%s", r.Metrics)
	l.run(r.Run)
	return l.String()
}
