package outbox

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// mysqlConn is the Conn of a session with MySQL or MariaDB.
type mysqlConn struct {
	outbox *onMySQL
	conn   *sql.Conn
	lock   string // of the one relay, by the identity
	own    string // of those that relay this very table
}

// Session connects and reads the outbox's identity. The caller closes the session.
func (o *onMySQL) Session(ctx context.Context) (*Session, error) {
	conn, err := o.server.DB.Conn(ctx)
	if err != nil {
		return nil, o.wrap("connect to", err)
	}
	identity, err := o.identity(ctx, conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &Session{Identity: identity, Conn: &mysqlConn{o, conn, LockName(identity), LockName(identity + " " + o.table)}}, nil
}

// Close ends the connection, and so gives the lock up.
func (s *mysqlConn) Close() {
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn }) // back in the pool it would keep the lock
	_ = s.conn.Close()
}

// Lead takes the lock of this table before that of the identity. A relay that gets the first lock but not the second has
// met the relay of another table with the same identity.
func (s *mysqlConn) Lead(ctx context.Context, wait time.Duration) (bool, error) {
	if own, err := s.take(ctx, s.own, wait); err != nil || !own {
		return false, err
	}
	leads, err := s.take(ctx, s.lock, wait)
	if err == nil && !leads {
		return false, s.copied(ctx)
	}
	return leads, err
}

// take waits for a lock. It is the server's own, and free as soon as the server has ended the session that had it.
func (s *mysqlConn) take(ctx context.Context, lock string, wait time.Duration) (bool, error) {
	var got sql.NullInt64
	err := s.conn.QueryRowContext(ctx, leadSQL, lock, int(wait.Seconds())).Scan(&got)
	return got.Int64 == 1, s.outbox.wrap("take the lock of", err)
}

// copied says who has the lock of the identity.
func (s *mysqlConn) copied(ctx context.Context) error {
	var holder sql.NullInt64
	if err := s.conn.QueryRowContext(ctx, holderSQL, s.lock).Scan(&holder); err != nil || !holder.Valid {
		return s.outbox.wrap("look who has the lock of", err) // nil: it is free by now
	}
	return fmt.Errorf("%s: another table on this server has the same identity, and connection %d relays it: one is a copy of the other; empty the comment of the copy and run `tocsin outbox apply`",
		s.outbox, holder.Int64)
}

// LockName is the name of the lock of Lead on MySQL, by the outbox's identity: IS_USED_LOCK finds its holder.
func LockName(identity string) string {
	sum := sha256.Sum256([]byte(identity)) // a lock's name has 64 characters at most
	return "tocsin_outbox_" + hex.EncodeToString(sum[:16])
}

// rangesAtOnce bounds the ranges of one statement.
const rangesAtOnce = 500

// Read returns the first rows whose ids are in the ranges, as one snapshot. The ranges are in order. It examines at most
// limit rows, and leaves out the ids in skip; nil skips none.
func (s *mysqlConn) Read(ctx context.Context, in []Range, limit int, skip func(id uint64) bool) (rows []Row, err error) {
	if len(in) == 0 {
		return nil, nil
	}
	if len(in) <= rangesAtOnce {
		rows, err = s.outbox.read(ctx, s.conn, ranges(in), limit, skip)
		return rows, s.outbox.wrap("read", err)
	}
	if _, err := s.conn.ExecContext(ctx, snapshotSQL); err != nil {
		return nil, s.outbox.wrap("begin to read", err)
	}
	for part := range slices.Chunk(in, rangesAtOnce) {
		some, err := s.outbox.read(ctx, s.conn, ranges(part), limit-len(rows), skip)
		if err != nil {
			return nil, s.outbox.wrap("read", err)
		}
		if rows = append(rows, some...); Full(rows, limit) {
			break
		}
	}
	_, err = s.conn.ExecContext(ctx, "COMMIT")
	return rows, s.outbox.wrap("end to read", err)
}

// IdentityNow returns the identity that the outbox has now: its table may have been replaced.
func (s *mysqlConn) IdentityNow(ctx context.Context) (string, error) {
	return s.outbox.identity(ctx, s.conn)
}

// Delete deletes rows that were moved. Rows that got their ids later stay.
func (s *mysqlConn) Delete(ctx context.Context, keys []Key) error {
	pairs := make([]string, len(keys))
	for i, k := range keys {
		pairs[i] = fmt.Sprintf("(%d, '%s')", k.ID, micros(k.Created))
	}
	query := strings.ReplaceAll(s.outbox.render(deleteSQL, list(idsOf(keys))), "{pairs}", strings.Join(pairs, ", "))
	_, err := s.conn.ExecContext(ctx, query)
	return s.outbox.wrap("delete from", err)
}

