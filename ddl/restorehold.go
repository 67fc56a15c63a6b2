package ddl

import (
	"context"
	"errors"
	"fmt"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// HoldDatabases takes databases out of use, before they are replaced by copies: nodes, sweepers and clients refuse them
// within seconds, until AcceptRestored. The other databases keep the time of it, so that a copy shows exactly what it
// lacks.
func HoldDatabases(ctx context.Context, cfg tocsin.Config, databases []string) error {
	r, unread, err := openRestore(ctx, cfg, RestoreOptions{Databases: databases})
	if err != nil {
		return errors.Join(err, unread)
	}
	defer func() { _ = closeSites(r.sites) }()
	for _, c := range r.copies {
		if err := r.hold(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// hold takes one database out of use. The mark of an older copy stays: it says how old the copy is.
func (r *restore) hold(ctx context.Context, c *restored) error {
	if c.row.State != layoutrow.Active && c.row.State != layoutrow.Held {
		return fmt.Errorf("%s is %s: only a database in use can be held", c.where(), c.row.State)
	}
	if c.found.Older {
		return c.write(ctx, holdLayout, DefaultWait)
	}
	if err := c.write(ctx, holdNow, DefaultWait); err != nil {
		return err
	}
	row, err := c.readLayout(ctx, c.db)
	if err != nil {
		return err
	}
	for _, s := range r.sites {
		for db := range s.rows {
			if db == c.db {
				continue
			}
			_, err := s.DB.ExecContext(ctx, in(r.layout.Database(db), keepMark), c.db, row.Identity, row.Mark)
			if err != nil && mysql.ClassOf(err) != mysql.Missing {
				return fmt.Errorf("keep the mark of %s in %s: %w", c.name(), s.place(db), err)
			}
		}
	}
	return nil
}
