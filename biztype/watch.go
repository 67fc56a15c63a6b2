package biztype

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// DefaultWatchInterval is the time between two polls.
const DefaultWatchInterval = time.Second

// WatchConfig says what to watch and whom to tell.
type WatchConfig struct {
	Cluster    tocsin.Config         // where the databases are
	Interval   time.Duration         // between two polls; 0 means 1 s
	Changed    func([]Policy)        // gets all policies, by number, at first and after each change; called by Run's goroutine
	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil leaves the metrics unregistered
}

// Watcher follows the biz types. Each round it asks one database, the next in
// turn, whether anything changed, and the one behind it if that one fails: a
// cheap statement a round, and no server that is down, or that missed an Apply,
// keeps a change from being seen for longer than a turn.
type Watcher struct {
	cfg     WatchConfig
	metrics *metrics
}

// NewWatcher checks the config. It connects to nothing.
func NewWatcher(cfg WatchConfig) (*Watcher, error) {
	cfg.Logger = loop.Logger(cfg.Logger)
	if cfg.Interval == 0 {
		cfg.Interval = DefaultWatchInterval
	}
	switch {
	case cfg.Interval < time.Millisecond:
		return nil, fmt.Errorf("watch interval %s: use at least 1ms", cfg.Interval)
	case cfg.Changed == nil:
		return nil, errors.New("watch biz types: nobody to tell: set Changed")
	}
	return &Watcher{cfg: cfg, metrics: newMetrics(cfg.Registerer)}, cfg.Cluster.Validate()
}

// Run polls until ctx ends, and returns nil then.
func (w *Watcher) Run(ctx context.Context) error {
	servers, err := openServers(w.cfg.Cluster, 1)
	if err != nil {
		return err
	}
	defer func() { _ = client.CloseServers(servers) }()
	f := &follower{Watcher: w, turn: turns(w.cfg.Cluster, servers), latest: map[uint64]row{}, stamps: map[string]stamp{}}
	f.meet(ctx, servers)
	tick := time.NewTicker(w.cfg.Interval)
	defer tick.Stop()
	for {
		f.round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
