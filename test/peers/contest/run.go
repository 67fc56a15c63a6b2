package contest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Options say how much work there is.
type Options struct {
	Tasks   int           // of insert and of drain, each at least 1
	Rates   []float64     // of lateness, tasks a second; none: lateness is not measured
	Adding  time.Duration // how long tasks are added at a rate
	Rounds  int           // at least 1
	Warm    bool          // false measures a Warmer as it is
	Strict  bool          // see Setup
	Workers int           // see Setup
	Layout  tocsin.Layout // of Tocsin's tables

	Progress func(round int, system, text string) // called by one goroutine; nil: nobody looks
}

// The most that a run is asked for.
const (
	maxTasks  = 5_000_000
	maxRate   = 100_000
	maxAdding = 10 * time.Minute
	maxRounds = 100

	maxWorkers = 1000
)

// Validate reports the first thing that cannot be measured.
func (o Options) Validate() error {
	switch {
	case o.Tasks < 1 || o.Tasks > maxTasks:
		return fmt.Errorf("%d tasks: want 1 to %d", o.Tasks, maxTasks)
	case o.Rounds < 1 || o.Rounds > maxRounds:
		return fmt.Errorf("%d rounds: want 1 to %d", o.Rounds, maxRounds)
	case o.Workers < 0 || o.Workers > maxWorkers:
		return fmt.Errorf("%d workers: want 1 to %d", o.Workers, maxWorkers)
	case o.Adding <= 0 || o.Adding > maxAdding:
		return fmt.Errorf("adding %s: want more than 0s and at most %s", o.Adding, maxAdding)
	}
	for _, rate := range o.Rates {
		if !(rate > 0 && rate <= maxRate) {
			return fmt.Errorf("rate %g: want more than 0 and at most %d tasks a second", rate, maxRate)
		}
	}
	return o.Layout.Validate()
}

// Turn is what one system did in one round.
type Turn struct {
	Drain      float64    `json:"drain_per_second"`
	Insert     float64    `json:"insert_per_second"`
	Lateness   []Lateness `json:"lateness"`
	Delivered  int        `json:"delivered"`  // tasks, of all works
	Duplicates int        `json:"duplicates"` // deliveries beyond the first of a task
}

// Play gives every entry its turn in every round, and returns what each did, in
// the order of the entries. It returns at the first error, with nothing.
func Play(ctx context.Context, entries []Entry, opts Options) (Result, error) {
	if err := opts.Validate(); err != nil {
		return Result{}, err
	}
	if opts.Progress == nil {
		opts.Progress = func(int, string, string) {}
	}
	r := newResult(entries, opts)
	for round := range opts.Rounds {
		for i := range entries {
			at := (round + i) % len(entries)
			opts.Progress(round+1, entries[at].Name, "starts")
			facts, done, err := takeTurn(ctx, entries[at], opts)
			if err != nil {
				return Result{}, err
			}
			opts.Progress(round+1, entries[at].Name, done.String())
			r.Systems[at].Facts = facts
			r.Systems[at].Rounds = append(r.Systems[at].Rounds, done)
		}
	}
	r.summarize()
	return r, nil
}

// takeTurn opens the system, has it work, and closes it.
func takeTurn(ctx context.Context, e Entry, opts Options) (f Facts, done Turn, err error) {
	rows := 2 * opts.Tasks
	for _, rate := range opts.Rates {
		rows += int(rate * opts.Adding.Seconds())
	}
	t := &turn{entry: e, opts: opts}
	t.system, err = e.Open(ctx, Setup{
		Deliver: func(body string) { t.deal.Load().deliver(body) },
		Layout:  opts.Layout, Tasks: rows, Strict: opts.Strict, Workers: opts.Workers,
	})
	if err != nil {
		return f, done, fmt.Errorf("%s: %w", e.Name, err)
	}
	defer func() { err = errors.Join(err, t.system.Close()) }()
	err = t.play(ctx)
	return t.system.Facts(), t.Turn, err
}
