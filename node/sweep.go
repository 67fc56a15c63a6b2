package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin/upkeep"
)

// SweepResult counts what a sweep found and did.
type SweepResult = upkeep.SweepResult

// Sweeper delivers overdue tasks of any table. It needs only MySQL: no etcd, and no node
// need be running.
type Sweeper struct {
	cfg      Config
	handlers *Handlers
	swept    atomic.Bool // a sweep is under way
}

// NewSweeper checks the config, as New does; Etcd need not be set. It connects to
// nothing. h may be nil: the sweeper then delivers every HTTP callback. It stores no
// policies that Define was given: see biztype.Bring.
func NewSweeper(cfg Config, h *Handlers) (*Sweeper, error) {
	n, err := newNode(cfg, h)
	if err != nil {
		return nil, err
	}
	return &Sweeper{cfg: n.cfg, handlers: n.handlers}, nil
}

// Sweep walks every table of every database once. It recovers claims that have run
// out, and claims and delivers tasks that are overdue by more than Config.SweepGrace
// and have a handler here; a sweeper without handlers delivers every HTTP callback.
//
// When ctx ends or Config.SweepTimeout is over, Sweep starts no more, gives back the
// tasks that it has claimed and not begun, and returns within about two seconds. A
// delivery in progress is cut off after a second, without counting an attempt; the
// owner of the table or another sweep makes it again. Left says what was left.
//
// The error joins those of servers that could not be swept and of policies that can't
// be read; the result is valid for the others. SweepResult.Err says whether anything
// was left that should not be.
func (s *Sweeper) Sweep(ctx context.Context) (SweepResult, error) {
	result, w, err := s.once(ctx, sweepMode{})
	result = result.Settled(w.outcomes())
	if w.dispatcher != nil { // it was begun
		result.Upkeep = w.upkept()
	}
	return result, err
}

// DryRun reports what Sweep would find and changes nothing.
func (s *Sweeper) DryRun(ctx context.Context) (SweepResult, error) {
	result, _, err := s.once(ctx, sweepMode{dry: true})
	return result, err
}

func (s *Sweeper) once(ctx context.Context, mode sweepMode) (result SweepResult, w *sweepParts, err error) {
	w, err = s.alone(ctx, mode, func(ctx context.Context, e *upkeep.Sweeper) (err error) {
		result, err = e.Sweep(ctx)
		return err
	})
	return result, w, err
}

// Run sweeps at the times of a cron expression ("*/5 * * * *", "@every 1m") until
// ctx ends, and then returns nil. Each sweep that found something is logged, with
// what it left. Without a Config.SweepTimeout a sweep gets 5/6 of the time to the
// next one; deliveries in progress at its end go on.
func (s *Sweeper) Run(ctx context.Context, expression string) error {
	times, err := upkeep.ParseTimes(expression)
	if err != nil {
		return err
	}
	_, err = s.alone(ctx, sweepMode{stays: true, drain: windDown}, func(ctx context.Context, e *upkeep.Sweeper) error {
		e.Run(ctx, times)
		return nil
	})
	return err
}

// sweepMode distinguishes the kinds of sweep.
type sweepMode struct {
	dry   bool          // changes nothing
	stays bool          // sweeps again and again
	drain time.Duration // of one that stays: for deliveries in hand when its context ends

	ownership string // that the databases must have; "": any
}

var errSweeping = errors.New("node: a sweep is under way already")

// alone runs use with the engine and its dispatcher, unless another sweep of this
// Sweeper is under way. All tasks that use has handed over are settled or cut off
// before alone returns.
func (s *Sweeper) alone(ctx context.Context, mode sweepMode, use func(context.Context, *upkeep.Sweeper) error) (*sweepParts, error) {
	w := newSweepParts(s.cfg, s.handlers, mode)
	if ctx == nil {
		return w, errNoContext
	}
	if !s.swept.CompareAndSwap(false, true) {
		return w, errSweeping
	}
	defer s.swept.Store(false)
	return w, w.sweep(ctx, use)
}
