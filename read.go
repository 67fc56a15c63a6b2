package tocsin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
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

// listSQL reads tasks of a biz_id in the order of uk_biz, and no further. Parameters: biz_id; the span's.
func listSQL(s span, limit int, bare bool) string {
	columns := infoSQL
	if bare {
		columns = bareSQL
	}
	return columns + ` FORCE INDEX (uk_biz)
WHERE biz_id = ?` + s.condition + `
LIMIT ` + strconv.Itoa(limit)
}

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

// MaxListed is the largest Limit of ListPage.
const MaxListed = 1000

const (
	listedAtOnce = 50      // tasks that one statement reads
	listedBytes  = 1 << 20 // of texts, after which a page ends
)

// ListQuery names tasks that are about a biz_id, or a business key.
type ListQuery struct {
	BizID   uint64            // if BizKey is empty
	BizKey  string            // see NewKey
	BizType string            // of this biz type only; "": of all
	Sees    func(string) bool // the biz types that may be listed, by name; nil: all, also those without a name
	After   *ListPlace        // where a former page ended; nil: from the first task on
	Limit   int               // tasks to read at most, 1 to MaxListed

	From, To  time.Time // of their action times, both inclusive; zero: any. Tasks outside are read too, and left out
	NoPayload bool      // read no payloads and headers: they are empty, and so is PayloadVersion
}

// ListPlace is a task's place in the order of ListPage.
type ListPlace struct {
	Type     uint64 // number of the biz type
	DedupKey []byte // nil: none
	JobID    JobID
}

// ListPage reads some tasks of a biz_id or key, of any status, and where the next page begins; nil: there is no more. It reads no
// further than the page, by the index: tasks come in the order of the numbers of their biz types, those without a dedup_key
// first, oldest first, the others in the order of their dedup_keys. A page ends early after 1 MiB of payloads. It may be empty
// though more follow.
func (c *Client) ListPage(ctx context.Context, q ListQuery) (infos []Info, next *ListPlace, err error) {
	defer c.observe("list", c.begin(), &err)
	if err := client.NoContext(ctx); err != nil {
		return nil, nil, err
	}
	if q.BizKey != "" {
		if err := checkKey(q.BizKey); err != nil {
			return nil, nil, err
		}
		q.BizID = KeyID(q.BizKey)
	}
	switch {
	case q.Limit < 1 || q.Limit > MaxListed:
		return nil, nil, client.Refuse(ErrInvalid, "limit %d: use 1 to %d", q.Limit, MaxListed)
	}
	if err := client.CheckSpan("from", q.From, "to", q.To); err != nil {
		return nil, nil, err
	}
	types, err := c.listedTypes(ctx, q)
	if err != nil || types != nil && len(types) == 0 {
		return nil, nil, err
	}
	infos, next, err = c.listFrom(ctx, q, types)
	return slices.DeleteFunc(infos, func(i Info) bool { // no index has keys, and that of biz_ids no times
		return i.BizKey != q.BizKey || i.ActionTime.Before(q.From) || !q.To.IsZero() && i.ActionTime.After(q.To)
	}), next, err
}

// listFrom reads a page of tasks, also those of another key.
func (c *Client) listFrom(ctx context.Context, q ListQuery, types []uint64) (infos []Info, next *ListPlace, err error) {
	table, bytes := c.layout.TableOf(q.BizID), 0
	next = q.After
	spans := next.spans(types)
	for len(spans) > 0 {
		want := min(listedAtOnce, q.Limit-len(infos))
		read, places, err := c.infos(ctx, listSQL(spans[0], want, q.NoPayload), table, append([]any{q.BizID}, spans[0].args...)...)
		if err != nil {
			return nil, nil, err
		}
		for _, info := range read {
			bytes += len(info.Payload) + len(info.Headers) + len(info.LastError)
		}
		infos = append(infos, read...)
		if len(read) < want {
			spans = spans[1:]
			continue
		}
		if next = &places[want-1]; len(infos) == q.Limit || bytes >= listedBytes {
			return infos, next, nil
		}
		spans = next.spans(types)
	}
	return infos, nil, nil
}

