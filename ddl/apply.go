package ddl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// batch is how many CREATE TABLE go into one packet: enough that the round trip
// is nothing, few enough that progress moves and a kill loses little.
const batch = 32

// Result says what Apply found and made.
type Result struct {
	From      int    // the oldest schema version that a database had; 0: all databases are new
	WorksWith int    // the oldest schema version that programs may be for, in all databases
	Cluster   string // id of the cluster, as stored in every database
	Identity  string // of the cluster, as stored; "": it could not be written, see Warning
	Databases int    // databases created
	Tables    int    // tables created, of every kind
	Existing  int    // tables that were there before
	Altered   int    // changes made to tables that were there before
	Warning   string // what could not be done, although all works without it; "": nothing
}

// Apply creates what is missing of the databases, their layout rows and their
// tables, on all servers at once, and then brings tables that are of an older
// schema version to the newest. Programs for the older version may go on
// meanwhile, and after it, until Finish. It is idempotent and goes on where an
// earlier one was killed. It returns what it made also beside an error; the error names
// each server that failed, and wraps the driver's errors.
func Apply(ctx context.Context, cfg tocsin.Config, opt Options) (Result, error) {
	opt, err := opt.withDefaults(cfg)
	if err != nil {
		return Result{}, err
	}
	sites, err := surveySites(ctx, cfg, opt.Parallel)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = closeSites(sites) }()
	a := &application{opt: opt, layout: cfg.Layout, sites: sites, created: progress{tell: opt.Progress}, altered: progress{tell: opt.Migrated}}
	err = a.run(ctx)
	return a.result, err
}

// application is one Apply under way.
type application struct {
	opt    Options
	layout tocsin.Layout
	sites  []*site

	created, altered progress

	mu     sync.Mutex // guards what follows
	result Result
}

func (a *application) run(ctx context.Context) error {
	if err := a.agree(); err != nil {
		return err
	}
	if err := each(a.sites, func(s *site) error { return a.databases(ctx, s) }); err != nil {
		return err
	}
	a.created.total = a.layout.Databases * (len(fixedTables) + a.layout.Tables)
	a.created.done = a.created.total
	for _, s := range a.sites {
		a.created.done -= len(s.missing())
	}
	a.result.Existing = a.created.done
	if err := a.identify(ctx); err != nil {
		return err
	}
	if err := each(a.sites, func(s *site) error { return a.tables(ctx, s) }); err != nil {
		return err
	}
	if err := a.migrate(ctx); err != nil {
		return err
	}
	return each(a.sites, func(s *site) error { return a.graces(ctx, s) })
}

// agree checks every stored layout row against the config and the other rows, and
// adopts the stored cluster id and identity. New databases take the programs that
// the stored ones take.
func (a *application) agree() error {
	for _, s := range a.sites {
		for _, db := range s.Databases {
			stored, ok := s.rows[db]
			if !ok {
				continue
			}
			if err := a.row(db).conflict(stored, s.place(db)); err != nil {
				return err
			}
			if stored.State == layoutrow.Retired {
				return fmt.Errorf("%s is retired: its tables have moved, correct the servers of the config", s.place(db))
			}
			if stored.WorksWith < layoutrow.OldestSchema {
				return fmt.Errorf("%s %s", s.place(db), layoutrow.Unfinished(stored.WorksWith))
			}
			a.opt.Cluster = stored.Cluster
			a.opt.Identity = cmp.Or(stored.Identity, a.opt.Identity)
			a.opt.Ownership = stored.Ownership
			a.opt.SweepGrace = cmp.Or(millis(stored.GraceMS), a.opt.SweepGrace)
			a.result.From = min(cmp.Or(a.result.From, stored.Version), stored.Version)
			a.opt.worksWith = min(cmp.Or(a.opt.worksWith, stored.WorksWith), stored.WorksWith)
		}
	}
	a.result.WorksWith = cmp.Or(a.opt.worksWith, layoutrow.SchemaVersion)
	return nil
}

func (a *application) row(db int) layoutRow {
	return newRow(a.layout, db, a.opt)
}

