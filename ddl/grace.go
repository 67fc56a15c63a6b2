package ddl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// checkGrace wants whole milliseconds, since the layout row holds these.
func checkGrace(grace time.Duration) error {
	if grace < MinSweepGrace || grace > MaxSweepGrace || grace%time.Millisecond != 0 {
		return fmt.Errorf("grace of sweeps %s: use %s to %s, in whole milliseconds", grace, MinSweepGrace, MaxSweepGrace)
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
		if _, err := s.update(ctx, db, a.row(db).grace(s.layout.Database(db))); err != nil {
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
// shorter grace than nodes believe delivers beside them. SetSweepGrace refuses while a node that claims rows has written its row
// in the last 20 s; force skips this check. The caller must look in etcd for nodes that own tables. It may be run again, and
// goes on where it was interrupted.
func SetSweepGrace(ctx context.Context, cfg tocsin.Config, grace time.Duration, force bool) (changed int, err error) {
	if err := checkGrace(grace); err != nil {
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
	for _, s := range sites {
		for _, db := range s.Databases {
			query := strings.ReplaceAll(in(s.layout.Database(db), changeGrace), "{grace}", fmt.Sprint(grace.Milliseconds()))
			n, err := s.update(ctx, db, query)
			changed += n
			if err != nil {
				return changed, err
			}
		}
	}
	return changed, nil
}

// update runs a statement on one layout row, and returns how many rows it changed.
func (s *site) update(ctx context.Context, db int, query string) (changed int, err error) {
	err = mysql.Retry(ctx, func() error {
		result, err := s.DB.ExecContext(ctx, query)
		if err != nil {
			return err
		}
		rows, err := result.RowsAffected()
		changed = int(rows)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("write the layout row of %s: %w", s.place(db), err)
	}
	return changed, nil
}
