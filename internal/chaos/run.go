package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/wait"
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
	run := site.run
	if cfg.Runs {
		run = site.runTimers
	}
	report, err := run(ctx, cfg, steps)
	return report, errors.Join(err, site.Stop())
}

func (s *Site) run(ctx context.Context, cfg Config, steps []Step) (*Report, error) {
	l := newLedger()
	finals := map[tocsin.JobID]row{}
	err := s.loaded(ctx, cfg, l, func(ctx context.Context) error {
		g, played := errgroup.WithContext(ctx)
		g.Go(func() error {
			err := s.Play(ctx, steps)
			return errors.Join(err, wait.For(ctx, cfg.Length-lengthOf(steps)), errPlayed)
		})
		g.Go(func() error { s.glance(played, finals, cfg.Out); return nil })
		if err := g.Wait(); !errors.Is(err, errPlayed) {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.verdict(ctx, l, finals)
}

// loaded does something while tasks are added, directly and through outboxes.
func (s *Site) loaded(ctx context.Context, cfg Config, l *ledger, do func(context.Context) error) error {
	return s.Under(ctx, cfg.Seed, cfg.Load, l, func(ctx context.Context) error {
		if len(s.shops) == 0 {
			return do(ctx)
		}
		return s.Selling(ctx, cfg.Seed, cfg.Orders, do)
	})
}

// errPlayed ends what goes on beside the schedule.
var errPlayed = errors.New("the schedule is played")

// lengthOf is when the last fault ends.
func lengthOf(steps []Step) (end time.Duration) {
	for _, s := range steps {
		end = max(end, s.At+s.Length)
	}
	return end
}

// Under does something while a producer adds tasks; the producer ends with it.
func (s *Site) Under(ctx context.Context, seed uint64, load Load, l *ledger, do func(context.Context) error) error {
	p, err := s.newProducer(seed, load, l)
	if err != nil {
		return err
	}
	defer p.close()
	adding, end := context.WithCancel(ctx)
	var added sync.WaitGroup
	added.Go(func() { p.run(adding) })
	err = do(ctx)
	end()
	added.Wait()
	return err
}

// glance notes final states now and then, so that the check sees whether one
// changed. A server that is away is looked at the next time.
func (s *Site) glance(ctx context.Context, finals map[tocsin.JobID]row, out io.Writer) {
	for wait.For(ctx, glanceEvery) == nil {
		n, err := s.note(ctx, finals)
		if err == nil {
			fmt.Fprintf(out, "%s  %d tasks, %d final\n", time.Now().Format(clockForm), n, len(finals))
		}
	}
}

// note adds the final states of now to those seen before; it gives how many tasks
// there are.
func (s *Site) note(ctx context.Context, finals map[tocsin.JobID]row) (int, error) {
	rows, err := s.allRows(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.moves(ctx, s.moved); err != nil { // the ledger forgets them after a while
		return 0, err
	}
	for _, r := range rows {
		if _, seen := finals[r.JobID]; !seen && r.Status.Final() {
			finals[r.JobID] = r
		}
	}
	return len(rows), nil
}

// verdict waits until every task is final, stops the nodes in order, and checks.
func (s *Site) verdict(ctx context.Context, l *ledger, finals map[tocsin.JobID]row) (*Report, error) {
	begin := time.Now()
	if err := s.Revive(ctx); err != nil {
		return nil, err
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
	all, err := patient(s.allRows)(ctx)
	if err != nil {
		return nil, err
	}
	of, err := patient(func(ctx context.Context) (*sold, error) { return s.sold(ctx, all) })(ctx)
	if err != nil {
		return nil, err
	}
	rows, doubles := byBizID(slices.DeleteFunc(all, func(r row) bool { return s.orders.all[r.BizID] != nil }))
	records, err := readJournals(s.opts.Dir)
	if err != nil {
		return nil, err
	}
	for _, r := range finals {
		if _, there := rows[r.BizID]; !there && s.opts.Purged {
			rows[r.BizID] = r
		}
	}
	e := evidence{
		opts: s.opts, entries: l.all, rows: rows, doubles: doubles, deliveries: deliveries(records),
		incidents: s.incidents.list(), intrusions: s.intrusions.list(), finals: finals, place: s.opts.placeOf, sold: of,
	}
	report := e.check()
	report.Drained = drained
	return report, nil
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
		if err := wait.For(ctx, 100*time.Millisecond); err != nil {
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
	var g errgroup.Group
	for _, at := range slices.Concat(s.relays, s.seats, []*seat{s.sweeper}, s.purgers()) {
		g.Go(func() error { return at.term(ctx) })
	}
	return g.Wait()
}
