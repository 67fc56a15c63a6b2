package client

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// wideSchema is the schema version with which task tables got the columns headers and biz_key.
const wideSchema = 2

// schema returns what was last read of a table's database. It asks again if the tables were old then: they may have been
// migrated since. nil: the server can't be asked.
func (c *Client) schema(ctx context.Context, table int) *facts {
	db := c.layout.DatabaseOf(table)
	s := c.home[db]
	f, err := s.checked(ctx, c.want)
	if err == nil && !f.rows[db].MayWrite(wideSchema) && time.Since(f.read) > lookAgain {
		f, err = s.check(ctx, c.want)
	}
	if err != nil {
		return nil
	}
	return f
}

// wide reports whether a table has the columns headers and biz_key. If its server can't be asked, a statement there will
// show it.
func (c *Client) wide(ctx context.Context, table int) bool {
	return c.knownWide(table) || c.schema(ctx, table) == nil || c.knownWide(table)
}

// knownWide is wide as far as it is known. A connection that was admitted has told it at most a second ago.
func (c *Client) knownWide(table int) bool {
	db := c.layout.DatabaseOf(table)
	return c.home[db].wide[db].Load()
}

// askWithin bounds a look at a server's schema that is taken only for an optional header.
const askWithin = time.Second

// mayWriteHeaders reports whether headers may be stored in a table; not known if its server can't be asked. It asks the server
// only if nothing is known of it, after a fail-over, and once a second while headers may not be stored.
func (c *Client) mayWriteHeaders(ctx context.Context, table int) (may, known bool) {
	db := c.layout.DatabaseOf(table)
	if c.home[db].facts.Load() == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askWithin)
		defer cancel()
	}
	f := c.schema(ctx, table)
	return f != nil && f.rows[db].MayWrite(wideSchema), f != nil
}

// mayAdd refuses a row that needs columns which programs must not write yet: older ones would ignore them.
func (c *Client) mayAdd(ctx context.Context, r *Row) error {
	if !r.wide() {
		return nil
	}
	return c.mayName(ctx, r.table, r.bizKey)
}

// mayFind refuses a business key, not "", that no task can have yet.
func (c *Client) mayFind(ctx context.Context, table int, key string) error {
	if key == "" {
		return nil
	}
	return c.mayName(ctx, table, key)
}

// mayName refuses headers and business keys in a table's database, if programs that ignore them may still run.
func (c *Client) mayName(ctx context.Context, table int, key string) error {
	db := c.layout.DatabaseOf(table)
	f := c.schema(ctx, table)
	if f == nil || f.rows[db].MayWrite(wideSchema) {
		return nil
	}
	what := "headers"
	if key != "" {
		what = "business keys"
	}
	return Refuse(ErrSchema, "%s need schema version %d, and programs for version %d may still use %s on %s: run `tocsin ddl apply`, then `tocsin ddl finish`",
		what, wideSchema, f.rows[db].WorksWith, c.layout.Database(db), c.home[db].Name)
}

// moved says ErrLayout of a table that is missing because its database has moved to another server since the client was
// opened; any other error stays.
func (c *Client) moved(ctx context.Context, table int, err error) error {
	if mysql.ClassOf(err) != mysql.Missing {
		return err
	}
	if wrong := c.wrong(ctx, table); wrong != nil {
		return wrong
	}
	return err
}

// wrongWithin bounds a look while a caller's transaction is open: the look may wait for what that holds.
const wrongWithin = 2 * time.Second

// wrong looks at the server of the config now, and says why it refuses the table's database; nil: it does not, or can't
// be asked.
func (c *Client) wrong(ctx context.Context, table int) error {
	ctx, cancel := context.WithTimeout(ctx, wrongWithin)
	defer cancel()
	db := c.layout.DatabaseOf(table)
	s := c.home[db]
	f, err := s.look(ctx, s.DB, c.want)
	if err != nil {
		return nil
	}
	return f.refused[db]
}

// ours fills a statement with oursSQL, for a transaction whose server is unknown, and returns the
// parameters of oursSQL.
func (c *Client) ours(statement string, table int) (text string, args []any) {
	db, ofIdentity := c.layout.DatabaseOf(table), ""
	args = []any{c.want.Cluster}
	if c.agreed.Of(db) != "" { // older layout tables have no such column
		ofIdentity = "\n    AND identity IN ('', ?)"
		args = append(args, c.agreed.Agreed())
	}
	return strings.NewReplacer(
		"{database_no}", strconv.Itoa(db),
		"{databases}", strconv.Itoa(c.layout.Databases),
		"{tables}", strconv.Itoa(c.layout.Tables),
		"{of_identity}", ofIdentity,
	).Replace(c.layout.Render(statement, table)), args
}
