package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/internal/wait"
)

// leaveWithin bounds a node's orderly end.
const leaveWithin = 2 * time.Minute

// place is where a task is kept.
type place struct{ server, database int }

// placeOf is the place of a table.
func (o Options) placeOf(table int) place {
	return place{o.serverOf(table), o.Layout.DatabaseOf(table)}
}

// serverOf is the number of the server that holds a table.
func (o Options) serverOf(table int) int { return o.Layout.DatabaseOf(table) % o.Servers }

// Play carries out a schedule and returns when its last fault has ended. An error
// is the harness's own: what it broke did not come back.
func (s *Site) Play(ctx context.Context, steps []Step) error {
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, step := range steps {
		g.Go(func() error {
			if wait.Until(ctx, begin.Add(step.At)) != nil {
				return nil
			}
			return s.Do(ctx, step)
		})
	}
	return g.Wait()
}

// Do carries out one fault and returns when it has ended.
func (s *Site) Do(ctx context.Context, step Step) error {
	end := s.incidents.begin(step)
	defer end()
	if err := s.do(ctx, step); err != nil {
		return fmt.Errorf("%s: %w", step.Fault, err)
	}
	return nil
}

func (s *Site) do(ctx context.Context, step Step) error {
	switch step.Fault {
	case KillNode, FreezeNode, TermNode:
		return s.harmProcess(ctx, step)
	case CutEtcd:
		return onLinks(ctx, step.Length, s.seats[step.Node].etcd, (*link).cut)
	case CutNode:
		return during(ctx, step.Length, s.seats[step.Node].servers[step.Server], (*link).cut)
	case CutServer:
		return s.onServer(ctx, step, (*link).cut)
	case Reset:
		return s.onServer(ctx, step, (*link).reset)
	case SlowServer:
		return s.onServer(ctx, step, func(l *link) error { return l.slow(step.By) })
	case KillServer:
		return s.databases[step.Server].restart(ctx, step.Length)
	case ReadOnly:
		return s.databases[step.Server].readOnly(ctx, step.Length)
	case FreezeServer:
		return s.databases[step.Server].freeze(ctx, step.Length)
	case WrongCluster, NoLayout:
		return s.wrongDatabase(ctx, step)
	case MoveServer:
		return s.moveServer(ctx, step)
	case LockTable:
		return s.databaseOf(step.Table).lock(ctx, s.opts.Layout.Table(step.Table), step.Length)
	case StopEtcd:
		return s.stopEtcd(ctx, step.Length)
	case KillMember:
		return s.etcd[step.Member].restart(ctx, step.Length)
	case LowSweep:
		return s.sweepLow(ctx, step.Length)
	case KillShop:
		return s.shops[step.Shop].restart(ctx, step.Length)
	case KillActive, FreezeActive:
		return s.harmActive(ctx, step)
	case KillRelay, FreezeRelay:
		return s.harmRelay(ctx, step)
	case TwoRelays:
		return s.relayTwice(ctx, step.Length)
	}
	return errors.New("unknown fault")
}

func (s *Site) harmProcess(ctx context.Context, step Step) error {
	at := s.seats[step.Node]
	at.harm.Lock()
	defer at.harm.Unlock()
	switch step.Fault {
	case FreezeNode:
		if s.opts.Runs {
			return s.freezeAtClaim(ctx, at, step.Length)
		}
		at.freeze(ctx, step.Length)
		return nil
	case KillNode:
		at.kill()
	case TermNode:
		bound, cancel := context.WithTimeout(ctx, leaveWithin)
		defer cancel()
		if err := at.term(bound); err != nil {
			at.kill() // a server that is away holds it up
		}
	}
	_ = wait.For(ctx, step.Length)
	return s.reviveNode(context.WithoutCancel(ctx), step.Node)
}

// reviveWithin is how long a node is started again and again: it does not come up
// while etcd or every server is away.
const reviveWithin = 2 * time.Minute

// settling is how long a node that starts may take to fail.
const settling = 3 * time.Second

// reviveNode starts a node until it stays, as whoever runs services would.
func (s *Site) reviveNode(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, reviveWithin)
	defer cancel()
	for ctx.Err() == nil {
		if err := s.startNode(i); err != nil {
			return err
		}
		bound, cancel := context.WithTimeout(ctx, settling)
		p := s.seats[i].present()
		_ = p.wait(bound)
		cancel()
		if p.alive() {
			return nil
		}
	}
	return fmt.Errorf("node n%d does not come up: %w", i+1, ctx.Err())
}

// Revive starts every node that ended by itself.
func (s *Site) Revive(ctx context.Context) error {
	var errs []error
	for i, at := range s.seats {
		if p := at.present(); p != nil && !p.alive() {
			errs = append(errs, s.reviveNode(ctx, i))
		}
	}
	return errors.Join(errs...)
}

// onServer harms the links of all processes to one server.
func (s *Site) onServer(ctx context.Context, step Step, harm func(*link) error) error {
	var all []*link
	for _, at := range s.everybody() {
		all = append(all, at.servers[step.Server])
	}
	return onLinks(ctx, step.Length, all, harm)
}

// onLinks harms several links for a while.
func onLinks(ctx context.Context, length time.Duration, all []*link, harm func(*link) error) error {
	var g errgroup.Group
	for _, l := range all {
		g.Go(func() error { return during(ctx, length, l, harm) })
	}
	return g.Wait()
}

// stopEtcd kills all members and brings them back after a while.
func (s *Site) stopEtcd(ctx context.Context, down time.Duration) error {
	var g errgroup.Group
	for _, e := range s.etcd {
		g.Go(func() error { return e.restart(ctx, down) })
	}
	return g.Wait()
}

// moveServer makes a server refuse writes, as a demoted primary does, and after a
// while sends everybody to a replacement that holds the same rows.
func (s *Site) moveServer(ctx context.Context, step Step) error {
	d := s.databases[step.Server]
	if err := d.exec(ctx, readOnlySQL); err != nil {
		return err
	}
	_ = wait.For(ctx, step.Length)
	if err := d.replace(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	for _, at := range s.everybody() {
		if err := at.servers[step.Server].move(d.port); err != nil {
			return err
		}
	}
	return nil
}

// during harms a link for a while.
func during(ctx context.Context, length time.Duration, l *link, harm func(*link) error) error {
	if err := l.begin(harm); err != nil {
		return err
	}
	_ = wait.For(ctx, length)
	return l.end()
}

// sweepLow runs a sweeper that takes whatever is due, in the sweeper's seat. The one
// that sits there, and it itself at the end, are killed: their claims run out.
func (s *Site) sweepLow(ctx context.Context, length time.Duration) error {
	s.killSweeper()
	if err := s.startSweeper(-1); err != nil {
		return err
	}
	_ = wait.For(ctx, length)
	s.killSweeper()
	if !s.opts.Sweeper {
		return nil
	}
	return s.startSweeper(s.opts.Timing.Grace)
}

func (s *Site) killSweeper() {
	defer s.incidents.begin(Step{Fault: KillSweep})()
	s.sweeper.kill()
}
