package tocsin

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
)

// infoSQL reads whole tasks; a condition follows.
const infoSQL = `SELECT /* tocsin get */
    job_id,
    biz_id,
    biz_type,
    status,
    CAST(action_time AS CHAR),
    CAST(due_time AS CHAR),
    attempts,
    crashes,
    version,
    claimed_by,
    dedup_key,
    last_error,
    attribute,
    headers,
    biz_key,
    CAST(gmt_create AS CHAR),
    CAST(gmt_modified AS CHAR)
FROM {task}`

// bareSQL is infoSQL without the columns that may be long.
var bareSQL = strings.NewReplacer("attribute", "''", "headers", "NULL").Replace(infoSQL)

// getSQL reads a whole task. Parameter: job_id.
const getSQL = infoSQL + `
WHERE job_id = ?`

// Get reads one task; ErrNotFound where there is none, or no more.
func (c *Client) Get(ctx context.Context, id JobID) (info Info, err error) {
	defer c.observe("get", c.begin(), &err)
	if err := client.NoContext(ctx); err != nil {
		return Info{}, err
	}
	table, err := c.client.TableOf(uint64(id))
	if err != nil {
		return Info{}, err
	}
	found, _, err := c.infos(ctx, getSQL, table, uint64(id))
	if err != nil {
		return Info{}, err
	}
	if len(found) == 0 {
		return Info{}, client.Refuse(ErrNotFound, "no task %s in %s", id, c.client.Where(table))
	}
	return found[0], nil
}

// infos reads tasks, and their places among those of their biz_id.
func (c *Client) infos(ctx context.Context, statement string, table int, args ...any) (infos []Info, places []ListPlace, err error) {
	err = c.client.Read(ctx, table, statement, args, func(scan func(...any) error) error {
		info, place, err := scanInfo(scan)
		infos, places = append(infos, info), append(places, place)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for i, p := range places { // the rows are closed: a name may need a connection
		infos[i].BizType, infos[i].Table = c.client.Types.Name(ctx, p.Type), c.layout.Table(table)
	}
	return infos, places, nil
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
	marked, version := client.TakeVersion(string(headers))
	i.Headers, i.PayloadVersion = Headers(marked), version
	if key, ok := ids.ParseRunKey(i.DedupKey); ok {
		i.FireTime = key.Nominal()
	}
	return i, p, errors.Join(
		setTime(&i.ActionTime, action), setTime(&i.DueTime, due),
		setTime(&i.Created, created), setTime(&i.Modified, modified))
}

func setTime(to *time.Time, text string) (err error) {
	*to, err = time.Parse(client.TimeForm, text)
	return err
}
