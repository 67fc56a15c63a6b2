package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
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

// undo ends a fault.
type undo = func(context.Context) error

// Do carries out one fault and returns when it has ended.
func (s *Site) Do(ctx context.Context, step Step) error {
	defer s.log.begin(step)()
	end, err := s.do(ctx, step)
	switch {
	case err != nil:
	case step.Fault.target() == ofDatabase:
		err = s.watchClosed(ctx, step)
	default:
		_ = loop.Wait(ctx, step.Length)
	}
	if end != nil {
		err = errors.Join(err, end(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", step.Fault, err)
	}
	return nil
}

// do begins a fault, and returns what ends it, after an error too; nil: there is nothing to end.
func (s *Site) do(ctx context.Context, step Step) (undo, error) {
	d, at, disk := s.databases[step.Server], s.seats[step.Node], s.opts.server(step.Server).disk
	fill := strings.NewReplacer("{database}", s.opts.Layout.Database(step.Database), "{cluster}", s.opts.Layout.Prefix).Replace
	switch step.Fault {
	case KillNode, FreezeNode, TermNode:
		return s.harmProcess(ctx, step.Fault, at)
	case CutEtcd:
		return onLinks(at.etcd, (*link).cut)
	case CutNode:
		return onLinks(at.servers[step.Server:step.Server+1], (*link).cut)
	case CutServer:
		return onLinks(s.linksTo(step.Server), (*link).cut)
	case Reset:
		return onLinks(s.linksTo(step.Server), (*link).reset)
	case SlowServer:
		return onLinks(s.linksTo(step.Server), func(l *link) error { return l.slow(step.By) })
	case KillServer:
		return kill(d)
	case ReadOnly:
		return d.swap(ctx, readOnlySQL, readWriteSQL)
	case FreezeServer:
		return freeze(d.server)
	case FullDisk:
		return func(context.Context) error { return disk.Free() }, disk.Fill()
	case WrongCluster:
		return d.swap(ctx, fill(wrongSQL), fill(rightSQL))
	case NoLayout:
		return d.swap(ctx, fill(hideSQL), fill(showSQL))
	case MoveServer:
		return func(ctx context.Context) error { return s.moveServer(ctx, step.Server) }, d.exec(ctx, readOnlySQL)
	case LockTable:
		return s.databaseOf(step.Table).lock(ctx, s.opts.Layout.Table(step.Table))
	case StopEtcd:
		return kill(s.etcd...)
	case FreezeEtcd:
		return freeze(s.etcd...)
	case KillMember:
		return kill(s.etcd[step.Member])
	case LowSweep:
		return s.sweepLow()
	case KillShop:
		return kill(s.shops[step.Shop])
	case KillActive, FreezeActive:
		return s.harmActive(ctx, step)
	case KillBroker, FreezeBroker:
		return s.harmBroker(step.Fault)
	case KillWorker, FreezeWorker:
		as := map[Fault]Fault{KillWorker: KillNode, FreezeWorker: FreezeNode}[step.Fault]
		return s.harmProcess(ctx, as, s.workers[step.Worker])
	case CutAnswers:
		return onLinks([]*link{at.api}, (*link).halve)
	case MoveWorkers:
		return s.moveWorkers(step.Node)
	case KillBoth:
		return s.killBoth(ctx, step)
	case TwoRelays:
		return func(context.Context) error { s.spare.kill(); return nil }, s.sit(s.spare)
	}
	return nil, errors.New("unknown fault")
}

// each does something to all, at once.
func each[T any](all []T, do func(T) error) error {
	var g errgroup.Group
	for _, one := range all {
		g.Go(func() error { return do(one) })
	}
	return g.Wait()
}

// harmProcess kills, freezes or ends a node or relay. Nothing else harms it until that is undone.
func (s *Site) harmProcess(ctx context.Context, how Fault, at *seat) (undo, error) {
	at.harm.Lock()
	var err error
	end := func(ctx context.Context) error { return s.revive(ctx, at) }
	switch how {
	case FreezeNode:
		end, err = s.freezeNode(ctx, at)
	case KillNode:
		at.kill()
	case TermNode:
		bound, cancel := context.WithTimeout(ctx, leaveWithin)
		defer cancel()
		if at.term(bound) != nil {
			at.kill() // a server that is away holds it up
		}
	}
	return func(ctx context.Context) error { defer at.harm.Unlock(); return end(ctx) }, err
}

// freezeNode freezes the process in a seat; in a cluster with schedules when a run is admitted to it.
func (s *Site) freezeNode(ctx context.Context, at *seat) (undo, error) {
	p := at.present()
	if p == nil {
		return func(context.Context) error { return nil }, nil
	}
	thaw := func(context.Context) error { p.Signal(syscall.SIGCONT); return nil }
	if s.opts.Runs {
		return thaw, s.freezeAtClaim(ctx, at, p)
	}
	p.Signal(syscall.SIGSTOP)
	return thaw, nil
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

// kill kills machines.
func kill[M machine](all ...M) (undo, error) {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, restartWithin)
		defer cancel()
		return each(all, func(m M) error { return m.Restart(ctx) })
	}, each(all, func(m M) error { return m.Kill() })
}

// freeze stops servers where they are. Connections stay open, and the kernel accepts new ones.
func freeze[S interface{ Signal(syscall.Signal) error }](all ...S) (undo, error) {
	return func(context.Context) error {
		return each(all, func(s S) error { return s.Signal(syscall.SIGCONT) })
	}, each(all, func(s S) error { return s.Signal(syscall.SIGSTOP) })
}

// linksTo are the links of all processes to one server.
func (s *Site) linksTo(server int) (all []*link) {
	for _, at := range s.everybody() {
		all = append(all, at.servers[server])
	}
	return all
}

// onLinks harms links.
func onLinks(all []*link, harm func(*link) error) (undo, error) {
	return func(context.Context) error { return each(all, (*link).end) }, each(all, func(l *link) error { return l.begin(harm) })
}

// moveServer sends everybody to a replacement of a server that holds the same rows, as after the primary was demoted.
func (s *Site) moveServer(ctx context.Context, server int) error {
	d := s.databases[server]
	if err := d.replace(ctx); err != nil {
		return err
	}
	return each(s.linksTo(server), func(l *link) error { return l.move(d.server.Port()) })
}

// sweepLow runs a sweeper that takes whatever is due, in the sweeper's seat. The one
// that sits there, and it itself at the end, are killed: their claims run out.
func (s *Site) sweepLow() (undo, error) {
	usual := s.sweeper.role.Grace
	end := func(grace time.Duration) {
		defer s.log.begin(Step{Fault: KillSweep})()
		s.sweeper.kill()
		s.sweeper.role.Grace = grace
	}
	end(-1)
	return func(context.Context) error {
		if end(usual); !s.opts.Sweeper {
			return nil
		}
		return s.sit(s.sweeper)
	}, s.sit(s.sweeper)
}

// closedAfter is how long a database that turned wrong may still be written to, over
// connections that had found it right: two looks at it, plus statements on their way.
const closedAfter = 4 * time.Second

// watchClosed waits for the length of a fault that makes a database wrong. It compares the tables at its end with
// the tables as they were once every process should know of the fault.
func (s *Site) watchClosed(ctx context.Context, step Step) error {
	d, name := s.databases[step.Server], s.opts.Layout.Database(step.Database)
	begin := time.Now()
	if loop.Wait(ctx, closedAfter) != nil {
		return nil
	}
	from := time.Now()
	before, err := d.sums(ctx, name)
	if err != nil {
		return err
	}
	if loop.WaitUntil(ctx, begin.Add(step.Length)) != nil {
		return nil
	}
	after, err := d.sums(ctx, name)
	if err != nil {
		return err
	}
	if tables := changed(before, after); len(tables) > 0 {
		s.log.intrude(incident{Step: step, tables: tables, from: from, to: time.Now()})
	}
	return nil
}

// sums returns the checksums of all tables of a database.
func (d *database) sums(ctx context.Context, name string) (map[string]string, error) {
	tables, err := readAll[string](ctx, d.direct, d.String(), tablesSQL, name)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, table := range tables {
		var full, sum string
		query := strings.NewReplacer("{database}", name, "{table}", table).Replace(sumSQL)
		if err := d.direct.QueryRowContext(ctx, query).Scan(&full, &sum); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", d, query, err)
		}
		all[table] = sum
	}
	return all, nil
}

// changed names the tables that differ, are new, or are gone.
func changed(before, after map[string]string) (tables []string) {
	for table := range after {
		if before[table] != after[table] {
			tables = append(tables, table)
		}
	}
	for table := range before {
		if _, there := after[table]; !there {
			tables = append(tables, table)
		}
	}
	slices.Sort(tables)
	return slices.Compact(tables)
}
