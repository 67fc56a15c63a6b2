package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// Config says what Run plays.
type Config struct {
	Options
	Seed   uint64
	Length time.Duration // of the load and the faults
	Load   Load
	Orders OrderLoad // through the outboxes of the options
	Timers TimerLoad // if the options have Runs
	Calm   bool      // no faults
	Aims   int       // number of freezes at the moment a run is admitted; they replace the random faults
	Out    io.Writer // gets the schedule before anything starts, and lines of progress
}

// drainWithin is how long tasks without a final state may take once every fault is
// over: back-offs, claims that run out, and the sweeper's grace.
const drainWithin = 90 * time.Second

// glanceEvery is between two looks at the final states.
const glanceEvery = 15 * time.Second

// Run starts a cluster, plays the schedule of the seed while the load goes on, and
// checks every task. The error is the harness's own; broken promises are in the
// Report, which is there beside an error too if every task was checked.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	var steps []Step
	if cfg.Aims > 0 {
		steps = AimedFreezes(cfg.Seed, cfg.Length, cfg.Options, cfg.Aims)
	} else if !cfg.Calm {
		steps = NewSchedule(cfg.Seed, cfg.Length, cfg.Options)
	}
	fmt.Fprintf(cfg.Out, "seed %d, %s, %d faults\n%s\n", cfg.Seed, cfg.Length, len(steps), Text(steps))
	site, err := Start(ctx, cfg.Options)
	if err != nil {
		return nil, err
	}
	report, err := site.run(ctx, cfg, steps)
	return report, errors.Join(err, site.Stop())
}

// run plays the steps under the load, and checks. What a fault broke and did not come back is an error beside the report.
func (s *Site) run(ctx context.Context, cfg Config, steps []Step) (*Report, error) {
	if cfg.Runs {
		if err := s.makeSchedules(ctx, cfg); err != nil {
			return nil, err
		}
	}
	broke := s.loaded(ctx, cfg, func(ctx context.Context) error {
		play := func(ctx context.Context) error {
			begin := time.Now()
			return errors.Join(s.Play(ctx, steps), loop.WaitUntil(ctx, begin.Add(cfg.Length)))
		}
		if cfg.Runs { // triggers see the final states of runs
			return play(ctx)
		}
		return beside(ctx, func(ctx context.Context) { s.glance(ctx, cfg.Out) }, play)
	})
	say(cfg.Out, "the faults are over")
	report, err := s.verdict(ctx)
	return report, errors.Join(broke, err)
}

// say writes a line of progress.
func say(out io.Writer, format string, args ...any) {
	fmt.Fprintf(out, "%s  %s\n", time.Now().Format(clockForm), fmt.Sprintf(format, args...))
}

// loaded does something while tasks are added, directly and through outboxes, and schedules are changed.
func (s *Site) loaded(ctx context.Context, cfg Config, do func(context.Context) error) error {
	if s.keeper != nil {
		return beside(ctx, s.keeper.run, do)
	}
	return s.Under(ctx, cfg.Load, func(ctx context.Context) error {
		if len(s.shops) == 0 {
			return do(ctx)
		}
		return s.Selling(ctx, cfg.Orders, do)
	})
}

// glance notes final states now and then, so that the check sees whether one
// changed. A server that is away is looked at the next time.
func (s *Site) glance(ctx context.Context, out io.Writer) {
	for loop.Wait(ctx, glanceEvery) == nil {
		if n, err := s.note(ctx); err == nil {
			say(out, "%d tasks, %d final", n, len(s.log.finals))
		}
	}
}

// note adds the final states of now to those seen before; it gives how many tasks
// there are.
func (s *Site) note(ctx context.Context) (int, error) {
	rows, err := s.allRows(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.readMoves(ctx); err != nil { // the ledger forgets them after a while
		return 0, err
	}
	for _, r := range rows {
		if _, seen := s.log.finals[r.JobID]; !seen && r.Status.Final() {
			s.log.finals[r.JobID] = r
		}
	}
	return len(rows), nil
}

// verdict waits until every task is final, stops the nodes in order, and checks.
func (s *Site) verdict(ctx context.Context) (*Report, error) {
	begin := time.Now()
	if err := s.Revive(ctx); err != nil {
		return nil, err
	}
	if s.keeper != nil {
		if err := s.keeper.finish(ctx); err != nil {
			return nil, err
		}
	}
	if err := untilNone(ctx, patient(s.left), drainWithin); err != nil {
		return nil, err
	}
	if err := s.Drain(ctx, drainWithin); err != nil {
		return nil, err
	}
	drained := time.Since(begin)
	if err := s.leaveAll(ctx); err != nil {
		return nil, err
	}
	if s.broker != nil {
		if err := s.broker.readAll(ctx); err != nil {
			return nil, err
		}
	}
	e, err := patient(s.gather)(ctx)
	if err != nil {
		return nil, err
	}
	report := e.check()
	report.Drained = drained
	if aimed := int(s.aimed.Load()); aimed > 0 {
		report.add(lineFaults, "freezes at the moment at which a run was admitted", aimed)
	}
	return report, nil
}

// gather reads what servers and processes have noted, and returns the whole evidence.
func (s *Site) gather(ctx context.Context) (*evidence, error) {
	if err := errors.Join(s.readNotes(ctx), s.readShops(ctx), s.readLeases(ctx)); err != nil {
		return nil, err
	}
	rows, err := s.allRows(ctx)
	if err != nil {
		return nil, err
	}
	records, err := readJournals(s.opts.Dir)
	if err != nil {
		return nil, err
	}
	e := s.log
	e.rows, e.deliveries = map[uint64][]row{}, deliveries(records)
	for _, r := range rows {
		if e.runs[r.JobID] == nil {
			e.rows[r.BizID] = append(e.rows[r.BizID], r)
		}
	}
	for _, r := range e.finals {
		if s.opts.Purged && len(e.rows[r.BizID]) == 0 {
			e.rows[r.BizID] = []row{r}
		}
	}
	return e, nil
}

// Drain returns when every task has a final state, or none got one for so long:
// those are for the check to find.
func (s *Site) Drain(ctx context.Context, within time.Duration) error {
	return untilNone(ctx, patient(s.open), within)
}

// untilNone returns when count is 0, or has not become less for so long.
func untilNone(ctx context.Context, count func(context.Context) (int, error), within time.Duration) error {
	least, since := -1, time.Now()
	for time.Since(since) < within {
		n, err := count(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		if least < 0 || n < least {
			least, since = n, time.Now()
		}
		if err := loop.Wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// leaveAll ends nodes and sweeper with SIGTERM: a node that can't end in order is
// an error.
func (s *Site) leaveAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	return each(s.everybody(), func(at *seat) error { return at.term(ctx) })
}
