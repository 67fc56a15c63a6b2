package ddl

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
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

// mark is that of the layout row when the copy was looked at; 0: there is none.
func (c *dbCopy) mark() int64 { return c.rows[c.db].Mark }

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
	found, err := c.inspect(ctx, c.name())
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

// unfence puts a database into use instead of its other copy, in the reverse order. Its mark is above that of the other copy
// before any table gets its name back: nodes do not take it for an older copy, and a later step sees that it was in use.
func (c *dbCopy) unfence(ctx context.Context, other *dbCopy, wait time.Duration, done func(int)) error {
	if err := c.write(ctx, fill(raiseMark, slots{"mark": other.mark()}), wait); err != nil {
		return err
	}
	if err := c.renameAll(ctx, c.toUnfence(), wait, done); err != nil {
		return err
	}
	return c.write(ctx, activateLayout, wait)
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

// toFence returns how tables that are in use are renamed, toUnfence the way back.
func (c *dbCopy) toFence() []rename   { return c.renamesOf("", aside) }
func (c *dbCopy) toUnfence() []rename { return c.renamesOf(aside, "") }

func (c *dbCopy) renamesOf(from, to string) (all []rename) {
	for _, t := range c.used() {
		if c.has(from + t.name) {
			all = append(all, rename{from + t.name, to + t.name})
		}
	}
	return all
}

// renameAll renames tables, some at a time.
func (c *dbCopy) renameAll(ctx context.Context, all []rename, wait time.Duration, done func(int)) error {
	for some := range slices.Chunk(all, renames) {
		if err := c.renameSome(ctx, some, wait); err != nil {
			return err
		}
		done(len(some))
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
		texts[i] = fill(renameTable, slots{"database": c.name(), "from": r.from, "to": r.to})
	}
	if _, err := c.DB.ExecContext(ctx, renameTables+strings.Join(texts, ", ")); err != nil {
		return fmt.Errorf("rename %s of %s: %w", some[0].from, c.where(), err)
	}
	return nil
}

// errNoLock means that a user lock with a random name could not be taken.
var errNoLock = errors.New("it gave no user lock")

// apart refuses a single server under two addresses: a copy would be compared with
// itself.
func (p *pair) apart(ctx context.Context) error {
	from, err := p.from.uuid(ctx)
	if err != nil {
		return err
	}
	to, err := p.to.uuid(ctx)
	if err != nil {
		return err
	}
	same := from == to
	if from == "" && to == "" {
		if same, err = p.shareLocks(ctx); err != nil {
			return err
		}
	}
	switch {
	case !same:
		return nil
	case from != "":
		return fmt.Errorf("servers %s and %s are the same one: nothing moves (both have server_uuid %s: if the new one was made from a copy of the old one's files, remove its auto.cnf and restart it)",
			p.from.Name, p.to.Name, from)
	}
	return fmt.Errorf("servers %s and %s are the same one: nothing moves", p.from.Name, p.to.Name)
}

// uuid reads the server's server_uuid; "" if it has none.
func (c *dbCopy) uuid(ctx context.Context) (string, error) {
	var name, value string
	err := c.DB.QueryRowContext(ctx, selectUUID).Scan(&name, &value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("server %s: %w", c.Name, err)
	}
	return value, nil
}

// shareLocks reports whether a user lock taken on one side is seen from the other. All connections to a server see its
// locks, and none to another server does.
func (p *pair) shareLocks(ctx context.Context) (bool, error) {
	conn, err := p.from.DB.Conn(ctx)
	if err != nil {
		return false, fmt.Errorf("server %s: %w", p.from.Name, err)
	}
	defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }() // closes the connection, which frees the lock
	name := "tocsin-" + rand.Text()
	var taken sql.NullInt64
	err = conn.QueryRowContext(ctx, takeLock, name, 0).Scan(&taken)
	if err == nil && taken.Int64 != 1 {
		err = errNoLock
	}
	if err != nil {
		return false, fmt.Errorf("tell servers %s and %s apart: server %s: %w", p.from.Name, p.to.Name, p.from.Name, err)
	}
	var holder sql.NullInt64
	if err := p.to.DB.QueryRowContext(ctx, lockHolder, name).Scan(&holder); err != nil {
		return false, fmt.Errorf("tell servers %s and %s apart: server %s: %w", p.from.Name, p.to.Name, p.to.Name, err)
	}
	return holder.Valid, nil
}
