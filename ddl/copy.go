package ddl

import (
	"context"
	"fmt"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// CopyState says what a server's copy of a database is good for.
type CopyState string

// The states of a copy.
const (
	CopyAbsent  CopyState = "absent"   // there is none
	CopyActive  CopyState = "active"   // in use
	CopyRetired CopyState = "retired"  // it refuses every write
	CopyHalf    CopyState = "half-way" // a step was interrupted: run it again
)

// dbCopy is one database on one server.
type dbCopy struct {
	*site
	db    int
	state CopyState
}

func (c *dbCopy) name() string  { return c.layout.Database(c.db) }
func (c *dbCopy) where() string { return c.place(c.db) }

// used gives the tables that a retired database keeps under other names.
func (c *dbCopy) used() (tables []table) {
	for _, t := range tablesOf(c.layout, c.db) {
		if t.file != layoutTable && t.file != "biz_type" {
			tables = append(tables, t)
		}
	}
	return tables
}

// has reports whether the table stood when the copy was looked at.
func (c *dbCopy) has(name string) bool { return c.tables[c.name()+"."+name] }

// look reads what stands there and refuses what is not this database of this
// cluster.
func (c *dbCopy) look(ctx context.Context, want layoutRow) error {
	c.databases, c.tables, c.rows = map[int]bool{}, map[string]bool{}, map[int]layoutRow{}
	if err := c.survey(ctx); err != nil {
		return err
	}
	row, ok := c.rows[c.db]
	if !ok {
		c.state = CopyAbsent
		if len(c.toFence())+len(c.toUnfence()) > 0 {
			return fmt.Errorf("%s has tables but no layout row: drop it, and copy it whole", c.where())
		}
		return nil
	}
	if err := want.conflict(row, c.where()); err != nil {
		return err
	}
	if row.State == layoutrow.Held {
		return fmt.Errorf("%s is held, as it is an older copy or is being restored: run `tocsin ddl restore-check` first", c.where())
	}
	c.state = c.judge(row.State)
	return nil
}

// judge compares the layout row's word with the names of the tables.
func (c *dbCopy) judge(state string) CopyState {
	open, closed := len(c.toFence()), len(c.toUnfence())
	switch {
	case state == layoutrow.Active && closed == 0:
		return CopyActive
	case state == layoutrow.Retired && open == 0:
		return CopyRetired
	}
	return CopyHalf
}

// structures reads the structure of every table by the name that it has in use.
func (c *dbCopy) structures(ctx context.Context) (map[string]*structure, error) {
	found, err := c.inspect(ctx, c.db)
	if err != nil {
		return nil, err
	}
	for _, t := range c.used() {
		if found[t.name] == nil {
			found[t.name] = found[aside+t.name]
		}
	}
	return found, nil
}

// standing gives the present name of a table that may be retired.
func (c *dbCopy) standing(name string) string {
	if !c.has(name) && c.has(aside+name) {
		return aside + name
	}
	return name
}
