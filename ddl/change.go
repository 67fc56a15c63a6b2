package ddl

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// gone is how long after its last beat a node counts as stopped. One beats twice a second.
const gone = 20 * time.Second

func checkOwnership(ownership string) error {
	if ownership != ByEtcd && ownership != ByRows {
		return fmt.Errorf("ownership %q: use %s or %s", ownership, ByEtcd, ByRows)
	}
	return nil
}

// Owned says what SetOwnership found and did.
type Owned struct {
	Ownership string `json:"ownership"` // of all databases now
	Databases int    `json:"databases"` // how many were changed
}

// SetOwnership has all databases say who may start a row, ByEtcd or ByRows. Nodes of the other kind are refused from then
// on. All nodes must be stopped: with some of each kind, tasks are delivered twice. SetOwnership refuses while a node that
// claims rows has beaten in the last 20 s; force skips this check. The caller must look in etcd for nodes that own
// tables. It may be run again, and goes on where it was interrupted.
func SetOwnership(ctx context.Context, cfg tocsin.Config, ownership string, force bool) (Owned, error) {
	done := Owned{Ownership: ownership}
	if err := checkOwnership(ownership); err != nil {
		return done, err
	}
	sites, err := openStopped(ctx, cfg, force)
	if err != nil {
		return done, err
	}
	defer func() { _ = closeSites(sites) }()
	for _, forget := range []string{deleteSessions, deleteAbouts} {
		if _, err := updateAll(ctx, sites, "forget the sessions in", forget); err != nil {
			return done, err
		}
	}
	done.Databases, err = updateAll(ctx, sites, rowOf, fill(changeOwnership, slots{"ownership": ownership, "version": layoutrow.OldestSchema}))
	return done, err
}

// openStopped opens and surveys the sites for a change that no node may see half done. It refuses databases that can't be
// changed, and, unless forced, nodes that beat lately. The caller closes the sites.
func openStopped(ctx context.Context, cfg tocsin.Config, force bool) ([]*site, error) {
	sites, err := surveySites(ctx, cfg, 1)
	if err != nil {
		return nil, err
	}
	err = changeable(sites, cfg)
	if err == nil && !force {
		err = each(sites, func(s *site) error { return s.noNode(ctx) })
	}
	if err != nil {
		return nil, errors.Join(err, closeSites(sites))
	}
	return sites, nil
}

// changeable refuses databases that are not the config's, and those that older programs may use.
func changeable(sites []*site, cfg tocsin.Config) error {
	for _, s := range sites {
		for _, db := range s.Databases {
			stored, ok := s.rows[db]
			if !ok {
				return fmt.Errorf("%s has no layout row: run `tocsin ddl apply`", s.place(db))
			}
			if err := newRow(cfg.Layout, db, Options{Cluster: cfg.Cluster}).conflict(stored, s.place(db)); err != nil {
				return err
			}
			if stored.WorksWith < layoutrow.OldestSchema {
				return fmt.Errorf("%s %s", s.place(db), layoutrow.Unfinished(stored.WorksWith))
			}
		}
	}
	return nil
}

// noNode refuses if a node has beaten lately.
func (s *site) noNode(ctx context.Context) error {
	for _, db := range s.Databases {
		query := fill(selectBeating, slots{"database": s.layout.Database(db), "seconds": gone.Seconds()})
		var node string
		var ago int
		err := s.DB.QueryRowContext(ctx, query).Scan(&node, &ago)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look for nodes in %s: %w", s.place(db), err)
		}
		return fmt.Errorf("node %s beat in %s %d s ago: stop all nodes, and wait %s after one that was killed", node, s.place(db), ago, gone)
	}
	return nil
}

