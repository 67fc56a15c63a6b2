package standin

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/store"
)

// DefaultEvery is the time between two looks at a server.
const DefaultEvery = 500 * time.Millisecond

const (
	lookAhead    = 2 * time.Second  // how long before it is due a row is looked for
	commitTime   = 10 * time.Second // how long after its action time a new row may still appear
	wholeEvery   = 30 * time.Second // between two looks from the beginning
	peekTimeout  = 10 * time.Second
	pageLimit    = 256
	tablesAtOnce = 64
)

// Tables is the part of the store that a StandIn needs.
type Tables interface {
	Peek(ctx context.Context, q store.PeekQuery) (store.Page, error)
	Now(server int) int64 // the server's clock in Unix ms; 0: not known yet
	Servers() []string
	ServerOf(table int) int
}

// Intake is the part of the dispatcher that a StandIn needs.
type Intake interface {
	StandIn(tables []int, owner string, types []uint64)
	StandDown(tables []int)
	Offer(server int, entries []duequeue.Entry) duequeue.Refused
}

// Duty is one stand-in: biz types, by name, in some tables of another owner.
type Duty struct {
	Owner  string
	Types  []string
	Tables []int
}

// Config says where to look and who gets the entries.
type Config struct {
	Tables     Tables
	Intake     Intake
	Number     func(bizType string) (uint64, bool) // number of a biz type; false: unknown, or it can't be delivered here
	May        func() bool                         // whether this node may act on its view of the others: its lease is proven
	Every      time.Duration                       // 0: DefaultEvery
	Logger     *slog.Logger                        // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer               // nil: metrics are not exported
}

// StandIn looks at other owners' tables. Its methods are safe for concurrent use.
type StandIn struct {
	cfg     Config
	limit   loglimit.Limit
	metrics *metrics
	servers []*server

	mu     sync.Mutex
	duties []Duty
}

// New checks the config and makes a StandIn that has no duties.
func New(cfg Config) (*StandIn, error) {
	if cfg.Tables == nil || cfg.Intake == nil || cfg.Number == nil || cfg.May == nil {
		return nil, errors.New("standin: Tables, Intake, Number and May are needed")
	}
	cfg.Logger = loglimit.Or(cfg.Logger)
	if cfg.Every <= 0 {
		cfg.Every = DefaultEvery
	}
	s := &StandIn{cfg: cfg, metrics: newMetrics(cfg.Registerer)}
	for index, name := range cfg.Tables.Servers() {
		s.servers = append(s.servers, &server{StandIn: s, index: index, name: name, news: make(chan struct{}, 1)})
	}
	return s, nil
}

// Set replaces the duties. It returns at once.
func (s *StandIn) Set(duties []Duty) {
	tables := 0
	for _, d := range duties {
		tables += len(d.Tables)
		s.limit.Of(s.cfg.Logger, "for "+d.Owner).Info("standing in for a node that lacks biz types",
			"owner", d.Owner, "biz_types", d.Types, "tables", len(d.Tables))
	}
	s.metrics.tables.Set(float64(tables))
	s.mu.Lock()
	s.duties = duties
	s.mu.Unlock()
	for _, sv := range s.servers {
		select {
		case sv.news <- struct{}{}:
		default:
		}
	}
}

// Run looks at all servers until ctx ends, and then returns nil.
func (s *StandIn) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, sv := range s.servers {
		all.Go(func() { sv.run(ctx) })
	}
	all.Wait()
	return nil
}

// of returns the duties in tables of a server; none while the node may not act.
func (s *StandIn) of(server int) []Duty {
	if !s.cfg.May() {
		return nil
	}
	s.mu.Lock()
	all := s.duties
	s.mu.Unlock()
	var mine []Duty
	for _, d := range all {
		var tables []int
		for _, table := range d.Tables {
			if s.cfg.Tables.ServerOf(table) == server {
				tables = append(tables, table)
			}
		}
		if len(tables) > 0 {
			mine = append(mine, Duty{Owner: d.Owner, Types: d.Types, Tables: tables})
		}
	}
	return mine
}

// numbers returns the numbers of the biz types that are known.
func (s *StandIn) numbers(names []string) (numbers []uint64) {
	for _, name := range names {
		if n, ok := s.cfg.Number(name); ok {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
