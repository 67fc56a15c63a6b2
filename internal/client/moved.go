package client

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

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
	f, err := s.look(ctx, s.DB)
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
	if c.agreed.Of(db) != "" { // else it has none yet, or was not read
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
