package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/outbox"
)

// Defaults, and how long things may take.
const (
	DefaultPoll  = 25 * time.Millisecond // between two polls of an outbox in which nothing is
	DefaultWhole = 10 * time.Second      // between two looks at all ids of an outbox

	flowPoll    = 5 * time.Millisecond // between two polls while rows come
	standbyWait = 2 * time.Second      // for the lock, in one statement
	retryPause  = time.Second          // after an error, before the next turn
	upkeepEvery = time.Minute          // between two looks at the ledger
	partsEvery  = 30 * time.Second     // between two looks for new parts of an outbox
	serverConns = 4                    // to each server of the tasks
	waitTimeout = 10 * time.Second     // of connections to the servers of the tasks, see tocsin.Config
)

// Config of a Relay.
type Config struct {
	Tables   tocsin.Config   // where the tasks go
	Outboxes []outbox.Config // names must differ
	Poll     time.Duration   // between two polls of an outbox in which nothing is; 0: 25 ms
	Whole    time.Duration   // between two looks at all ids of an outbox; 0: 10 s
	GapAge   time.Duration   // of a gap between ids, before the server is asked whether a transaction is open in it; 0: a minute
	Replay   bool            // rows are moved again if an outbox has them again (outbox.ErrRewound); else such an outbox is not relayed

	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: metrics are not exported
}

// Validate returns the first mistake. It connects to nothing.
func (c Config) Validate() error {
	names := map[string]bool{}
	for _, o := range c.Outboxes {
		o = o.WithDefaults()
		if err := o.Validate(); err != nil {
			return fmt.Errorf("outbox %s: %w", o.Name, err)
		}
		if names[o.Name] {
			return fmt.Errorf("two outboxes are named %s: give them names that differ", o.Name)
		}
		names[o.Name] = true
	}
	if c.Poll < 0 || c.Whole < 0 || c.GapAge < 0 {
		return errors.New("the time between polls must not be negative")
	}
	return c.Tables.Validate()
}

// Relay moves the rows of some outboxes.
type Relay struct {
	cfg     Config
	metrics *metrics
	limit   loop.LogLimit

	memory atomic.Int64 // bytes of rows, of all outboxes

	mu    sync.Mutex
	names map[string]string // identity -> outbox that has it
}

// New checks the config. It connects to nothing.
func New(cfg Config) (*Relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Logger = loop.Logger(cfg.Logger)
	cfg.Poll, cfg.Whole, cfg.GapAge = cmp.Or(cfg.Poll, DefaultPoll), cmp.Or(cfg.Whole, DefaultWhole), cmp.Or(cfg.GapAge, defaultGapAge)
	cfg.Tables.Outbox, cfg.Tables.Observe, cfg.Tables.Use = tocsin.Outbox{}, nil, nil
	cfg.Tables.Servers = slices.Clone(cfg.Tables.Servers)
	for i := range cfg.Tables.Servers {
		cfg.Tables.Servers[i].MaxConns = serverConns // not those that a node in this process uses
	}
	cfg.Tables.WaitTimeout = cmp.Or(cfg.Tables.WaitTimeout, waitTimeout)
	return &Relay{cfg: cfg, metrics: newMetrics(cfg.Registerer), names: map[string]string{}}, nil
}

// Run relays until ctx ends, and returns nil then. Servers that are away are tried again.
func (r *Relay) Run(ctx context.Context) error {
	tasks := r.open(ctx)
	if tasks == nil {
		return nil
	}
	defer tasks.Close()
	var all sync.WaitGroup
	for _, cfg := range r.cfg.Outboxes {
		from, err := outbox.Open(cfg)
		if err != nil {
			return err // Validate has seen it already
		}
		all.Go(func() { r.serve(ctx, from, client.MoverOf(tasks)) })
	}
	all.Wait()
	return nil
}

// serve relays an outbox until ctx ends. If the outbox has parts, it relays each of them, and looks for new ones at intervals.
func (r *Relay) serve(ctx context.Context, from *outbox.Outbox, tasks Mover) {
	defer from.Close()
	parted, ok := from.Server.(outbox.Parted)
	if !ok {
		r.line(from, tasks).run(ctx)
		return
	}
	var lines sync.WaitGroup
	defer lines.Wait()
	for known := 0; ctx.Err() == nil; {
		pause := partsEvery
		parts, err := parted.Parts(ctx)
		if err != nil && ctx.Err() == nil {
			pause = retryPause
			r.limit.Of(r.cfg.Logger, from.Name).Warn("outbox can't be reached: its rows wait", "error", err, "outbox", from.Name)
		}
		for ; known < len(parts); known++ {
			l := r.line(parts[known], tasks)
			lines.Go(func() { l.run(ctx) })
		}
		_ = loop.Wait(ctx, pause) // the loop ends with ctx
	}
}

func (r *Relay) line(of *outbox.Outbox, tasks Mover) *line {
	return &line{Relay: r, outbox: of, tasks: tasks, gauges: r.metrics.of(of.Name)}
}