// databases creates the missing databases of one server.
func (a *application) databases(ctx context.Context, s *site) error {
	var missing []string
	for _, db := range s.Databases {
		if !s.databases[db] {
			missing = append(missing, in(s.layout.Database(db), createDatabase))
		}
	}
	for i, create := range missing {
		_, err := s.DB.ExecContext(ctx, sender+create)
		if mysql.ClassOf(err) == mysql.Denied {
			return fmt.Errorf("server %s: the user may not create databases; let an administrator run: %s; (%w)",
				s.Name, strings.Join(missing[i:], "; "), err)
		}
		if err != nil {
			return fmt.Errorf("server %s: %s: %w", s.Name, create, err)
		}
		a.count(func(r *Result) { r.Databases++ })
	}
	return nil
}

// identify makes the layout table and row of every database. Database 0 goes first
// and alone: when two Applies run at once, the one that writes its row gives the
// cluster its id and identity, and the other adopts them.
func (a *application) identify(ctx context.Context) error {
	cluster, identity := a.opt.Cluster, a.opt.Identity
	if cluster == "" {
		a.opt.Cluster = newCluster(a.layout)
	}
	if identity == "" {
		a.opt.Identity = newIdentity()
	}
	home := slices.IndexFunc(a.sites, func(s *site) bool { return slices.Contains(s.Databases, 0) })
	first, err := a.write(ctx, a.sites[home], 0)
	if err != nil {
		return err
	}
	if cluster == "" {
		a.opt.Cluster = first.Cluster
	}
	if identity == "" {
		a.opt.Identity = first.Identity // empty if it could not be written: then no other database gets one
	}
	a.result.Cluster, a.result.Identity = a.opt.Cluster, a.opt.Identity
	return each(a.sites, func(s *site) error {
		for _, db := range s.Databases {
			stored, err := a.write(ctx, s, db)
			if err == nil {
				err = a.row(db).conflict(stored, s.place(db))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// write makes the layout table and row of one database unless they are there,
// and returns the row as stored.
func (a *application) write(ctx context.Context, s *site, db int) (layoutRow, error) {
	stored, ok := s.rows[db]
	if !ok {
		if err := a.insert(ctx, s, db); err != nil {
			return stored, err
		}
		var err error
		if stored, err = s.readLayout(ctx, db); err != nil {
			return stored, err
		}
	}
	if stored.Identity == "" {
		var err error
		if stored, err = a.mark(ctx, s, db, stored); err != nil {
			return stored, err
		}
	}
	s.rows[db] = stored
	return stored, nil
}

// insert makes the layout table of one database, and its row unless another Apply was
// faster.
func (a *application) insert(ctx context.Context, s *site, db int) error {
	name := s.layout.Database(db)
	layout := table{file: layoutTable, database: name, name: layoutTable}
	if !s.tables[layout.full()] {
		if err := a.create(ctx, s, []table{layout}); err != nil {
			return err
		}
		s.tables[layout.full()] = true
	}
	if _, err := s.exec(ctx, a.row(db).insert(name)); err != nil {
		return fmt.Errorf("write layout of %s: %w", s.place(db), err)
	}
	return nil
}

// tables creates the missing tables of one server over several connections.
func (a *application) tables(ctx context.Context, s *site) error {
	batches := slices.Collect(slices.Chunk(s.missing(), batch))
	return atOnce(ctx, a.opt.Parallel, len(batches), func(ctx context.Context, i int) error { return a.create(ctx, s, batches[i]) })
}

// create makes some tables of one server in one packet. Repeating it is safe.
func (a *application) create(ctx context.Context, s *site, tables []table) error {
	var packet strings.Builder
	for _, t := range tables {
		packet.WriteString(sender + t.create() + ";\n")
	}
	if _, err := s.exec(ctx, packet.String()); err != nil {
		return fmt.Errorf("server %s: create %s to %s: %w", s.Name, tables[0].full(), tables[len(tables)-1].full(), err)
	}
	a.count(func(r *Result) { r.Tables += len(tables) })
	a.created.add(len(tables), 0)
	return nil
}

func (a *application) count(add func(*Result)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	add(&a.result)
}
