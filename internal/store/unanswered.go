package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Connection is a connection to a server.
type Connection struct {
	ID   uint64 // by the server
	Term int64  // see Store.Term
}

const noConnection = 1094 // KILL's error: there is none of this id

// EndConnection asks a server to end a connection of this process, and reports whether it is gone: what was sent over it has no effect any more.
// After a move to another address it is gone, as far as the server in use is concerned. A user needs no privilege to end its own connections.
// A server that was started anew counts from 1: it may then end another connection of the same user, whose statement is repeated.
func (s *Store) EndConnection(ctx context.Context, server int, c Connection) (gone bool, err error) {
	sv, start := s.servers[server], time.Now()
	conn, err := sv.DB.Conn(ctx)
	if err == nil {
		defer func() { _ = conn.Close() }()
		if sv.Term() != c.Term {
			return true, nil
		}
		_, err = conn.ExecContext(ctx, "KILL /* tocsin kill */ "+strconv.FormatUint(c.ID, 10))
		if mysql.Number(err) == noConnection {
			gone, err = true, nil
		}
	}
	s.metrics.observe("kill", start, 0, err)
	return gone, s.wrap(err, "end a connection to", sv)
}

// connectionOf returns the id of a connection that conn has returned.
func connectionOf(ctx context.Context, conn *sql.Conn) uint64 {
	seen, _ := mysql.LookOnce(ctx, conn, math.MaxInt64, func(context.Context) (sighted, error) { return sighted{}, nil })
	return seen.connection
}

// Unanswered is the error of a claim that was sent and got no answer, or no whole one: its rows may be claimed, now or in a
// moment. Whoever claimed them has to release them (see ReleaseDoubtful), again and again until EndConnection says that the connection is gone, and once more.
type Unanswered struct {
	Connection
	IDs []tocsin.JobID
	Err error
}

// Error returns how many rows are concerned, and why.
func (u *Unanswered) Error() string {
	return fmt.Sprintf("claim of %d rows got no answer: %v", len(u.IDs), u.Err)
}

// Unwrap returns the cause.
func (u *Unanswered) Unwrap() error { return u.Err }

// releaseDoubtful gives rows of one table back that a claim without an answer has got. Primary key. Its argument is the claimer.
var releaseDoubtful = prepare(`
UPDATE /* tocsin release */ {table} FORCE INDEX (PRIMARY)
SET status = 0,
    claimed_by = '',
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND status = 1
  AND claimed_by = ?;`)

// ReleaseDoubtful gives rows back that claims without an answer have got, by their claimers, rings for them, and returns how many these were. A
// transaction that is still under way may claim some of them later. Tables that can't be written, or have rows that another transaction holds, are
// named in the error; all other rows are given back.
func (s *Store) ReleaseDoubtful(ctx context.Context, server int, by map[tocsin.JobID]string) (released int, err error) {
	sv := s.servers[server]
	groups := make(map[string][]tocsin.JobID)
	for id, claimer := range by {
		groups[claimer] = append(groups[claimer], id)
	}
	var errs []error
	for claimer, ids := range groups {
		for chunk := range slices.Chunk(sortIDs(ids), maxIDs) {
			before := released
			err := s.around(ctx, server, chunk, func(parts []idsOf) error {
				var text []byte
				var args []any
				for _, part := range parts {
					text, args = releaseDoubtful.render(text, s.ofTable(part.table, slots{"ids": part.ids})), append(args, claimer)
				}
				var counts []int64
				err := s.transact(ctx, sv, tablesOf(parts), func(conn *sql.Conn) (err error) {
					counts, err = s.write(ctx, conn, releaseDoubtful.name, text, args...)
					return err
				})
				if err == nil {
					released += int(sum(counts))
				}
				return err
			}, func(table int, err error) { errs = append(errs, s.wrap(err, "release rows of", sv, table)) })
			if err == nil && released > before {
				err = s.Ring(ctx, server, chunk)
			}
			if err != nil {
				return released, s.wrap(err, "release rows", sv)
			}
		}
	}
	return released, Join(errs...)
}
