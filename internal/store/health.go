package store

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Every 2 s Health looks at all servers, independently, so that one that hangs delays no news of another. It reports each
// change as a whole new state. A database that is usable again is used again.
//
// A usable database may still have a fault in a table other than the task tables, say a missing owner table: that is
// reported too.
//
// A server that accepts statements and does not answer hangs. That is seen after 1.5 s, from the statements of all parts of
// the process, before a look has its time-out.
//
// On failure: a fault is logged at once, and then once a minute while it lasts. A locked row changes nothing.
const (
	lookEvery   = 2 * time.Second
	lookTimeout = 4 * time.Second        // of one look
	lostAfter   = 2                      // failed looks in a row: one lost connection does not count
	offsetLimit = time.Second            // a clock that differs from this machine's by more is logged
	hangEvery   = 250 * time.Millisecond // between two looks for hangs
	hangOver    = 4 * time.Second        // without a late statement for this long the server no longer hangs: its clock is asked for meanwhile
)

// HangsAfter is for how long a server has to have a statement without an answer to count as hanging: a statement waits for a
// lock for at most 1 s. Those that may take longer by themselves don't count: see mysql.Slow.
const HangsAfter = 1500 * time.Millisecond

// Condition says whether a database can be used.
type Condition string

// The conditions.
const (
	Usable      Condition = "usable"      // its server answers, and its layout row is as the config says
	Wrong       Condition = "wrong"       // its layout row is missing, not the config's, or can't be read: statements to it are refused
	Unreachable Condition = "unreachable" // its server does not answer, twice in a row
)

// Database is what the node knows about one database.
type Database struct {
	Number int       `json:"number"`
	Name   string    `json:"name"`   // toc_6
	Server string    `json:"server"` // its name in the config
	Is     Condition `json:"condition"`
	Why    string    `json:"why,omitempty"` // one sentence: why it can't be used, or what is wrong although it can
}

// Databases is the state of all databases, by number. It is never changed in place.
type Databases []Database

// Unusable returns the numbers of the databases that can't be used, ascending.
func (s Databases) Unusable() []int { return s.that(func(d Database) bool { return d.Is != Usable }) }

// Wrong returns the numbers of the unusable databases whose server answers.
func (s Databases) Wrong() []int { return s.that(func(d Database) bool { return d.Is == Wrong }) }

func (s Databases) that(match func(Database) bool) (numbers []int) {
	for _, d := range s {
		if match(d) {
			numbers = append(numbers, d.Number)
		}
	}
	return numbers
}

// Sick returns the databases that can't be used or have a fault.
func (s Databases) Sick() []Database {
	sick := []Database{} // an empty list in JSON, not null
	for _, d := range s {
		if d.Why != "" {
			sick = append(sick, d)
		}
	}
	return sick
}

// Server is what the node knows about a server with several addresses.
type Server struct {
	Name      string           `json:"name"`      // in the config
	Address   string           `json:"address"`   // in use
	Failovers int64            `json:"failovers"` // moves to another address since the node started
	Addresses []mysql.Sighting `json:"addresses"` // what was last seen at each
}

// Servers are the servers that a Health looks at: those of a *Store.
type Servers interface {
	Survey(ctx context.Context, server int) (Survey, error)
	Waiting(server int) time.Duration // how long the oldest statement has been without an answer; 0: there is none
	Servers() []string
	DatabasesOf(server int) []int
	Layout() tocsin.Layout
}

// HealthConfig says what to look at and whom to inform.
type HealthConfig struct {
	Servers    Servers
	Changed    func(Databases)       // called with the whole state when something changes, never concurrently; must be quick; nil: not called
	Logger     *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer // nil: metrics are not exported
}

// Health looks at the servers. Make one with NewHealth.
type Health struct {
	cfg     HealthConfig
	names   []string // of the servers
	limit   loop.LogLimit
	metrics *healthMetrics

	mu      sync.Mutex        // held while Changed is called
	state   Databases         // replaced, never changed in place
	servers map[string]Server // with several addresses, by name
}