// open waits for a server of the tasks; nil: ctx has ended before.
func (r *Relay) open(ctx context.Context) *tocsin.Client {
	for ctx.Err() == nil {
		client, err := tocsin.Open(ctx, r.cfg.Tables)
		if err == nil {
			return client
		}
		if ctx.Err() == nil {
			r.limit.Of(r.cfg.Logger, "open").Warn("no database of the tasks can be used: outboxes wait", "error", err)
		}
		_ = loop.Wait(ctx, retryPause) // the loop ends with ctx
	}
	return nil
}

// claim refuses an identity that another outbox of this process has. One table is a copy of the other, and a row that one
// outbox has moved would count as moved for the other.
func (r *Relay) claim(identity, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.names, func(_, of string) bool { return of == name }) // its table may have been replaced
	if other, taken := r.names[identity]; taken && other != name {
		return fmt.Errorf("outboxes %s and %s have the same identity: one is a copy of the other; empty the comment of its table and run `tocsin outbox apply`", other, name)
	}
	r.names[identity] = name
	return nil
}

// Mover moves rows of outboxes to the tables of their tasks: the client's machinery does, see internal/client.
type Mover interface {
	Move(ctx context.Context, identity string, rows []outbox.Row) []outbox.Result
	Upkeep(ctx context.Context, identity string, database int, present func(context.Context, []outbox.Key) (map[outbox.Key]bool, error)) error
	NoteSettled(ctx context.Context, identity string, database int, id uint64, anew bool) error
	SettledBelow(ctx context.Context, identity string) (below uint64, err error)
	ForgetMoved(ctx context.Context, identity string) error
}

// line is the relay of one outbox.
type line struct {
	*Relay
	outbox *outbox.Outbox
	tasks  Mover // where rows go
	gauges gauges

	settled atomic.Uint64 // the outbox has no rows with ids below it, for the next turns; 0: not known
	anew    atomic.Bool   // the turn began without a note of that, and has made none yet
}

// run takes turns until ctx ends.
func (l *line) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.lead(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errReused) || errors.Is(err, outbox.ErrNotLeading) {
			continue
		}
		l.limit.Of(l.cfg.Logger, l.outbox.Name).Warn("outbox can't be relayed: its rows wait", "error", err, "outbox", l.outbox.Name)
		_ = loop.Wait(ctx, retryPause) // the loop ends with ctx
	}
}

// lead waits until this relay is the active one, and takes a turn.
func (l *line) lead(ctx context.Context) error {
	session, err := l.outbox.Session(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := l.claim(session.Identity, l.outbox.Name); err != nil {
		return err
	}
	for leads := false; !leads; {
		if leads, err = session.Lead(ctx, standbyWait); err != nil {
			return err
		}
	}
	l.cfg.Logger.Info("outbox is relayed by this process", "outbox", l.outbox.Name)
	l.gauges.active.Set(1)
	defer l.rest()
	bounded, end := context.WithCancel(ctx)
	var upkeep sync.WaitGroup
	defer upkeep.Wait()
	defer end()
	upkeep.Go(func() { l.upkeep(bounded) })
	return newTurn(l, session).run(ctx)
}

// rest clears the figures of a turn that has ended.
func (l *line) rest() {
	l.gauges.active.Set(0)
	l.gauges.lag.Set(0)
	l.gauges.parked.Set(0)
	l.gauges.waiting.DeleteLabelValues()
	l.gauges.stuck.Set(0)
}

// upkeep keeps the ledger small in all databases until ctx ends.
func (l *line) upkeep(ctx context.Context) {
	for loop.Wait(ctx, upkeepEvery) == nil {
		if err := l.forget(ctx); err != nil && ctx.Err() == nil {
			l.limit.Of(l.cfg.Logger, "ledger "+l.outbox.Name).Warn("the table relayed is not cleaned up: it grows",
				"error", err, "outbox", l.outbox.Name)
		}
	}
}

// forget cleans up each database with a session of its own: one that is away may outlast a session.
func (l *line) forget(ctx context.Context) error {
	var errs []error
	for database := range l.cfg.Tables.Layout.Databases {
		errs = append(errs, l.forgetIn(ctx, database))
	}
	if l.settled.Load() > 0 {
		l.anew.Store(false)
	}
	return errors.Join(errs...)
}

func (l *line) forgetIn(ctx context.Context, database int) error {
	session, err := l.outbox.Session(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	if id := l.settled.Load(); id > 0 {
		err := l.tasks.NoteSettled(ctx, session.Identity, database, id, l.anew.Load())
		if err == nil && l.settled.Load() < id { // the turn has voided it meanwhile
			err = l.tasks.NoteSettled(ctx, session.Identity, database, 0, false)
		}
		if err != nil {
			return err
		}
	}
	return l.tasks.Upkeep(ctx, session.Identity, database, session.Present)
}

// Turn relays the only outbox of a config without taking its lock, until ctx ends or the outbox fails. It is for tests of
// relays that are active at the same time, and of everything that can happen to a row.
func Turn(ctx context.Context, cfg Config, to Mover) error {
	r, err := New(cfg)
	if err != nil {
		return err
	}
	from, err := outbox.Open(r.cfg.Outboxes[0])
	if err != nil {
		return err
	}
	defer from.Close()
	session, err := from.Session(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	return newTurn(r.line(from, to), session).run(ctx)
}
