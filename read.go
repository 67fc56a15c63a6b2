package tocsin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Get reads one task; ErrNotFound where there is none, or no more.
func (c *Client) Get(ctx context.Context, id JobID) (info Info, err error) {
	defer c.observe("get", c.begin(), &err)
	if err := noContext(ctx); err != nil {
		return Info{}, err
	}
	table, err := c.tableOf(id)
	if err != nil {
		return Info{}, err
	}
	found, err := c.infos(ctx, getSQL, table, []any{uint64(id)})
	if err != nil {
		return Info{}, err
	}
	if len(found) == 0 {
		return Info{}, refuse(ErrNotFound, "no task %s in %s", id, c.where(table))
	}
	return found[0], nil
}

// List reads all tasks of a biz_id, of every biz type and status, oldest first. Tasks of
// a business key are listed by ListKey alone.
func (c *Client) List(ctx context.Context, bizID uint64) (infos []Info, err error) {
	defer c.observe("list", c.begin(), &err)
	if err := noContext(ctx); err != nil {
		return nil, err
	}
	return c.list(ctx, bizID, "")
}

func (c *Client) list(ctx context.Context, bizID uint64, key string) ([]Info, error) {
	infos, err := c.infos(ctx, listSQL, c.layout.TableOf(bizID), []any{bizID}, []byte(key))
	return slices.DeleteFunc(infos, func(i Info) bool { return i.BizKey != key }), err // tables of schema version 1 can't compare
}

// infos reads tasks. later are parameters that tables of schema version 1 have no columns for.
func (c *Client) infos(ctx context.Context, statement columns, table int, args []any, later ...any) ([]Info, error) {
	s, err := c.serverOf(ctx, table)
	if err != nil {
		return nil, err
	}
	infos, numbers, err := c.scanInfos(ctx, s, table, statement, args, later)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", c.where(table), err)
	}
	for i, number := range numbers { // the rows are closed: a name may need a connection
		infos[i].BizType, infos[i].Table = c.types.name(ctx, number), c.layout.Table(table)
	}
	return infos, nil
}

// scanInfos reads rows of infoSQL and the numbers of their biz types.
func (c *Client) scanInfos(ctx context.Context, s *server, table int, statement columns, args, later []any) (infos []Info, numbers []uint64, err error) {
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	f, err := s.behind(ctx, conn, c.want)
	if err == nil {
		err = f.unreadable(c.layout.DatabaseOf(table))
	}
	if err != nil {
		return nil, nil, err
	}
	wide := c.knownWide(table)
	if wide {
		args = append(args, later...)
	}
	found, err := conn.QueryContext(ctx, c.layout.render(statement.of(wide), table), args...)
	if err != nil {
		return nil, nil, err
	}
	defer found.Close()
	for found.Next() {
		info, number, err := scanInfo(found.Scan)
		if err != nil {
			return nil, nil, err
		}
		infos, numbers = append(infos, info), append(numbers, number)
	}
	return infos, numbers, found.Err()
}

// scanInfo reads a row of infoSQL and the number of its biz type.
func scanInfo(scan func(...any) error) (i Info, number uint64, err error) {
	var dedup, headers []byte
	var action, due, created, modified string
	err = scan(&i.JobID, &i.BizID, &number, &i.Status, &action, &due, &i.Attempts, &i.Crashes,
		&i.Version, &i.ClaimedBy, &dedup, &i.LastError, &i.Attribute, &headers, &i.BizKey, &created, &modified)
	if err != nil {
		return i, 0, err
	}
	i.DedupKey, i.Headers = string(dedup), Headers(headers)
	return i, number, errors.Join(
		setTime(&i.ActionTime, action), setTime(&i.DueTime, due),
		setTime(&i.Created, created), setTime(&i.Modified, modified))
}

func setTime(to *time.Time, text string) (err error) {
	*to, err = time.Parse(timeForm, text)
	return err
}