// SetAside notes why a row can't be moved. Operators see it, and relays leave the row.
func (s *mysqlConn) SetAside(ctx context.Context, key Key, reason string) error {
	_, err := s.conn.ExecContext(ctx, s.outbox.render(asideSQL, ""), Reason(reason), key.ID, micros(key.Created))
	return s.outbox.wrap("set aside a row of", err)
}

// Next returns the next id that the outbox will give, as the server has it now.
func (s *mysqlConn) Next(ctx context.Context) (uint64, error) {
	if _, err := s.conn.ExecContext(ctx, freshSQL); err != nil {
		return 0, s.outbox.wrap("ask for the next id of", err)
	}
	database, table := Split(s.outbox.table)
	var next uint64
	err := s.conn.QueryRowContext(ctx, nextSQL, database, table).Scan(&next)
	return next, s.outbox.wrap("ask for the next id of", err)
}

// Present returns which of the rows are in the outbox.
func (s *mysqlConn) Present(ctx context.Context, keys []Key) (map[Key]bool, error) {
	found, err := s.conn.QueryContext(ctx, s.outbox.render(presentSQL, list(idsOf(keys))))
	if err != nil {
		return nil, s.outbox.wrap("look into", err)
	}
	defer func() { _ = found.Close() }()
	present := make(map[Key]bool)
	for found.Next() {
		var key Key
		var created string
		if err := found.Scan(&key.ID, &created); err != nil {
			return nil, err
		}
		if key.Created, err = parse(created); err != nil {
			return nil, err
		}
		present[key] = true
	}
	return present, s.outbox.wrap("look into", found.Err())
}

// Writers returns none: Settled asks for the locks on rows.
func (s *mysqlConn) Writers(context.Context) (Writers, error) { return nil, nil }

// Settled asks about many ranges at once. If a transaction is open in any of them, it asks about each range.
func (s *mysqlConn) Settled(ctx context.Context, in []Range, _ Writers) (settled []Range, err error) {
	for part := range slices.Chunk(in, rangesAtOnce) {
		all, err := s.settled(ctx, settledSQL, part)
		if err != nil {
			return nil, err
		}
		if all {
			settled = append(settled, part...)
			continue
		}
		for _, r := range part {
			one, err := s.settledOne(ctx, r)
			if err != nil {
				return nil, err
			}
			if one {
				settled = append(settled, r)
			}
		}
	}
	return settled, nil
}

// settledOne reports whether no row is in a range, neither committed nor of an open transaction. If open rows are on both sides
// of a range of several ids, it may not see that.
func (s *mysqlConn) settledOne(ctx context.Context, r Range) (bool, error) {
	if settled, err := s.settled(ctx, settledDownSQL, []Range{r}); err != nil || settled {
		return settled, err
	}
	return s.settled(ctx, settledSQL, []Range{r})
}

// settled reports whether a statement finds no row in any of the ranges, and none that is locked.
func (s *mysqlConn) settled(ctx context.Context, statement string, in []Range) (bool, error) {
	var id sql.Null[uint64]
	err := s.conn.QueryRowContext(ctx, s.outbox.render(statement, ranges(in))).Scan(&id)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && !id.Valid:
		return true, nil
	case err == nil, mysql.ClassOf(err) == mysql.Contended:
		return false, nil
	}
	return false, s.outbox.wrap("look for open transactions in", err)
}

func idsOf(keys []Key) []uint64 {
	ids := make([]uint64, len(keys))
	for i, k := range keys {
		ids[i] = k.ID
	}
	slices.Sort(ids)
	return ids
}

// zeroDate is what a session without strict mode has stored for an empty text or a 0. Its time.Time is zero.
const zeroDate = "0000-00-00 00:00:00.000000"

// micros is a time as text.
func micros(t time.Time) string {
	if t.IsZero() {
		return zeroDate
	}
	return t.UTC().Format("2006-01-02 15:04:05.000000")
}

// parse reads what micros writes, and times with fewer digits.
func parse(text string) (time.Time, error) {
	if strings.HasPrefix(text, "0000-00-00") {
		return time.Time{}, nil
	}
	return time.Parse(timeForm, text)
}
