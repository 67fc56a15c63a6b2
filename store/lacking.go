package store

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
)

// having reads which biz_ids of one table have a task of a biz type, of any
// status, from uk_biz alone.
var having = prepare(`
(SELECT /* tocsin having */ DISTINCT
    biz_id
FROM {table} FORCE INDEX (uk_biz)
WHERE biz_id IN ({biz_ids})
  AND biz_type = {type})`)

// Lacking gives those of the biz_ids, all of one server's tables, that have no
// task of the biz type, whatever its status, in no order. Of tables that cannot
// be read it says nothing; they are named in failed. The error is that of the
// server as a whole.
func (s *Store) Lacking(ctx context.Context, server int, typeCode uint64, bizIDs []uint64) (lacking []uint64, failed map[int]error, err error) {
	sv := s.servers[server]
	failed = make(map[int]error)
	for chunk := range slices.Chunk(bizIDs, maxIDs) {
		parts := s.byBizID(chunk)
		for group := range slices.Chunk(parts, maxTables) {
			err := apart(group, func(parts []bizIDsOf) error {
				found, err := s.lackingGroup(ctx, sv, typeCode, parts)
				lacking = append(lacking, found...)
				return err
			}, func(part bizIDsOf, err error) {
				failed[part.table] = s.wrap(err, "look for tasks in", sv, part.table)
			})
			if err != nil {
				return lacking, failed, s.wrap(err, "look for tasks", sv)
			}
		}
	}
	return lacking, failed, nil
}

// bizIDsOf are biz_ids of one table.
type bizIDsOf struct {
	table  int
	bizIDs []uint64
}

func (s *Store) byBizID(bizIDs []uint64) (parts []bizIDsOf) {
	index := make(map[int]int)
	for _, bizID := range bizIDs {
		table := s.layout.TableOf(bizID)
		i, known := index[table]
		if !known {
			i = len(parts)
			index[table] = i
			parts = append(parts, bizIDsOf{table: table})
		}
		parts[i].bizIDs = append(parts[i].bizIDs, bizID)
	}
	return parts
}

// lackingGroup answers for all the tables, or gives an error.
func (s *Store) lackingGroup(ctx context.Context, sv *server, typeCode uint64, parts []bizIDsOf) ([]uint64, error) {
	var text []byte
	var lacking []uint64
	for i, part := range parts {
		if i > 0 {
			text = append(text, unionAll...)
		}
		text = having.render(text, func(b []byte, slot string) []byte {
			switch slot {
			case "table":
				return append(b, s.names[part.table]...)
			case "type":
				return strconv.AppendUint(b, typeCode, 10)
			}
			return appendList(b, part.bizIDs)
		})
		lacking = append(lacking, part.bizIDs...)
	}
	has := make(map[uint64]bool)
	tables := make([]int, len(parts))
	for i, part := range parts {
		tables[i] = part.table
	}
	err := s.readTables(ctx, sv, tables, having.name, text, func(_ int, rows *sql.Rows) error {
		var bizID uint64
		err := rows.Scan(&bizID)
		has[bizID] = true
		return err
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(lacking, func(bizID uint64) bool { return has[bizID] }), nil
}
