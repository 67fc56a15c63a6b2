package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/sink"
	"github.com/tocsinhq/tocsin/test/pullers"
)

// Bounds of waiting for nodes.
const (
	ownWithin   = 2 * time.Minute // for every table to have its owner
	stallWithin = time.Minute     // without a delivery
	lookEvery   = 2 * time.Millisecond
)

// fleet is the nodes of a run, in this process.
type fleet struct {
	*devcluster.Fleet
	metrics []*prometheus.Registry
	scraper *scraper // nil: the nodes export no metrics
	apis    []string // URLs of the nodes, if workers are to ask
	crew    *pullers.Crew
	site    *site
}

// seen is told of each delivery that has succeeded, by a handler or by who answers for the target.
type seen func(ctx context.Context, task tocsin.Info)

// handlers has a handler for the other biz type too, as nodes log a biz type that they have none for.
func (s *site) handlers(deliver, burst seen) *node.Handlers {
	var h node.Handlers
	if s.opts.Backlog == 0 {
		node.Handle(&h, other, func(ctx context.Context, t *tocsin.Task[string]) error { burst(ctx, t.Info); return nil })
	}
	if s.opts.Target == nil {
		node.Handle(&h, plain, func(ctx context.Context, t *tocsin.Task[string]) error { deliver(ctx, t.Info); return nil })
	}
	h.UseCallbacks(func(next node.HandlerFunc) node.HandlerFunc { return deliver.behind(next) })
	return &h
}

// behind tells of what a target has taken.
func (f seen) behind(next node.HandlerFunc) node.HandlerFunc {
	return func(ctx context.Context, tasks []tocsin.Info) []error {
		errs := next(ctx, tasks)
		for i, err := range errs {
			if err == nil {
				f(ctx, tasks[i])
			}
		}
		return errs
	}
}

// watched is a sink.Maker whose sinks tell of what they have sent.
type watched struct {
	sink.Maker
	seen seen
}

// Sink implements sink.Maker.
func (w watched) Sink(p tocsin.Policy) (sink.Sink, error) {
	s, err := w.Maker.Sink(p)
	if err != nil {
		return nil, err
	}
	return sent(w.seen.behind(s.Deliver)), nil
}

// sent is a HandlerFunc as a sink.Sink.
type sent node.HandlerFunc

// Deliver implements sink.Sink.
func (s sent) Deliver(ctx context.Context, tasks []tocsin.Info) []error { return s(ctx, tasks) }

// nobody looks at deliveries.
func nobody(context.Context, tocsin.Info) {}

// startNodes returns when every table has its owner. deliver is told of the biz type that is measured, burst of the other one.
func (s *site) startNodes(ctx context.Context, deliver, burst seen) (*fleet, error) {
	handlers := s.handlers(deliver, burst)
	var sinks map[string]sink.Maker
	if s.opts.Target != nil && s.opts.Target.Sink != nil {
		sinks = map[string]sink.Maker{sinkName: watched{s.opts.Target.Sink, deliver}}
	}
	f := &fleet{Fleet: devcluster.NewFleet(ctx), site: s}
	if !s.opts.NoMetrics {
		f.scraper = startScraper(context.WithoutCancel(ctx))
	}
	for i := range s.opts.Nodes {
		if err := f.start(s.apart(i+2), fmt.Sprintf("bench-%d", i+1), handlers, sinks); err != nil {
			return nil, errors.Join(err, f.stop())
		}
	}
	bounded, cancel := context.WithTimeout(ctx, ownWithin)
	defer cancel()
	if err := f.Await(bounded, lookEvery, func() bool { return f.Balanced(s.config.Layout.Total()) }); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for the nodes to own the tables: %w", err), f.stop())
	}
	return f, nil
}

func (f *fleet) start(tables tocsin.Config, name string, handlers *node.Handlers, sinks map[string]sink.Maker) error {
	o := f.site.opts
	own := node.Config{Tables: tables, Ownership: o.Ownership, Etcd: f.site.etcd, Group: group, Name: name, ScanInterval: o.scan, Logger: o.Logger, Sinks: sinks}
	if f.scraper != nil {
		metrics := prometheus.NewRegistry()
		f.metrics, own.Registerer = append(f.metrics, metrics), metrics
		f.scraper.add(metrics)
	}
	n, err := node.New(own, handlers)
	if err != nil {
		return err
	}
	f.Add(name, n)
	if o.pull() == nil && o.Backlog == 0 {
		return nil
	}
	served, err := o.API(own, n)
	if err == nil {
		f.apis = append(f.apis, served.URL)
		f.Go("API of "+name, served.Serve)
	}
	return err
}

// awaitAll waits until seen has reached n and every outcome is stored, and shows
// the progress of the stage. It gives up when nothing comes for stallWithin.
func (f *fleet) awaitAll(ctx context.Context, stage string, n int, seen func() int) error {
	last, moved := 0, time.Now()
	stalled := false
	err := f.Await(ctx, lookEvery, func() bool {
		now := seen()
		f.site.opts.Progress(stage, now, n)
		if now != last {
			last, moved = now, time.Now()
		}
		stalled = time.Since(moved) > stallWithin
		return stalled || now >= n && f.Settled() && f.crewSettled()
	})
	if err == nil && stalled {
		return fmt.Errorf("%s: stalled at %d of %d tasks: none more for %s", stage, last, n, stallWithin)
	}
	return err
}

// counted adds up a counter or a gauge over all nodes and labels.
func (f *fleet) counted(name string) (total int) {
	for _, r := range f.metrics {
		families, _ := r.Gather() // what can be gathered
		for _, family := range families {
			if family.GetName() != name {
				continue
			}
			for _, m := range family.GetMetric() {
				total += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			}
		}
	}
	return total
}

// stop ends the nodes and waits for them.
func (f *fleet) stop() error {
	if f.scraper != nil {
		seen := f.scraper.stop()
		f.site.scraped = &seen
	}
	return f.Stop()
}
