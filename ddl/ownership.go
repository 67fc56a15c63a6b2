package ddl

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// ownershipSince is the schema version that the column ownership came with. Programs for an older one take every cluster
// for one with etcd.
const ownershipSince = 2

// gone is how long after its last sign a node counts as stopped. One writes its row every 5 s.
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
// claims rows has written its row in the last 20 s; force skips this check. The caller must look in etcd for nodes that own
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
	for _, s := range sites {
		n, err := s.setOwnership(ctx, ownership)
		done.Databases += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// openStopped opens and surveys the sites for a change that no node may see half done. It refuses databases that can't be
// changed, and, unless forced, nodes that wrote their rows lately. The caller closes the sites.
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
			if stored.WorksWith < ownershipSince {
				return fmt.Errorf("%s works with programs for schema version %d, which take every cluster for one with etcd: run `tocsin ddl finish` first",
					s.place(db), stored.WorksWith)
			}
		}
	}
	return nil
}

// noNode refuses if a node has written its row lately.
func (s *site) noNode(ctx context.Context) error {
	for _, db := range s.Databases {
		query := strings.ReplaceAll(in(s.layout.Database(db), selectNode), "{seconds}", fmt.Sprint(gone.Seconds()))
		var node string
		var ago int
		err := s.DB.QueryRowContext(ctx, query).Scan(&node, &ago)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look for nodes in %s: %w", s.place(db), err)
		}
		return fmt.Errorf("node %s wrote its row in %s %d s ago: stop all nodes, and wait %s after one that was killed", node, s.place(db), ago, gone)
	}
	return nil
}

// setOwnership returns how many databases of a server it changed.
func (s *site) setOwnership(ctx context.Context, ownership string) (changed int, err error) {
	for _, db := range s.Databases {
		name := s.layout.Database(db)
		query := strings.NewReplacer("{database}", name, "{ownership}", ownership, "{version}", fmt.Sprint(ownershipSince)).Replace(changeOwnership)
		if err := mysql.Retry(ctx, func() error {
			_, err := s.DB.ExecContext(ctx, in(name, deleteNodes))
			return err
		}); err != nil {
			return changed, fmt.Errorf("forget the nodes in %s: %w", s.place(db), err)
		}
		n, err := s.update(ctx, db, query)
		changed += n
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}
