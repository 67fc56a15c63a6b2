package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// DrainResult says how fast a backlog went.
type DrainResult struct {
	Figures
	Delivered      int     `json:"delivered"` // done, by the tables
	OverdueSeconds float64 `json:"overdue_seconds"`
	Seconds        float64 `json:"seconds"`          // from the first delivery to the last outcome stored
	UntilFirst     float64 `json:"seconds_to_first"` // from the resumption of the biz type to the first delivery: the nodes poll for it once a second
	Claimed        int     `json:"claimed"`          // rows that were claimed before their delivery; 0 with NoMetrics: not counted
	Pulled         *Pulled `json:"pull,omitempty"`   // null: no workers asked
	Run
}

// Drain measures how fast nodes deliver a backlog to a handler that does
// nothing, beside the raw bound on the same tables. The tasks are inserted by
// plain SQL while their biz type is paused, so that nothing of them has been read
// or rung for; then it is resumed.
func Drain(ctx context.Context, opts Options) (r DrainResult, err error) {
	if opts.Tasks < 1 {
		return r, wrong("drain: wants at least 1 task")
	}
	s, err := openSite(ctx, opts, true)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := errors.Join(s.fillPending(ctx), s.warmUp(ctx)); err != nil {
		return r, err
	}
	d := &drain{site: s, n: opts.Tasks}
	if err := d.measure(ctx); err != nil {
		return r, err
	}
	settings, err := s.settings(ctx)
	return d.result(settings), err
}

// fillPending stores the rows that wait for a day far ahead.
func (s *site) fillPending(ctx context.Context) error {
	const from, to = 48 * time.Hour, 30 * 24 * time.Hour
	_, err := s.fill(ctx, s.opts.Pending, func() time.Duration { return between(from, to) })
	return err
}

// warmUp drains a few rows of about every table: the first use of a table costs
// the server its opening, and must not be charged to the first bound.
func (s *site) warmUp(ctx context.Context) error {
	n := rowsToOpen * s.config.Layout.Total()
	due, err := s.fill(ctx, n, at(-s.opts.Overdue))
	if err != nil {
		return err
	}
	if err := loop.WaitUntil(ctx, due); err != nil {
		return err
	}
	_, err = s.drainRaw(ctx, n)
	return err
}

// drain is one under way.
type drain struct {
	site                *site
	n                   int
	before, ours, after Usage
	untilFirst, took    time.Duration // of the nodes: to the first delivery, and from it to the last outcome stored
	filling             time.Duration // how long the last fill took
	delivered, claimed  int
	pulled              *Pulled
}

// measure does the raw bound, the nodes, and the raw bound again.
func (d *drain) measure(ctx context.Context) (err error) {
	if d.before, err = d.raw(ctx); err != nil {
		return err
	}
	if err = d.byNodes(ctx); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	d.after, err = d.raw(ctx)
	return err
}

// lately is how far the action times of a backlog lie apart.
const lately = 2 * time.Second

// fill stores the tasks so that the last falls due when the last is stored, as
// far as the fill before tells how long that takes, but not before earliest, and
// returns when all are due: what is overdue for long would have to be claimed
// first.
func (d *drain) fill(ctx context.Context, earliest time.Time) error {
	overdue := d.site.opts.Overdue
	begin := time.Now()
	target := begin.Add(d.filling)
	if target.Before(earliest) {
		target = earliest
	}
	due, err := d.site.fill(ctx, d.n, func() time.Duration {
		return max(time.Until(target), 0) - overdue - between(0, lately)
	})
	if err != nil {
		return err
	}
	d.filling = time.Since(begin)
	if err := d.site.calm(ctx); err != nil {
		return err
	}
	return loop.WaitUntil(ctx, due)
}

func (d *drain) raw(ctx context.Context) (Usage, error) {
	if err := d.fill(ctx, time.Time{}); err != nil {
		return Usage{}, err
	}
	return d.site.drainRaw(ctx, d.n)
}

// byNodes has the nodes do it. They are up only as long as it takes.
func (d *drain) byNodes(ctx context.Context) (err error) {
	before, err := d.site.done(ctx)
	if err != nil {
		return err
	}
	var seen first
	nodes, err := d.site.startNodes(ctx, func(context.Context, tocsin.Info) { seen.add() }, nobody)
	if err != nil {
		return err
	}
	nodes.ask(func(tocsin.Info) { seen.add() })
	err = d.deliver(ctx, nodes, &seen)
	d.pulled = nodes.pulled()
	d.claimed = nodes.counted("tocsin_dispatcher_claimed_total")
	if err = errors.Join(err, nodes.stop()); err != nil {
		return err
	}
	after, err := d.site.done(ctx)
	d.delivered = after - before
	return err
}

// deliver fills the tables and lets the nodes loose on them.
func (d *drain) deliver(ctx context.Context, nodes *fleet, seen *first) error {
	if err := d.fill(ctx, d.warm()); err != nil {
		return err
	}
	var err error
	d.ours, err = d.site.measured(ctx, func() error {
		begin := time.Now()
		if err := d.site.pause(ctx, false); err != nil {
			return err
		}
		err := profiled(d.site.opts.Profile, func() error { return nodes.awaitAll(ctx, "drain", d.n, seen.count) })
		d.untilFirst, d.took = seen.began().Sub(begin), time.Since(seen.began())
		return err
	})
	if err != nil {
		return err
	}
	d.ours.Seconds = d.took.Seconds()
	return d.site.pause(ctx, true)
}

// warm is when nodes that have their tables from now on are warm. What must be
// claimed anyway need not wait for it.
func (d *drain) warm() time.Time {
	if d.site.claims() {
		return time.Now()
	}
	return time.Now().Add(d.site.opts.Warm)
}

// first counts deliveries and knows when the first came. Safe for concurrent use.
type first struct {
	n  atomic.Int64
	at atomic.Int64 // Unix nanoseconds
}

func (f *first) add() {
	if f.n.Add(1) == 1 {
		f.at.Store(time.Now().UnixNano())
	}
}

func (f *first) count() int       { return int(f.n.Load()) }
func (f *first) began() time.Time { return time.Unix(0, f.at.Load()) }

func (d *drain) result(settings map[string]string) DrainResult {
	return DrainResult{
		Figures:   compare(d.n, d.before, d.ours, d.after),
		Delivered: d.delivered, OverdueSeconds: d.site.opts.Overdue.Seconds(),
		Seconds: round(d.took.Seconds(), 3), UntilFirst: round(d.untilFirst.Seconds(), 3), Claimed: d.claimed, Pulled: d.pulled,
		Run: d.site.run(settings),
	}
}

// String is the result for people.
func (r DrainResult) String() string {
	var l lines
	claimed := fmt.Sprint(r.Claimed)
	if r.Metrics == nil {
		claimed = "an unknown number"
	}
	l.line("drained", "%d of %d tasks in %.3f s, %s of them claimed first", r.Delivered, r.Tasks, r.Seconds, claimed)
	l.line("speed", "%s", r.speed())
	l.sides(r.Figures)
	l.pulled(r.Pulled)
	l.line("metrics", "%s", r.Metrics)
	l.run(r.Run)
	return l.String()
}
