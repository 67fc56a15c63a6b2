package ddl

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// MoveOptions says how to move. The zero value is fine.
type MoveOptions struct {
	Databases []string              // names of those to move, of those that differ; none: all
	Wait      time.Duration         // how long to wait for a transaction that holds a table; 0: 1 min
	Parallel  int                   // connections to each server, 1 to 64; 0: 4
	Progress  func(done, total int) // tables done, of all; called often, by one goroutine at a time; nil: no calls
}

// Move takes databases from the servers that one config names to those that
// another names. The rows are copied by the operator's own means; what a Move does
// is to take care that at no time two copies take writes:
//
//	from: active ---Retire---> retired ........................... retired
//	                              |  copied whole     ^
//	to:   absent ............. retired -- Activate --> active    Undo goes back
//
// A retired copy refuses every write of everybody: its tables have other names.
// Every step may be repeated, and goes on where it was interrupted; a step out of
// turn is refused, with a sentence that says what comes first. Use it from one
// goroutine.
type Move struct {
	opt     MoveOptions
	cluster string // of the configs; "" is any
	pairs   []*pair

	progress progress
}

// sumTime is how long a server may take to sum up one table: it answers only when it has read the whole.
const sumTime = time.Hour

// pair is one database that moves.
type pair struct{ from, to *dbCopy }

// Moved is where a database stands on its way.
type Moved struct {
	Database  string    `json:"database"`
	From      string    `json:"from"` // server
	FromState CopyState `json:"from_state"`
	To        string    `json:"to"` // server
	ToState   CopyState `json:"to_state"`
}

// OpenMove compares two configs of one cluster: the databases whose servers
// differ are those to move. It connects to nothing. The caller closes it.
func OpenMove(from, to tocsin.Config, opt MoveOptions) (*Move, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	for _, cfg := range []tocsin.Config{from, to} {
		if err := cfg.Validate(); err != nil {
			return nil, err
		}
	}
	switch {
	case named(from.Layout) != named(to.Layout):
		return nil, fmt.Errorf("the old config has layout %s, the new one %s: a move changes servers only", named(from.Layout), named(to.Layout))
	case from.Cluster != to.Cluster:
		return nil, fmt.Errorf("the old config is of cluster %q, the new one of %q", from.Cluster, to.Cluster)
	}
	m := &Move{opt: opt, cluster: from.Cluster}
	if err := m.open(from, to); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (o MoveOptions) withDefaults() (MoveOptions, error) {
	o.Wait, o.Parallel = cmp.Or(o.Wait, DefaultWait), cmp.Or(o.Parallel, DefaultParallel)
	return o, checkEffort(o.Wait, o.Parallel)
}

// open makes the pairs, each with pools of its own.
func (m *Move) open(from, to tocsin.Config) error {
	before, after := homes(from), homes(to)
	known := make([]string, 0, len(before))
	for db := range from.Layout.Databases {
		name := from.Layout.Database(db)
		known = append(known, name)
		wanted := len(m.opt.Databases) == 0 || slices.Contains(m.opt.Databases, name)
		if !wanted || mysql.Address(before[db].DSN) == mysql.Address(after[db].DSN) {
			continue
		}
		if err := m.openPair(from, db, before[db], after[db]); err != nil {
			return err
		}
	}
	for _, name := range m.opt.Databases {
		if !slices.Contains(known, name) {
			return fmt.Errorf("layout %s has no database %s", from.Layout, name)
		}
	}
	if len(m.pairs) == 0 {
		return errors.New("nothing to move: both configs name the same servers")
	}
	return nil
}

// homes gives the server of each database.
func homes(cfg tocsin.Config) map[int]mysql.Spec {
	home := make(map[int]mysql.Spec)
	for _, spec := range client.Specs(cfg) {
		for _, db := range spec.Databases {
			home[db] = spec
		}
	}
	return home
}

func (m *Move) openPair(cfg tocsin.Config, db int, from, to mysql.Spec) error {
	p := &pair{}
	m.pairs = append(m.pairs, p)
	for _, side := range []struct {
		copy **dbCopy
		spec mysql.Spec
	}{{&p.from, from}, {&p.to, to}} {
		side.spec.Databases, side.spec.MaxConns, side.spec.Share = []int{db}, m.opt.Parallel, ""
		side.spec.ReadTime = sumTime
		server, err := mysql.Open(side.spec)
		if err != nil {
			return err
		}
		*side.copy = &dbCopy{site: &site{Server: server, layout: cfg.Layout}, db: db}
	}
	return nil
}

// named is a layout with the name of its first database, which says the prefix.
func named(l tocsin.Layout) string { return l.String() + " from " + l.Database(0) }

// Close closes the pools.
func (m *Move) Close() error {
	var errs []error
	for _, p := range m.pairs {
		for _, c := range []*dbCopy{p.from, p.to} {
			if c != nil {
				errs = append(errs, c.DB.Close())
			}
		}
	}
	return errors.Join(errs...)
}
