package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// leaveWithin bounds a process's orderly end.
const leaveWithin = 2 * time.Minute

// Play carries out a schedule and returns when its last fault has ended. An error
// is the harness's own: what it broke did not come back.
func (s *Site) Play(ctx context.Context, steps []Step) error {
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, step := range steps {
		g.Go(func() error {
			if loop.WaitUntil(ctx, begin.Add(step.At)) != nil {
				return nil
			}
			return s.Do(ctx, step)
		})
	}
	return g.Wait()
}

// Do carries out one fault and returns when it has ended.
func (s *Site) Do(ctx context.Context, step Step) error {
	defer s.log.begin(step)()
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
		return onLinks(ctx, step.Length, s.seats[step.Node].servers[step.Server:step.Server+1], (*link).cut)
	case CutServer:
		return onLinks(ctx, step.Length, s.linksTo(step.Server), (*link).cut)
	case Reset:
		return onLinks(ctx, step.Length, s.linksTo(step.Server), (*link).reset)
	case SlowServer:
		return onLinks(ctx, step.Length, s.linksTo(step.Server), func(l *link) error { return l.slow(step.By) })
	case KillServer:
		return restart(ctx, step.Length, s.databases[step.Server])
	case ReadOnly:
		return s.databases[step.Server].readOnly(ctx, step.Length)
	case FreezeServer:
		s.databases[step.Server].freeze(ctx, step.Length)
		return nil
	case WrongCluster, NoLayout:
		return s.wrongDatabase(ctx, step)
	case MoveServer:
		return s.moveServer(ctx, step)
	case LockTable:
		return s.databaseOf(step.Table).lock(ctx, s.opts.Layout.Table(step.Table), step.Length)
	case StopEtcd:
		return restart(ctx, step.Length, s.etcd...)
	case KillMember:
		return restart(ctx, step.Length, s.etcd[step.Member])
	case LowSweep:
		return s.sweepLow(ctx, step.Length)
	case KillShop:
		return restart(ctx, step.Length, s.shops[step.Shop])
	case KillActive, FreezeActive:
		return s.harmActive(ctx, step)
	case TwoRelays:
		return s.relayTwice(ctx, step.Length)
	}
	return errors.New("unknown fault")
}

// harmProcess kills, freezes or ends a node or relay for a while.
func (s *Site) harmProcess(ctx context.Context, step Step) error {
	at := s.seats[step.Node]
	at.harm.Lock()
	defer at.harm.Unlock()
	switch step.Fault {
	case FreezeNode:
		if s.opts.Runs {
			return s.freezeAtClaim(ctx, at, step.Length)
		}
		at.freezeUntil(func() { _ = loop.Wait(ctx, step.Length) })
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
	_ = loop.Wait(ctx, step.Length)
	return s.revive(context.WithoutCancel(ctx), at)
}

// reviveWithin is how long a process is started again and again: a node does not come up
// while etcd or every server is away.
const reviveWithin = 2 * time.Minute

// settling is how long a process that starts may take to fail.
const settling = 3 * time.Second

// revive starts a process until it stays, as whoever runs services would.
func (s *Site) revive(ctx context.Context, at *seat) error {
	ctx, cancel := context.WithTimeout(ctx, reviveWithin)
	defer cancel()
	for ctx.Err() == nil {
		if err := s.sit(at); err != nil {
			return err
		}
		bound, cancel := context.WithTimeout(ctx, settling)
		p := at.present()
		_ = p.Wait(bound)
		cancel()
		if p.Alive() {
			return nil
		}
	}
	return fmt.Errorf("%s does not come up: %w", at.name, ctx.Err())
}

// Revive starts every node that ended by itself.
func (s *Site) Revive(ctx context.Context) error {
	var errs []error
	for _, at := range s.seats[:s.opts.Nodes] {
		if p := at.present(); p != nil && !p.Alive() {
			errs = append(errs, s.revive(ctx, at))
		}
	}
	return errors.Join(errs...)
}

// machine is a server that can be killed, and comes back with what it held.
type machine interface {
	Kill() error
	Restart(ctx context.Context) error
}

// restartWithin bounds the start of a server that was killed. A member of etcd serves once most of the others run too.
const restartWithin = 3 * time.Minute

// restart kills machines and brings them back after a while, also when the run is cut short.
func restart[M machine](ctx context.Context, down time.Duration, all ...M) error {
	var g errgroup.Group
	for _, m := range all {
		g.Go(func() error {
			if err := m.Kill(); err != nil {
				return err
			}
			_ = loop.Wait(ctx, down)
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), restartWithin)
			defer cancel()
			return m.Restart(within)
		})
	}
	return g.Wait()
}

// linksTo are the links of all processes to one server.
func (s *Site) linksTo(server int) (all []*link) {
	for _, at := range s.everybody() {
		all = append(all, at.servers[server])
	}
	return all
}

// onLinks harms links for a while.
func onLinks(ctx context.Context, length time.Duration, all []*link, harm func(*link) error) error {
	var g errgroup.Group
	for _, l := range all {
		g.Go(func() error {
			if err := l.begin(harm); err != nil {
				return err
			}
			_ = loop.Wait(ctx, length)
			return l.end()
		})
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
	_ = loop.Wait(ctx, step.Length)
	if err := d.replace(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	for _, l := range s.linksTo(step.Server) {
		if err := l.move(d.server.Port()); err != nil {
			return err
		}
	}
	return nil
}

// sweepLow runs a sweeper that takes whatever is due, in the sweeper's seat. The one
// that sits there, and it itself at the end, are killed: their claims run out.
func (s *Site) sweepLow(ctx context.Context, length time.Duration) error {
	grace := s.sweeper.role.Grace
	s.killSweeper()
	s.sweeper.role.Grace = -1
	if err := s.sit(s.sweeper); err != nil {
		return err
	}
	_ = loop.Wait(ctx, length)
	s.killSweeper()
	s.sweeper.role.Grace = grace
	if !s.opts.Sweeper {
		return nil
	}
	return s.sit(s.sweeper)
}

func (s *Site) killSweeper() {
	defer s.log.begin(Step{Fault: KillSweep})()
	s.sweeper.kill()
}
