package devcluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/node"
)

// Fleet runs nodes in this process. Its methods are for one goroutine.
type Fleet struct {
	Nodes []*node.Node // that were added

	run     context.Context
	end     context.CancelFunc
	running sync.WaitGroup
	failed  chan error // the first error of what runs, until somebody takes it
}

// NewFleet makes one that outlasts ctx.
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

// Go runs anything else until Stop.
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

// Balanced reports whether every node has its share of the tables, of which there are so many.
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

// Failed returns the channel of the first error of a node, which Await and Stop return too if it has not been taken.
func (f *Fleet) Failed() <-chan error { return f.failed }

// Await returns when done is true, asked every so often. Its error is ctx's or a node's.
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

// Stop ends all and waits for it.
func (f *Fleet) Stop() error {
	f.end()
	f.running.Wait()
	select {
	case err := <-f.failed:
		return err
	default:
		return nil
	}
}
