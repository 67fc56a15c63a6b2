package tocsin

import (
	"context"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// moved says ErrLayout of a table that is missing because its database has moved to another server since the client was
// opened; any other error stays.
func (c *Client) moved(ctx context.Context, s *server, err error) error {
	if mysql.ClassOf(err) != mysql.Missing {
		return err
	}
	if _, why := s.check(ctx, c.want); refused(why) {
		return why
	}
	return err
}