// graces writes the grace of sweeps into the layout rows of one server that have none, and refuses another one that
// somebody wrote meanwhile.
func (a *application) graces(ctx context.Context, s *site) error {
	for _, db := range s.Databases {
		if s.rows[db].GraceMS != 0 {
			continue
		}
		if _, err := s.update(ctx, db, rowOf, a.row(db).grace(s.layout.Database(db))); err != nil {
			return err
		}
		stored, err := s.readLayout(ctx, db)
		if err != nil {
			return err
		}
		if err := a.row(db).conflict(stored, s.place(db)); err != nil {
			return err
		}
		s.rows[db] = stored
	}
	return nil
}

// SetSweepGrace has all databases say how long a task must be overdue before a sweep takes it, and returns how many it
// changed. Nodes and sweepers with another grace are refused from then on. All of them must be stopped: a sweep with a
// shorter grace than nodes believe delivers beside them. SetSweepGrace refuses while a node that claims rows has beaten
// in the last 20 s; force skips this check. The caller must look in etcd for nodes that own tables. It may be run again, and
// goes on where it was interrupted.
func SetSweepGrace(ctx context.Context, cfg tocsin.Config, grace time.Duration, force bool) (changed int, err error) {
	if err := layoutrow.CheckGrace(grace); err != nil {
		return 0, err
	}
	sites, err := openStopped(ctx, cfg, force)
	if err != nil {
		return 0, err
	}
	defer func() { _ = closeSites(sites) }()
	for _, s := range sites {
		for db, row := range s.rows {
			if row.GraceMS == 0 {
				return 0, fmt.Errorf("%s has no grace of sweeps yet: run `tocsin ddl apply`, which writes sweep.grace of the config", s.place(db))
			}
		}
	}
	return updateAll(ctx, sites, rowOf, fill(changeGrace, slots{"grace": grace.Milliseconds()}))
}

// updateAll runs a statement in each database, one after the other, and returns how many rows it changed.
func updateAll(ctx context.Context, sites []*site, what, query string) (changed int, err error) {
	for _, s := range sites {
		for _, db := range s.Databases {
			n, err := s.update(ctx, db, what, in(s.layout.Database(db), query))
			changed += n
			if err != nil {
				return changed, err
			}
		}
	}
	return changed, nil
}

// rowOf is what most changes do.
const rowOf = "write the layout row of"

// update runs a statement in one database, and returns how many rows it changed.
func (s *site) update(ctx context.Context, db int, what, query string) (changed int, err error) {
	rows, err := s.exec(ctx, query)
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", what, s.place(db), err)
	}
	return int(rows), nil
}

// Finished says what Finish found and did.
type Finished struct {
	Version   int `json:"version"`    // schema version of all databases, and the oldest that programs may be for
	WorkedFor int `json:"worked_for"` // the oldest schema version that programs could be for until now
	Databases int `json:"databases"`  // how many were changed
}

// Finish ends an upgrade: from then on every database refuses programs for an older schema version, and programs may
// write the newest columns and tables. It fails unless all tables of all servers have the newest version. It may be run
// again, and goes on where it was interrupted.
func Finish(ctx context.Context, cfg tocsin.Config) (Finished, error) {
	findings, err := Verify(ctx, cfg)
	if err != nil {
		return Finished{}, err
	}
	for _, f := range findings {
		if !f.Warning {
			return Finished{}, fmt.Errorf("the tables are not of schema version %d: %s", layoutrow.SchemaVersion, f)
		}
	}
	sites, err := surveySites(ctx, cfg, 1)
	if err != nil {
		return Finished{}, err
	}
	defer func() { _ = closeSites(sites) }()
	done := Finished{Version: layoutrow.SchemaVersion, WorkedFor: layoutrow.SchemaVersion}
	for _, s := range sites {
		for _, row := range s.rows {
			done.WorkedFor = min(done.WorkedFor, row.WorksWith)
		}
	}
	done.Databases, err = updateAll(ctx, sites, rowOf, fill(finishLayout, slots{"version": layoutrow.SchemaVersion}))
	return done, err
}
