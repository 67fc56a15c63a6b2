package tocsin

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
)

// readBackSQL and readBackKeySQL read what stands in the way of rows of one
// table; a list of ids, or conditions on (biz_id, biz_type, dedup_key) joined by
// OR, follows. Primary key and uk_biz.
const (
	readBackSQL = `SELECT /* tocsin read back */
    job_id,
    biz_id,
    biz_type,
    status,
    dedup_key,
    attribute,
    headers,
    biz_key
FROM {task} FORCE INDEX (PRIMARY)
WHERE job_id IN (`

	readBackKeySQL = `
UNION
SELECT
    job_id,
    biz_id,
    biz_type,
    status,
    dedup_key,
    attribute,
    headers,
    biz_key
FROM {task} FORCE INDEX (uk_biz)
WHERE `

	keySQL = `biz_id = ? AND biz_type = ? AND dedup_key = ?`
)

// standing is what was read back.
type standing []stored

// has reports whether r itself is there.
func (s standing) has(r *row) bool {
	for i := range s {
		if r.made(&s[i]) {
			return true
		}
	}
	return false
}

// hasID reports whether any task has an id.
func (s standing) hasID(id JobID) bool {
	return slices.ContainsFunc(s, func(t stored) bool { return t.id == id })
}

// holder gives the task that holds r's dedup_key, or nil.
func (s standing) holder(r *row) *stored {
	for i := range s {
		if r.sameKey(&s[i]) {
			return &s[i]
		}
	}
	return nil
}

// readBack reads the tasks that have the rows' ids or dedup_keys. All rows are
// of one table. It runs outside transactions on our own session, so it sees
// what has been committed.
func (c *Client) readBack(ctx context.Context, conn *sql.Conn, rows []*row) (standing, error) {
	query, args := readBackQuery(rows)
	found, err := conn.QueryContext(ctx, c.layout.render(query, rows[0].table), args...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var all standing
	for found.Next() {
		var s stored
		if err := found.Scan(&s.id, &s.bizID, &s.bizType, &s.status, &s.dedup, &s.payload, &s.headers, &s.bizKey); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, found.Err()
}

func readBackQuery(rows []*row) (query string, args []any) {
	ids, keys := []byte(readBackSQL), []byte(readBackKeySQL)
	for i, r := range rows {
		if i > 0 {
			ids = append(ids, ", "...)
		}
		ids = strconv.AppendUint(ids, uint64(r.id), 10)
		if r.dedup == nil {
			continue
		}
		if len(args) > 0 {
			keys = append(keys, "\n    OR "...)
		}
		keys = append(keys, keySQL...)
		args = append(args, r.bizID, r.bizType, r.dedup)
	}
	ids = append(ids, ')')
	if len(args) > 0 {
		ids = append(ids, keys...)
	}
	return string(ids), args
}
