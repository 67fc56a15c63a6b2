package devcluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/node"
)

// Fleet runs nodes in this process, or other work that ends with its context. Its methods are for one goroutine.
type Fleet struct {
	Nodes []*node.Node // that were added

	run     context.Context
	end     context.CancelFunc
	running sync.WaitGroup
	failed  chan error // the first error, until it is received
}

// NewFleet returns a fleet without nodes. Its work outlasts ctx.
func NewFleet(ctx context.Context) *Fleet {
	f := &Fleet{failed: make(chan error, 1)}
	f.run, f.end = context.WithCancel(context.WithoutCancel(ctx))
	return f
}

// Add runs a node until Stop.
func (f *Fleet) Add(name string, n *node.Node) {
	f.Nodes = append(f.Nodes, n)
	f.Go("node "+name, n.Run)
}

// Go runs other work until Stop.
func (f *Fleet) Go(name string, run func(context.Context) error) {
	f.running.Go(func() {
		if err := run(f.run); err != nil {
			select {
			case f.failed <- fmt.Errorf("%s: %w", name, err):
			default:
			}
		}
	})
}

// Balanced reports whether the nodes share the tables evenly, and own all of them.
func (f *Fleet) Balanced(tables int) bool {
	least, sum := tables/len(f.Nodes), 0
	for _, n := range f.Nodes {
		report, _ := n.Report()
		if report.Owned < least || report.Owned > least+1 {
			return false
		}
		sum += report.Owned
	}
	return sum == tables
}

// Settled reports whether the nodes have stored every outcome they know of.
func (f *Fleet) Settled() bool {
	for _, n := range f.Nodes {
		report, _ := n.Report()
		if report.Work.Open > 0 || report.Work.Unsettled > 0 {
			return false
		}
	}
	return true
}

// Failed delivers the first error of what runs. Await, Err and Stop receive it from there.
func (f *Fleet) Failed() <-chan error { return f.failed }

// Err returns the first error of what runs; nil while there is none.
func (f *Fleet) Err() error {
	select {
	case err := <-f.failed:
		return err
	default:
		return nil
	}
}

// Await calls done at the interval until done returns true. Its error is that of ctx or of a node.
func (f *Fleet) Await(ctx context.Context, every time.Duration, done func() bool) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-f.failed:
			return err
		case <-tick.C:
		}
	}
	return nil
}

// Stop ends all work, waits for it, and returns its first error. It may be called again, and for nil.
func (f *Fleet) Stop() error {
	if f == nil {
		return nil
	}
	f.end()
	f.running.Wait()
	return f.Err()
}
