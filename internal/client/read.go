package client

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
)

// Read reads rows of a table, or of its database, and has each scanned.
func (c *Client) Read(ctx context.Context, table int, statement string, args []any, each func(scan func(...any) error) error) error {
	s, err := c.serverOf(ctx, table)
	if err != nil {
		return err
	}
	if err := c.readFrom(ctx, s, table, statement, args, each); err != nil {
		return fmt.Errorf("read %s: %w", c.Where(table), err)
	}
	return nil
}

func (c *Client) readFrom(ctx context.Context, s *server, table int, statement string, args []any, each func(scan func(...any) error) error) error {
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	f, err := s.behind(ctx, conn)
	if err == nil {
		err = f.unreadable(c.layout.DatabaseOf(table))
	}
	if err != nil {
		return err
	}
	found, err := conn.QueryContext(ctx, c.layout.Render(statement, table), args...)
	return scanEach(found, err, each)
}

// scanEach calls each for every row. It returns err if the query failed.
func scanEach(found *sql.Rows, err error, each func(scan func(...any) error) error) error {
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		if err := each(found.Scan); err != nil {
			return err
		}
	}
	return found.Err()
}

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
func (s standing) has(r *Row) bool { return slices.ContainsFunc(s, r.made) }

// holder gives the task that holds r's dedup_key, or nil.
func (s standing) holder(r *Row) *stored {
	if i := slices.IndexFunc(s, r.sameKey); i >= 0 {
		return &s[i]
	}
	return nil
}

// readBack reads the tasks that have the rows' ids or dedup_keys. All rows are
// of one table. It runs on our own session, so it sees what has been committed.
func (c *Client) readBack(ctx context.Context, conn *sql.Conn, rows []*Row) (standing, error) {
	all, err := c.readBackEach(ctx, conn, [][]*Row{rows})
	return all[0], err
}

// readBackEach is readBack for groups of rows, each of one table, in one round trip.
func (c *Client) readBackEach(ctx context.Context, conn *sql.Conn, groups [][]*Row) ([]standing, error) {
	var text []byte
	var args []any
	for i, rows := range groups {
		if i > 0 {
			text = append(text, ";\n"...)
		}
		query, its := readBackQuery(rows)
		text, args = append(text, c.layout.Render(query, rows[0].table)...), append(args, its...)
	}
	all := make([]standing, len(groups))
	found, err := conn.QueryContext(ctx, string(text), args...)
	if err != nil {
		return all, err
	}
	defer found.Close()
	for set := 0; ; set++ {
		for found.Next() {
			var s stored
			if err := found.Scan(&s.id, &s.bizID, &s.bizType, &s.status, &s.dedup, &s.payload, &s.headers, &s.bizKey); err != nil {
				return all, err
			}
			all[set] = append(all[set], s)
		}
		if !found.NextResultSet() {
			return all, found.Err()
		}
	}
}

func readBackQuery(rows []*Row) (query string, args []any) {
	ids, keys := []byte(readBackSQL), []byte(readBackKeySQL)
	for i, r := range rows {
		if i > 0 {
			ids = append(ids, ", "...)
		}
		ids = strconv.AppendUint(ids, r.id, 10)
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