// NewHealth makes a Health that considers every database usable until Run has looked.
func NewHealth(cfg HealthConfig) *Health {
	cfg.Logger = loop.Logger(cfg.Logger)
	h := &Health{cfg: cfg, names: cfg.Servers.Servers(), metrics: newHealthMetrics(cfg.Registerer), servers: make(map[string]Server)}
	layout := cfg.Servers.Layout()
	h.state = make(Databases, layout.Databases)
	for server, name := range h.names {
		for _, n := range cfg.Servers.DatabasesOf(server) {
			h.state[n] = Database{Number: n, Name: layout.Database(n), Server: name, Is: Usable}
		}
	}
	if h.cfg.Changed == nil {
		h.cfg.Changed = func(Databases) {}
	}
	h.metrics.export(h.state)
	return h
}

// State returns the current state.
func (h *Health) State() Databases {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// Servers returns the servers with several addresses that were looked at.
func (h *Health) Servers() []Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := []Server{} // an empty list in JSON, not null
	for _, name := range h.names {
		if s, ok := h.servers[name]; ok {
			all = append(all, s)
		}
	}
	return all
}

// Hanging returns the servers that hang now, by name, with how long they have not answered.
func (h *Health) Hanging() map[string]string {
	all := map[string]string{}
	for i, name := range h.names {
		if waiting := h.cfg.Servers.Waiting(i); waiting >= HangsAfter {
			all[name] = "no answer for " + waiting.Round(100*time.Millisecond).String()
		}
	}
	return all
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

// hang is the present hang of a server: it accepts statements and doesn't answer, say because it is frozen or its disk is full. Without
// it a node would notice only when the statement times out, half a minute later. The zero hang means none.
type hang struct{ since, seen time.Time }

// watchHangs looks at every server at intervals, until ctx ends.
func (h *Health) watchHangs(ctx context.Context) {
	hangs := make([]hang, len(h.names))
	for loop.Wait(ctx, hangEvery) == nil {
		for i := range h.names {
			hangs[i] = h.lookForHang(i, hangs[i], h.cfg.Servers.Waiting(i), time.Now())
		}
	}
}

// lookForHang records how long the server has not answered by now, and logs the begin and the end of a hang.
func (h *Health) lookForHang(server int, was hang, waiting time.Duration, now time.Time) hang {
	name := h.names[server]
	h.metrics.waiting.WithLabelValues(name).Set(waiting.Seconds())
	switch {
	case waiting >= HangsAfter:
		if was.since.IsZero() {
			was.since = now.Add(-waiting)
		}
		was.seen = now
		h.limit.Of(h.cfg.Logger, "hangs "+name).Warn("server hangs: a statement has no answer",
			"server", name, "waiting", waiting.Round(time.Millisecond).String())
	case !was.since.IsZero() && now.Sub(was.seen) >= hangOver:
		h.limit.Of(h.cfg.Logger, "hangs no more "+name).Info("server hangs no more",
			"server", name, "lasted", was.seen.Sub(was.since).Round(time.Millisecond).String())
		return hang{}
	}
	return was
}

type healthMetrics struct {
	offset, up, usable, waiting *prometheus.GaugeVec

	used, writes *prometheus.GaugeVec // of servers with several addresses, as is failovers
	failovers    *prometheus.CounterVec
}

func newHealthMetrics(r prometheus.Registerer) *healthMetrics {
	f := promauto.With(r)
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "node", Name: name, Help: help}, labels)
	}
	return &healthMetrics{
		offset:  gauge("clock_offset_seconds", "The server's clock minus this process's, as last measured.", "server"),
		up:      gauge("server_up", "1 if the server answered when last looked at, else 0.", "server"),
		usable:  gauge("database_usable", "1 if this node can use the database, 0 if its server does not answer or its layout row is not as the config says.", "server", "database"),
		waiting: gauge("server_waiting_seconds", "How long the oldest statement sent to the server has been without an answer, apart from those that read a whole backlog.", "server"),
		used:    gauge("server_address_used", "1 if statements go to this address of the server, else 0; of servers with several addresses.", "server", "address"),
		writes:  gauge("server_address_writable", "1 if the server at this address takes writes, else 0; of servers with several addresses.", "server", "address"),
		failovers: f.NewCounterVec(prometheus.CounterOpts{
			Namespace: "tocsin", Subsystem: "node", Name: "server_failovers_total", Help: "Moves to another address of the server.",
		}, []string{"server"}),
	}
}

func (m *healthMetrics) export(s Databases) {
	for _, d := range s {
		m.usable.WithLabelValues(d.Server, d.Name).Set(oneIf(d.Is == Usable))
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
