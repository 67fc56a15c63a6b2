package health

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/store"
)

const (
	lookEvery   = 2 * time.Second
	lookTimeout = 4 * time.Second // of one look
	lostAfter   = 2               // failed looks in a row: one lost connection does not count
	offsetLimit = time.Second     // a clock that differs from this machine's by more is logged
)

// Servers are the servers that are looked at.
type Servers interface {
	Survey(ctx context.Context, server int) (store.Survey, error)
	Waiting(server int) time.Duration // how long the oldest statement has been without an answer; 0: there is none
	Servers() []string
	DatabasesOf(server int) []int
	Layout() tocsin.Layout
}

// Config says what to look at and whom to inform.
type Config struct {
	Servers    Servers
	Changed    func(State)           // called with the whole state when something changes, never concurrently; must be quick; nil: not called
	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: metrics are not exported
}

// Health looks at the servers. Make one with New.
type Health struct {
	cfg     Config
	names   []string // of the servers
	limit   loglimit.Limit
	metrics *metrics

	mu    sync.Mutex // held while Changed is called
	state State      // replaced, never changed in place

	servers map[string]Server // with several addresses, by name
}

// New makes a Health that considers every database usable until Run has looked.
func New(cfg Config) *Health {
	cfg.Logger = loglimit.Or(cfg.Logger)
	h := &Health{cfg: cfg, names: cfg.Servers.Servers(), metrics: newMetrics(cfg.Registerer), servers: make(map[string]Server)}
	layout := cfg.Servers.Layout()
	h.state = make(State, layout.Databases)
	for server, name := range h.names {
		for _, n := range cfg.Servers.DatabasesOf(server) {
			h.state[n] = Database{Number: n, Name: layout.Database(n), Server: name, Is: Usable}
		}
	}
	if h.cfg.Changed == nil {
		h.cfg.Changed = func(State) {}
	}
	h.metrics.export(h.state)
	return h
}

// State returns the current state.
func (h *Health) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// Run looks at all servers until ctx ends.
func (h *Health) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { h.watchHangs(ctx) })
	for server := range h.names {
		wg.Go(func() { h.follow(ctx, newEye(h, server)) })
	}
	wg.Wait()
}

// follow looks at one server.
func (h *Health) follow(ctx context.Context, e *eye) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		e.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// publish stores the findings about some databases, and reports the new state if they
// have changed.
func (h *Health) publish(found []Database) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := slices.Clone(h.state)
	for _, d := range found {
		now[d.Number] = d
	}
	if slices.Equal(now, h.state) {
		return
	}
	h.state = now
	h.metrics.export(now)
	h.cfg.Changed(now)
}
