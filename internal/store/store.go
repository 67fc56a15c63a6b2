package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Store sends a node's statements to the servers of one cluster. Safe for
// concurrent use.
type Store struct {
	layout    tocsin.Layout
	cluster   string        // "" takes any
	ownership string        // "" takes any
	grace     time.Duration // of sweeps; 0 takes any
	frozen    bool          // see Frozen
	servers   []*server
	home      []int          // database number -> server
	names     []string       // table number -> full name
	versions  []atomic.Int32 // database number -> its schema version, as last read

	ownerships []atomic.Pointer[string] // database number -> who may start its rows, as last read; nil: not read yet
	metrics    *metrics

	held   atomic.Bool               // see Hold
	jumped atomic.Pointer[time.Time] // see Jumped

	horizon atomic.Int64 // of the doorbell, ms; 0: no layout row was read yet

	identities layoutrow.Identities   // from the layout rows read so far
	agreed     atomic.Pointer[string] // the identity agreed on when a layout row was last read
	marks      layoutrow.Marks        // from layout rows, the mark tables and Remember
}

// server is one pool and what is known of the server behind it.
type server struct {
	*mysql.Server
	tables []int // table numbers, ascending
	clock  clock
	prober prober
	beats  beats

	resumed atomic.Int64 // term of the last Resume

	waiters chan struct{} // has room for waitersAtOnce

	deaf deaf
	full full

	beside atomic.Pointer[besides]       // nil: never read
	beaten atomic.Pointer[map[int]int64] // marks of its databases at the last Beat
	marked atomic.Pointer[[]int]         // databases that have marks, as their layout rows said last

	refusals atomic.Pointer[refusals] // databases that must not be used; nil: not looked yet
}

// Option changes how a Store works.
type Option func(*Store)

// Ownership refuses databases in which others may start rows than the layout row says: "etcd" or "rows".
func Ownership(ownership string) Option { return func(s *Store) { s.ownership = ownership } }

// SweepGrace refuses databases whose layout row has another grace of sweeps, unless it has none yet. Below 1 ms takes any.
func SweepGrace(grace time.Duration) Option { return func(s *Store) { s.grace = grace } }

// Frozen is for sessions of tests in which the servers' clocks stand still: Now does too.
func Frozen(frozen bool) Option { return func(s *Store) { s.frozen = frozen } }

// A server ends a session that has been silent for so long, so that a process that is frozen in a transaction holds its locks no longer. With rows
// others want these rows at once; with etcd not before its lease ends. The pool closes what nobody needed before the server does.
const (
	waitTimeout     = 10 * time.Second
	rowsWaitTimeout = 3 * time.Second
)

