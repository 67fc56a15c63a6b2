package tocsin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin/internal/payloadmark"
	"github.com/tocsinhq/tocsin/internal/runkey"
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
	found, _, err := c.infos(ctx, getSQL, table, uint64(id))
	if err != nil {
		return Info{}, err
	}
	if len(found) == 0 {
		return Info{}, refuse(ErrNotFound, "no task %s in %s", id, c.where(table))
	}
	return found[0], nil
}

// infos reads tasks, and their places among those of their biz_id.
func (c *Client) infos(ctx context.Context, statement string, table int, args ...any) ([]Info, []ListPlace, error) {
	s, err := c.serverOf(ctx, table)
	if err != nil {
		return nil, nil, err
	}
	infos, places, err := c.scanInfos(ctx, s, table, statement, args)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", c.where(table), err)
	}
	for i, p := range places { // the rows are closed: a name may need a connection
		infos[i].BizType, infos[i].Table = c.types.name(ctx, p.Type), c.layout.Table(table)
	}
	return infos, places, nil
}

// scanInfos reads rows of infoSQL.
func (c *Client) scanInfos(ctx context.Context, s *server, table int, statement string, args []any) (infos []Info, places []ListPlace, err error) {
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
	found, err := conn.QueryContext(ctx, c.layout.render(statement, table), args...)
	if err != nil {
		return nil, nil, err
	}
	defer found.Close()
	for found.Next() {
		info, place, err := scanInfo(found.Scan)
		if err != nil {
			return nil, nil, err
		}
		infos, places = append(infos, info), append(places, place)
	}
	return infos, places, found.Err()
}

// scanInfo reads a row of infoSQL.
func scanInfo(scan func(...any) error) (i Info, p ListPlace, err error) {
	var headers []byte
	var action, due, created, modified string
	err = scan(&i.JobID, &i.BizID, &p.Type, &i.Status, &action, &due, &i.Attempts, &i.Crashes,
		&i.Version, &i.ClaimedBy, &p.DedupKey, &i.LastError, &i.Payload, &headers, &i.BizKey, &created, &modified)
	if err != nil {
		return i, p, err
	}
	p.JobID, i.DedupKey = i.JobID, string(p.DedupKey)
	marked, version := payloadmark.Take(string(headers))
	i.Headers, i.PayloadVersion = Headers(marked), version
	if key, ok := runkey.Parse(i.DedupKey); ok {
		i.FireTime = key.Nominal()
	}
	return i, p, errors.Join(
		setTime(&i.ActionTime, action), setTime(&i.DueTime, due),
		setTime(&i.Created, created), setTime(&i.Modified, modified))
}

func setTime(to *time.Time, text string) (err error) {
	*to, err = time.Parse(timeForm, text)
	return err
}
