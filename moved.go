package tocsin

import (
	"context"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// moved says ErrLayout of a table that is missing because its database has moved to another server since the client was
// opened; any other error stays.
func (c *Client) moved(ctx context.Context, s *server, table int, err error) error {
	if mysql.ClassOf(err) != mysql.Missing {
		return err
	}
	f, failed := s.look(ctx, s.DB, c.want)
	if failed == nil && f.refused[c.layout.DatabaseOf(table)] != nil {
		return f.refused[c.layout.DatabaseOf(table)]
	}
	return err
}