// listedTypes returns the numbers of the biz types of a query, ascending; nil: all. The names are read anew, as a new biz type may
// have tasks.
func (c *Client) listedTypes(ctx context.Context, q ListQuery) ([]uint64, error) {
	if q.Sees == nil && q.BizType == "" {
		return nil, nil
	}
	if err := c.client.Types.Refresh(ctx); err != nil {
		return nil, err
	}
	types := []uint64{}
	for name, number := range c.client.Types.Numbers() {
		if (q.BizType == "" || q.BizType == name) && (q.Sees == nil || q.Sees(name)) {
			types = append(types, number)
		}
	}
	slices.Sort(types)
	return types, nil
}

// span is a condition that one range of uk_biz fulfils, and its parameters.
type span struct {
	condition string // with the order, except of tasks without a dedup_key: InnoDB has those by job_id, and MariaDB would sort them all
	args      []any
}

const ordered = "\nORDER BY biz_type, dedup_key"

// spans returns what follows a place, in order: further tasks of its biz type without a dedup_key, with one, and tasks of biz
// types with higher numbers.
func (p *ListPlace) spans(types []uint64) (all []span) {
	if p == nil {
		return []span{ofTypes(types)}
	}
	if p.DedupKey == nil {
		all = append(all, span{"\n    AND biz_type = ?\n    AND dedup_key IS NULL\n    AND job_id > ?", []any{p.Type, uint64(p.JobID)}},
			span{"\n    AND biz_type = ?\n    AND dedup_key IS NOT NULL" + ordered, []any{p.Type}})
	} else {
		all = append(all, span{"\n    AND biz_type = ?\n    AND dedup_key > CAST(? AS BINARY)" + ordered, []any{p.Type, p.DedupKey}})
	}
	if types == nil {
		return append(all, span{"\n    AND biz_type > ?" + ordered, []any{p.Type}})
	}
	at, here := slices.BinarySearch(types, p.Type)
	if !here { // the biz type may not be listed, or no more
		all = nil
	} else {
		at++
	}
	if at < len(types) {
		all = append(all, ofTypes(types[at:]))
	}
	return all
}

// ofTypes is the span of biz types; nil: all.
func ofTypes(types []uint64) span {
	if types == nil {
		return span{ordered, nil}
	}
	args := make([]any, len(types))
	for i, number := range types {
		args[i] = number
	}
	return span{"\n    AND biz_type IN (" + strings.TrimSuffix(strings.Repeat("?, ", len(types)), ", ") + ")" + ordered, args}
}

// List reads all tasks of a biz_id, of every biz type and status, oldest first. Tasks of
// a business key are listed by ListKey alone. It reads page by page, and holds all: see ListPage for many.
func (c *Client) List(ctx context.Context, bizID uint64) ([]Info, error) {
	return c.listAll(ctx, ListQuery{BizID: bizID, Limit: MaxListed})
}

// List is Client.List for ids of other integer types. A negative id is ErrInvalid.
func List[N ID](ctx context.Context, c *Client, bizID N) ([]Info, error) {
	if bizID < 0 {
		return nil, negative(bizID)
	}
	return c.List(ctx, uint64(bizID))
}

// ListKey is List for a business key.
func (c *Client) ListKey(ctx context.Context, key string) ([]Info, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return c.listAll(ctx, ListQuery{BizKey: key, Limit: MaxListed})
}

func (c *Client) listAll(ctx context.Context, q ListQuery) (all []Info, err error) {
	for {
		page, next, err := c.ListPage(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if q.After = next; next == nil {
			slices.SortFunc(all, func(a, b Info) int { return cmp.Compare(a.JobID, b.JobID) })
			return all, nil
		}
	}
}
