package tocsin

import (
	"context"
	"time"
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
func (c *Client) mayAdd(ctx context.Context, r *row) error {
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
	return refuse(ErrSchema, "%s need schema version %d, and programs for version %d may still use %s on %s: run `tocsin ddl apply`, then `tocsin ddl finish`",
		what, wideSchema, f.rows[db].WorksWith, c.layout.Database(db), c.home[db].Name)
}
