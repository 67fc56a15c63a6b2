package store

import (
	"context"
	"database/sql"
	"slices"
	"strconv"

	"github.com/tocsinhq/tocsin"
)

// Prolonged is a claim that is to last longer.
type Prolonged struct {
	JobID   tocsin.JobID
	Version uint32 // as claimed
	By      string // the claimer
	Until   int64  // the new deadline by the server's clock, Unix ms
}

// prolong moves the deadline of a claim that stands. Primary key. Its argument is the claimer. Zero rows: the claim ran out, or the task
// was cancelled.
var prolong = prepare(`
UPDATE /* tocsin prolong */ {table} FORCE INDEX (PRIMARY)
SET action_time = {until},
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id = {job_id}
  AND version = {version}
  AND status = 1
  AND action_time < {until}
  AND claimed_by = ?;`)

// Prolong has claims of one server last longer. What is no longer claimed is left as it is: its outcome will say so.
func (s *Store) Prolong(ctx context.Context, server int, claims []Prolonged) error {
	claims = slices.Clone(claims)
	slices.SortFunc(claims, func(a, b Prolonged) int { return compareIDs(a.JobID, b.JobID) })
	var text []byte
	var args []any
	tables := make([]int, len(claims))
	for i, c := range claims {
		tables[i] = c.JobID.Table()
		args = append(args, c.By)
		text = prolong.render(text, func(b []byte, slot string) []byte {
			switch slot {
			case "table":
				return append(b, s.names[c.JobID.Table()]...)
			case "until":
				return appendTime(b, c.Until)
			case "version":
				return strconv.AppendUint(b, uint64(c.Version), 10)
			}
			return strconv.AppendUint(b, uint64(c.JobID), 10)
		})
	}
	sv := s.servers[server]
	err := s.transact(ctx, sv, tables, func(conn *sql.Conn) error {
		_, err := s.write(ctx, conn, prolong.name, text, args...)
		return err
	})
	if err != nil {
		return s.wrap(err, "prolong claims in", sv, tables...)
	}
	return nil
}
