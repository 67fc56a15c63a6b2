package ddl

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// renames is how many tables one RENAME takes: it waits for all of them, so few.
const renames = 16

// rename is a table's name before and after.
type rename struct{ from, to string }

// fence takes a database out of use: first its layout row says so, then its
// tables lose their names, which no statement survives, whoever sends it and
// however long ago it read the row.
func (c *dbCopy) fence(ctx context.Context, wait time.Duration, done func(int)) error {
	if err := c.write(ctx, retireLayout, wait); err != nil {
		return err
	}
	return c.renameAll(ctx, c.toFence(), wait, done)
}

// unfence puts a database into use instead of its other copy, in the reverse order. The copies are equal, so it gets the
// mark of the other one too: nodes may have raised that since, and would take this database for an older copy.
func (c *dbCopy) unfence(ctx context.Context, other *dbCopy, wait time.Duration, done func(int)) error {
	if err := c.renameAll(ctx, c.toUnfence(), wait, done); err != nil {
		return err
	}
	return c.write(ctx, strings.ReplaceAll(activateLayout, "{mark}", strconv.FormatInt(other.rows[other.db].Mark, 10)), wait)
}

func (c *dbCopy) write(ctx context.Context, statement string, wait time.Duration) error {
	return patient(ctx, wait, func() error {
		if _, err := c.DB.ExecContext(ctx, in(c.name(), statement)); err != nil {
			return fmt.Errorf("write the layout row of %s: %w", c.where(), err)
		}
		return nil
	})
}

// patient repeats op for as long as transactions of others stand in its way.
func patient(ctx context.Context, wait time.Duration, op func() error) error {
	err := mysql.RetryFor(ctx, wait, op)
	if mysql.ClassOf(err) == mysql.Contended {
		return fmt.Errorf("%w: an open transaction of somebody holds it: end it, then run this again", err)
	}
	return err
}

func (c *dbCopy) toFence() (all []rename) {
	for _, t := range c.used() {
		if c.has(t.name) {
			all = append(all, rename{t.name, aside + t.name})
		}
	}
	return all
}

func (c *dbCopy) toUnfence() (all []rename) {
	for _, t := range c.used() {
		if c.has(aside + t.name) {
			all = append(all, rename{aside + t.name, t.name})
		}
	}
	return all
}

// renameAll renames tables, some at a time.
func (c *dbCopy) renameAll(ctx context.Context, all []rename, wait time.Duration, done func(int)) error {
	for len(all) > 0 {
		n := min(renames, len(all))
		if err := c.renameSome(ctx, all[:n], wait); err != nil {
			return err
		}
		done(n)
		all = all[n:]
	}
	return nil
}

// renameSome renames together, or, where a transaction holds one of the tables,
// one by one, each within wait.
func (c *dbCopy) renameSome(ctx context.Context, some []rename, wait time.Duration) error {
	if err := c.rename(ctx, some); mysql.ClassOf(err) != mysql.Contended {
		return err
	}
	for i := range some {
		if err := patient(ctx, wait, func() error { return c.rename(ctx, some[i:i+1]) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *dbCopy) rename(ctx context.Context, some []rename) error {
	texts := make([]string, len(some))
	for i, r := range some {
		texts[i] = strings.NewReplacer("{database}", c.name(), "{from}", r.from, "{to}", r.to).Replace(renameTable)
	}
	if _, err := c.DB.ExecContext(ctx, renameTables+strings.Join(texts, ", ")); err != nil {
		return fmt.Errorf("rename %s of %s: %w", some[0].from, c.where(), err)
	}
	return nil
}
