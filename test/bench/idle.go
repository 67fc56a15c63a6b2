package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// settleIn is how long idle nodes are left alone before they are watched: until
// the first peeks are over and the doorbell has found that nothing rings.
const settleIn = 15 * time.Second

// IdleResult says what nodes cost that have nothing to do. CPU is in percent of
// one core.
type IdleResult struct {
	Seconds    float64  `json:"seconds"`               // watched
	Statements float64  `json:"statements_per_second"` // of all nodes together
	NodeCPU    float64  `json:"node_cpu_percent"`      // of one node: that of this process, less what it takes without nodes
	ServerCPU  *float64 `json:"server_cpu_percent"`    // null: unknown

	ProcessCPU      float64  `json:"process_cpu_percent"`       // with the nodes
	AloneProcessCPU float64  `json:"alone_process_cpu_percent"` // without nodes: etcd, mostly
	AloneServerCPU  *float64 `json:"alone_server_cpu_percent"`  // without nodes: what the server takes for itself
	BytesPerSecond  float64  `json:"bytes_per_second"`          // sent and received by the server

	Waiting *Waiting `json:"waiting,omitempty"` // null: no workers
	Run
}

// Waiting is what the same nodes cost while workers wait that ask for tasks. The workers are in this process.
type Waiting struct {
	Workers    int      `json:"workers"`
	Seconds    float64  `json:"seconds"` // watched
	Statements float64  `json:"statements_per_second"`
	ProcessCPU float64  `json:"process_cpu_percent"`
	ServerCPU  *float64 `json:"server_cpu_percent"`
}

// Idle measures what nodes cost that own all tables and have nothing to do,
// beside the same servers without nodes.
func Idle(ctx context.Context, opts Options) (r IdleResult, err error) {
	if opts.Duration <= 0 {
		return r, wrong("idle: wants a duration")
	}
	s, err := openSite(ctx, opts, false)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.fillPending(ctx); err != nil {
		return r, err
	}
	if err := s.calm(ctx); err != nil {
		return r, err
	}
	alone, err := s.watch(ctx, "alone", opts.Duration/3)
	if err != nil {
		return r, err
	}
	with, waiting, err := s.watchNodes(ctx)
	if err != nil {
		return r, fmt.Errorf("idle: %w", err)
	}
	settings, err := s.settings(ctx)
	return s.idleResult(alone, with, waiting, settings), err
}

// watchNodes starts the nodes and watches them when they have settled in, and once more while workers wait, if there are any.
func (s *site) watchNodes(ctx context.Context) (u, waiting Usage, err error) {
	nodes, err := s.startNodes(ctx, nobody, nobody)
	if err != nil {
		return u, waiting, err
	}
	defer func() { err = errors.Join(err, nodes.stop()) }()
	settled := func() (u Usage, err error) {
		if _, err = s.watch(ctx, "settle", min(settleIn, s.opts.Duration)); err == nil {
			u, err = s.watch(ctx, "watch", s.opts.Duration)
		}
		return u, err
	}
	if s.opts.pull() == nil {
		err = profiled(s.opts.Profile, func() error { u, err = settled(); return err })
		return u, waiting, err
	}
	if u, err = settled(); err != nil {
		return u, waiting, err
	}
	nodes.ask(func(tocsin.Info) {})
	err = profiled(s.opts.Profile, func() error { waiting, err = settled(); return err })
	return u, waiting, err
}

// watch says what was used in a while.
func (s *site) watch(ctx context.Context, stage string, while time.Duration) (Usage, error) {
	return s.measured(ctx, func() error {
		begin := time.Now()
		for passed := time.Duration(0); passed < while; passed = time.Since(begin) {
			s.opts.Progress(stage, int(passed.Seconds()), int(while.Seconds()))
			if err := loop.WaitUntil(ctx, begin.Add(min(passed+time.Second, while))); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *site) idleResult(alone, with, waiting Usage, settings map[string]string) IdleResult {
	percent := func(cpu float64, u Usage) float64 { return 100 * cpu / u.Seconds }
	process, base := percent(with.ProcessCPU, with), percent(alone.ProcessCPU, alone)
	statements := func(u Usage) float64 { return round((u.Statements-1)/u.Seconds, 2) } // one was ours
	var workers *Waiting
	if p := s.opts.pull(); p != nil {
		workers = &Waiting{max(p.Workers, 1), round(waiting.Seconds, 1), statements(waiting), round(percent(waiting.ProcessCPU, waiting), 2), known(percent(waiting.ServerCPU, waiting), 2)}
	}
	return IdleResult{
		Seconds: round(with.Seconds, 1), Statements: statements(with), Waiting: workers,
		NodeCPU:   round(max(process-base, 0)/float64(s.opts.Nodes), 3),
		ServerCPU: known(percent(with.ServerCPU, with), 2), AloneServerCPU: known(percent(alone.ServerCPU, alone), 2),
		ProcessCPU: round(process, 2), AloneProcessCPU: round(base, 2),
		BytesPerSecond: round((with.BytesSent+with.BytesReceived)/with.Seconds, 0),
		Run:            s.run(settings),
	}
}

// String is the result for people.
func (r IdleResult) String() string {
	var l lines
	l.line("statements", "%.1f a second, %.0f bytes a second", r.Statements, r.BytesPerSecond)
	l.line("a node", "%.2f %% of a core (this process %.2f %%, without nodes %.2f %%)", r.NodeCPU, r.ProcessCPU, r.AloneProcessCPU)
	l.line("the server", "%s of a core (without nodes %s)", orUnknown(r.ServerCPU, "%.2f %%"), orUnknown(r.AloneServerCPU, "%.2f %%"))
	l.line("watched", "%.1f s", r.Seconds)
	if w := r.Waiting; w != nil {
		l.line("waiting", "with %d workers, for %.1f s: %.1f statements a second, this process %.2f %%, the server %s",
			w.Workers, w.Seconds, w.Statements, w.ProcessCPU, orUnknown(w.ServerCPU, "%.2f %%"))
	}
	l.line("metrics", "%s", r.Metrics)
	l.run(r.Run)
	return l.String()
}
