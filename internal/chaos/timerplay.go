package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/internal/wait"
)

// kindle is how long schedules and direct tasks go on before their cost is measured.
const kindle = 5 * time.Second

// runTimers makes schedules, changes them while the steps are played, and checks every fire time.
func (s *Site) runTimers(ctx context.Context, cfg Config, steps []Step) (*Report, error) {
	k, err := s.newKeeper(ctx, cfg.Seed, cfg.Timers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = k.schedules.Close() }() // connections that died with a server can't say goodbye
	l := newLedger()
	table := &timetable{}
	say := func(what string) { fmt.Fprintf(cfg.Out, "%s  %s\n", time.Now().Format(clockForm), what) }
	if cfg.Timers.Measure > 0 {
		say("measure without schedules")
		if table.costs, err = s.costsBefore(ctx, cfg, l); err != nil {
			return nil, err
		}
	}
	say(fmt.Sprintf("make %d schedules", cfg.Timers.Schedules))
	if err := k.create(ctx, cfg.Length); err != nil {
		return nil, err
	}
	if cfg.Timers.Measure > 0 {
		say("measure with schedules")
		if err := wait.For(ctx, kindle); err != nil {
			return nil, err
		}
		c, err := s.measure(ctx, "with schedules", cfg.Timers.Measure, true)
		if err != nil {
			return nil, err
		}
		table.costs = append(table.costs, c)
	}
	k.eachKind(ctx)
	say("faults and changes")
	if err := k.beside(ctx, func(ctx context.Context) error {
		err := s.Play(ctx, steps)
		return errors.Join(err, wait.For(ctx, cfg.Length-lengthOf(steps)))
	}); err != nil {
		return nil, err
	}
	say("deactivate all, and check")
	begin := time.Now()
	if err := errors.Join(s.Revive(ctx), k.finish(ctx)); err != nil {
		return nil, err
	}
	table.timers = k.all
	return s.timerVerdict(ctx, l, table, begin)
}

// beside does something while schedules are changed; the changes end with it.
func (k *keeper) beside(ctx context.Context, do func(context.Context) error) error {
	changing, end := context.WithCancel(ctx)
	var changed sync.WaitGroup
	changed.Go(func() { k.run(changing) })
	err := do(ctx)
	end()
	changed.Wait()
	return err
}

// costsBefore measures the cluster at rest, and while as many tasks are added directly as the schedules will make.
func (s *Site) costsBefore(ctx context.Context, cfg Config, l *ledger) ([]cost, error) {
	rest, err := s.measure(ctx, "at rest", cfg.Timers.Measure, false)
	if err != nil {
		return nil, err
	}
	load := Load{Rate: cfg.Timers.rate(), Near: time.Second, Types: []string{"plain", "plain", "strict", "hook"}, Work: 9}
	var direct cost
	err = s.Under(ctx, cfg.Seed, load, l, func(ctx context.Context) (err error) {
		if err := wait.For(ctx, load.withDefaults().Far); err != nil {
			return err
		}
		direct, err = s.measure(ctx, "same tasks, no schedules", cfg.Timers.Measure, false)
		return err
	})
	return []cost{rest, direct}, errors.Join(err, s.Drain(ctx, drainWithin))
}

// rate is how many runs a second the schedules have.
func (l TimerLoad) rate() int { return l.Schedules/4 + l.Schedules/2/60 }

// timerVerdict waits until every run has ended, stops the nodes in order, and checks.
func (s *Site) timerVerdict(ctx context.Context, l *ledger, table *timetable, begin time.Time) (*Report, error) {
	if err := s.Drain(ctx, drainWithin); err != nil {
		return nil, err
	}
	drained := time.Since(begin)
	if err := s.leaveAll(ctx); err != nil {
		return nil, err
	}
	var err error
	if table.timeLog, err = patient(s.timeLog)(ctx); err != nil {
		return nil, err
	}
	all, err := patient(s.allRows)(ctx)
	if err != nil {
		return nil, err
	}
	rows, doubles := byBizID(slices.DeleteFunc(all, func(r row) bool { return table.has(r.JobID) }))
	records, err := readJournals(s.opts.Dir)
	if err != nil {
		return nil, err
	}
	e := evidence{
		opts: s.opts, entries: l.all, rows: rows, doubles: doubles, deliveries: deliveries(records),
		incidents: s.incidents.list(), place: s.opts.placeOf, table: table,
	}
	e.countInCosts()
	report := e.check()
	report.Drained = drained
	report.Fires.faults(e.incidents)
	report.Fires.Aimed = int(s.aimed.Load())
	return report, nil
}

// countInCosts counts the deliveries and the runs that were made in each part whose cost was measured.
func (e *evidence) countInCosts() {
	for i := range e.table.costs {
		c := &e.table.costs[i]
		for _, of := range e.deliveries {
			for _, d := range of {
				if c.covers(d.At) {
					c.deliveries++
				}
			}
		}
		for _, f := range e.table.runs {
			if c.covers(f.Made) {
				c.made++
			}
		}
	}
}

func (c *cost) covers(t time.Time) bool { return t.After(c.from) && t.Before(c.to) }
