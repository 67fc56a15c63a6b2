package tocsin

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/client"
)

// listSQL reads tasks of a biz_id in the order of uk_biz, and no further. Parameters: biz_id; the span's.
func listSQL(s span, limit int, bare bool) string {
	return columnsSQL(bare) + ` FORCE INDEX (uk_biz)
WHERE biz_id = ?` + s.condition + `
LIMIT ` + strconv.Itoa(limit)
}

// keylessSQL and nearSQL read ids of tasks of a biz_id and biz type without a dedup_key, behind an id, in order. Neither server
// seeks an id within uk_biz, as a unique index ends with its own columns: keylessSQL walks over all entries before the id, which no
// counter of a session shows. nearSQL reads the next rows of the table instead, of any biz_id. The walk is long only
// if the biz_id has many tasks, and then most of the next rows are its own. Parameters of keylessSQL: biz_id, biz type, job_id,
// limit; of nearSQL: job_id, how many rows it looks at, biz_id, biz type, limit.
const (
	keylessSQL = `SELECT /* tocsin list keyless */
    job_id
FROM {task} FORCE INDEX (uk_biz)
WHERE biz_id = ?
    AND biz_type = ?
    AND dedup_key IS NULL
    AND job_id > ?
LIMIT ?`

	nearSQL = `SELECT /* tocsin list near */
    job_id
FROM (
    SELECT job_id, biz_id, biz_type, dedup_key IS NULL AS keyless
    FROM {task} FORCE INDEX (PRIMARY)
    WHERE job_id > ?
    ORDER BY job_id
    LIMIT ?
) AS near
WHERE biz_id = ?
    AND biz_type = ?
    AND keyless
ORDER BY job_id
LIMIT ?`
)

// columnsSQL is infoSQL, or bareSQL.
func columnsSQL(bare bool) string {
	if bare {
		return bareSQL
	}
	return infoSQL
}

// idsSQL reads whole tasks by their ids.
func idsSQL(ids []JobID, bare bool) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return columnsSQL(bare) + " FORCE INDEX (PRIMARY)\nWHERE job_id IN (" + strings.Join(texts, ", ") + ")\nORDER BY job_id"
}

// MaxListed is the largest Limit of ListPage.
const MaxListed = 1000

const (
	listedAtOnce = 50      // tasks that one statement reads
	listedBytes  = 1 << 20 // of texts, after which a page ends
	nearRows     = 1000    // rows of any biz_id that are looked at before a walk along the index
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
	if q.Limit < 1 || q.Limit > MaxListed {
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
	l := &listing{client: c, query: q, table: c.layout.TableOf(q.BizID), next: q.After}
	spans := l.next.spans(types)
	for len(spans) > 0 {
		read, more := l.ordered, false
		if spans[0].keyless {
			read = l.keyless
		}
		if more, err = read(ctx, spans[0]); err != nil {
			return nil, nil, err
		}
		switch {
		case !more:
			spans = spans[1:]
		case l.left() <= 0 || l.bytes >= listedBytes:
			return l.infos, l.next, nil
		default:
			spans = l.next.spans(types)
		}
	}
	return l.infos, nil, nil
}

// listing is a page of a list that is being read.
type listing struct {
	client *Client
	query  ListQuery
	table  int
	infos  []Info
	next   *ListPlace // where it has come to
	bytes  int        // of texts
}

func (l *listing) left() int { return l.query.Limit - len(l.infos) }

// read reads tasks by one statement, and returns their places.
func (l *listing) read(ctx context.Context, statement string, args ...any) ([]ListPlace, error) {
	read, places, err := l.client.infos(ctx, statement, l.table, args...)
	for _, info := range read {
		l.bytes += len(info.Payload) + len(info.Headers) + len(info.LastError)
	}
	l.infos = append(l.infos, read...)
	return places, err
}

// ordered reads the next tasks of a span by the index. more says that some may follow.
func (l *listing) ordered(ctx context.Context, s span) (more bool, err error) {
	want := min(listedAtOnce, l.left())
	places, err := l.read(ctx, listSQL(s, want, l.query.NoPayload), append([]any{l.query.BizID}, s.args...)...)
	if len(places) < want {
		return false, err
	}
	l.next = &places[want-1]
	return true, err
}

// keyless reads the next tasks without a dedup_key. more says that some may follow.
func (l *listing) keyless(ctx context.Context, s span) (more bool, err error) {
	want, place := l.left(), *l.next
	found, more, err := l.keylessIDs(ctx, place, want)
	for chunk := range slices.Chunk(found, listedAtOnce) {
		if err == nil {
			_, err = l.read(ctx, idsSQL(chunk, l.query.NoPayload))
		}
		if err != nil {
			return false, err
		}
		if l.next = (&ListPlace{Type: place.Type, JobID: chunk[len(chunk)-1]}); l.bytes >= listedBytes {
			return true, nil
		}
	}
	return more, err
}

// keylessIDs reads ids of tasks without a dedup_key behind a place, at most want of them. A walk from the first entry on is short
// unless a former page ended among them.
func (l *listing) keylessIDs(ctx context.Context, p ListPlace, want int) (found []JobID, more bool, err error) {
	read := func(statement string, args ...any) error {
		found = nil
		return l.client.client.Read(ctx, l.table, statement, args, func(scan func(...any) error) error {
			var id uint64
			err := scan(&id)
			found = append(found, JobID(id))
			return err
		})
	}
	if from := l.query.After; from != nil && from.DedupKey == nil && from.Type == p.Type {
		err = read(nearSQL, uint64(p.JobID), nearRows, l.query.BizID, p.Type, want)
		if err != nil || len(found) >= min(want, listedAtOnce) {
			return found, true, err
		}
	}
	err = read(keylessSQL, l.query.BizID, p.Type, uint64(p.JobID), want)
	return found, len(found) == want, err
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
	condition string // with the order
	args      []any
	keyless   bool // instead: tasks without a dedup_key, of the place's biz type, behind its job_id
}

const ordered = "\nORDER BY biz_type, dedup_key"

// spans returns what follows a place, in order: further tasks of its biz type without a dedup_key, with one, and tasks of biz
// types with higher numbers.
func (p *ListPlace) spans(types []uint64) (all []span) {
	if p == nil {
		return []span{ofTypes(types)}
	}
	if p.DedupKey == nil {
		all = append(all, span{keyless: true}, span{condition: "\n    AND biz_type = ?\n    AND dedup_key IS NOT NULL" + ordered, args: []any{p.Type}})
	} else {
		all = append(all, span{condition: "\n    AND biz_type = ?\n    AND dedup_key > CAST(? AS BINARY)" + ordered, args: []any{p.Type, p.DedupKey}})
	}
	if types == nil {
		return append(all, span{condition: "\n    AND biz_type > ?" + ordered, args: []any{p.Type}})
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
		return span{condition: ordered}
	}
	args := make([]any, len(types))
	for i, number := range types {
		args[i] = number
	}
	return span{condition: "\n    AND biz_type IN (" + strings.TrimSuffix(strings.Repeat("?, ", len(types)), ", ") + ")" + ordered, args: args}
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