// Open makes the pools of every server of cfg. It connects to nothing: an
// unreachable server, and a foreign database, show at the first statement.
func Open(cfg tocsin.Config, options ...Option) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Store{
		layout:   cfg.Layout,
		cluster:  cfg.Cluster,
		home:     make([]int, cfg.Layout.Databases),
		names:    make([]string, cfg.Layout.Total()),
		versions: make([]atomic.Int32, cfg.Layout.Databases),
		metrics:  newMetrics(),

		ownerships: make([]atomic.Pointer[string], cfg.Layout.Databases),
	}
	for _, option := range options {
		option(s)
	}
	for table := range s.names {
		s.names[table] = cfg.Layout.Table(table)
	}
	for _, spec := range client.Specs(cfg) {
		if err := s.add(spec); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// poolBeside is how many connections to a server are open beside a store's pool: the
// prober's, that of the beats, and one that reads the policies.
const poolBeside = 3

// add opens the pool of the next server, its prober, and the connections of its beats.
func (s *Store) add(spec mysql.Spec) error {
	sv := &server{waiters: make(chan struct{}, waitersAtOnce)}
	if err := sv.prober.open(spec); err != nil {
		return err
	}
	spec.Observe = s.metrics.of(spec.Name)
	if err := sv.beats.open(spec); err != nil {
		return errors.Join(err, sv.prober.db.Close())
	}
	spec.Beside = poolBeside
	spec.WaitTimeout, spec.IdleTime = waitTimeout, waitTimeout/2
	if s.ownership == layoutrow.ByRows {
		spec.WaitTimeout, spec.IdleTime = rowsWaitTimeout, rowsWaitTimeout/3
	}
	pool, err := mysql.Open(spec)
	if err != nil {
		return errors.Join(err, sv.prober.db.Close(), sv.beats.close())
	}
	pool.Databases = slices.Sorted(slices.Values(pool.Databases))
	sv.Server = pool
	for _, database := range pool.Databases {
		s.home[database] = len(s.servers)
		for t := range s.layout.Tables {
			sv.tables = append(sv.tables, database*s.layout.Tables+t)
		}
	}
	s.servers = append(s.servers, sv)
	return nil
}

// Close closes the pools. No other method may be under way or called again.
func (s *Store) Close() error {
	var errs []error
	for _, sv := range s.servers {
		sv.prober.leave()
		if err := errors.Join(sv.prober.db.Close(), sv.beats.close(), sv.DB.Close()); err != nil {
			errs = append(errs, fmt.Errorf("close server %s: %w", sv.Name, err))
		}
	}
	return errors.Join(errs...)
}

// CertificateExpires returns when the first of the certificates expires that connections to the server use, as of the last
// connection; the zero time without TLS.
func (s *Store) CertificateExpires(server int) time.Time {
	return s.servers[server].CertificateExpires()
}

// ByRows reports whether the layout rows that were read last say that every process claims each row under its session. Else tables have owners.
func (s *Store) ByRows() bool {
	for database := range s.ownerships {
		if ownership := s.ownerships[database].Load(); ownership != nil {
			return *ownership == layoutrow.ByRows
		}
	}
	return false
}

// Layout is the layout of the config; Check compares it with what is stored.
func (s *Store) Layout() tocsin.Layout { return s.layout }

// Servers gives the names of the servers, by index.
func (s *Store) Servers() []string {
	names := make([]string, len(s.servers))
	for i, sv := range s.servers {
		names[i] = sv.Name
	}
	return names
}

// ServerOf gives the server of a table, -1 where the layout has no such table.
func (s *Store) ServerOf(table int) int {
	if table < 0 || table >= len(s.names) {
		return -1
	}
	return s.home[s.layout.DatabaseOf(table)]
}

// TablesOf gives the numbers of a server's tables, ascending. The caller may
// keep the slice.
func (s *Store) TablesOf(server int) []int { return slices.Clone(s.servers[server].tables) }

// A server may have several addresses, of which one is used. The store moves to another one by
// itself. With asynchronous replication the server there may lack the last writes, owner rows
// among them: an owner must fence its tables again before it starts anything.

// Hold makes Now 0 for a server from each move to another address until Resume: nothing is due
// meanwhile. Moves of other pools of this process before Hold don't count. Call it once, before
// anything starts.
func (s *Store) Hold() {
	for _, sv := range s.servers {
		sv.resumed.Store(sv.Term()) // pools of one process share the term, and no Resume follows for a move before this pool was open
	}
	s.held.Store(true)
}

// Resume ends the wait after the move that began a term of a server.
func (s *Store) Resume(server int, term int64) { s.servers[server].resumed.Store(term) }

// Term counts a server's moves to other addresses. While it stays the same, all statements have
// gone to one server.
func (s *Store) Term(server int) int64 { return s.servers[server].Term() }

// Moved has a value when Term has grown; nil for a server with one address. One goroutine may
// receive from it.
func (s *Store) Moved(server int) <-chan struct{} { return s.servers[server].Moved() }

// Sightings returns what was last seen at each of a server's addresses; nil if it has only one.
// It waits until all were looked at once, or ctx ends.
func (s *Store) Sightings(ctx context.Context, server int) []mysql.Sighting {
	return s.servers[server].Sightings(ctx)
}
