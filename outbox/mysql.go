package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// onMySQL is the Server of an outbox on MySQL or MariaDB.
type onMySQL struct {
	table  string // "shop.tocsin_outbox"
	server *mysql.Server
}

func openMySQL(cfg Config) (Server, error) {
	server, err := mysql.Open(mysql.Spec{
		DSN: cfg.DSN, TLS: cfg.TLS, MaxConns: 3, IdleTime: WaitTimeout / 2, WaitTimeout: WaitTimeout,
		Marker: mysql.Marker{Key: "outbox " + cfg.Table, Read: func(ctx context.Context, conn *sql.Conn) (string, error) {
			return readIdentity(ctx, conn, cfg.Table)
		}},
	})
	if err != nil {
		return nil, err
	}
	return &onMySQL{table: cfg.Table, server: server}, nil
}

// Close closes the pool.
func (o *onMySQL) Close() error { return o.server.DB.Close() }

// String names the outbox in errors.
func (o *onMySQL) String() string { return "outbox " + o.table + " on " + o.server.Name }

// render fills in the table's name and a condition.
func (o *onMySQL) render(statement, ranges string) string {
	return strings.NewReplacer("{outbox}", Quoted(o.table), "{ranges}", ranges).Replace(statement)
}

// wrap says what was tried.
func (o *onMySQL) wrap(tried string, err error) error {
	if err == nil {
		return nil
	}
	if mysql.ClassOf(err) == mysql.Missing {
		return fmt.Errorf("%s %s: %w: run `tocsin outbox apply`", tried, o, err)
	}
	return fmt.Errorf("%s %s: %w", tried, o, err)
}

// List returns rows with ids above after, at most limit: all, or those that were set aside.
func (o *onMySQL) List(ctx context.Context, after uint64, limit int, stuck bool) ([]Row, error) {
	if after == math.MaxUint64 {
		return nil, nil
	}
	where := ranges([]Range{{after + 1, math.MaxUint64}})
	if stuck {
		where += stuckSQL
	}
	rows, err := o.read(ctx, o.server.DB, where, limit, nil)
	return rows, o.wrap("read", err)
}

// Retry lets relays move rows that were set aside: those with the ids, or all. It returns their number.
func (o *onMySQL) Retry(ctx context.Context, ids []uint64, all bool) (int, error) {
	return o.change(ctx, "retry rows of", retrySQL, ids, all)
}

// Drop deletes rows that were set aside: those with the ids, or all. It returns their number.
func (o *onMySQL) Drop(ctx context.Context, ids []uint64, all bool) (int, error) {
	return o.change(ctx, "drop rows of", dropSQL, ids, all)
}

// change changes rows by their ids: over a range it would wait for the rows of open transactions.
func (o *onMySQL) change(ctx context.Context, tried, statement string, ids []uint64, all bool) (n int, err error) {
	for first := uint64(0); ; {
		var rows []Row
		if all {
			if rows, err = o.read(ctx, o.server.DB, ranges([]Range{{first, math.MaxUint64}})+stuckSQL, rangesAtOnce, nil); err != nil {
				return n, o.wrap("read", err)
			}
			ids = nil
			for _, row := range rows {
				ids = append(ids, row.ID)
			}
		}
		var some int64
		err = mysql.Retry(ctx, func() error {
			res, err := o.server.DB.ExecContext(ctx, o.render(statement, list(ids)))
			if err == nil {
				some, err = res.RowsAffected()
			}
			return err
		})
		n += int(some)
		if err != nil || !Full(rows, rangesAtOnce) {
			return n, o.wrap(tried, err)
		}
		first = rows[len(rows)-1].ID + 1
	}
}

// identity reads the identity.
func (o *onMySQL) identity(ctx context.Context, conn *sql.Conn) (string, error) {
	identity, err := readIdentity(ctx, conn, o.table)
	if err == nil && identity == "" {
		return "", fmt.Errorf("%s: %w", o, ErrNoIdentity)
	}
	return identity, o.wrap("read the identity of", err)
}

// readIdentity returns the identity of an outbox; "": there is none.
func readIdentity(ctx context.Context, conn *sql.Conn, of string) (string, error) {
	database, table := Split(of)
	var comment string
	err := conn.QueryRowContext(ctx, identitySQL, database, table).Scan(&comment)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", err
	}
	return Identity(comment), nil
}

// Range is a range of ids; both ends belong to it.
type Range struct{ First, Last uint64 }

// ranges is the condition for ids in any of the ranges, which must not be empty.
func ranges(all []Range) string {
	var b strings.Builder
	b.WriteByte('(')
	for i, r := range all {
		if i > 0 {
			b.WriteString(" OR ")
		}
		switch {
		case r.First == r.Last:
			fmt.Fprintf(&b, "id = %d", r.First)
		case r.Last == 1<<64-1:
			fmt.Fprintf(&b, "id >= %d", r.First)
		default:
			fmt.Fprintf(&b, "id BETWEEN %d AND %d", r.First, r.Last)
		}
	}
	return b.String() + ")"
}

// list is the condition for the ids of a list, which may be empty.
func list(ids []uint64) string {
	var b strings.Builder
	b.WriteString("id IN (NULL")
	for _, id := range ids {
		b.WriteString("," + strconv.FormatUint(id, 10))
	}
	return b.String() + ")"
}

// queryer is a pool or a connection.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// read reads rows in the order of their ids, up to PageBytes, and leaves out the ids in skip.
func (o *onMySQL) read(ctx context.Context, over queryer, where string, limit int, skip func(id uint64) bool) ([]Row, error) {
	begin := time.Now() // before the read: a row is at least as old
	found, err := over.QueryContext(ctx, o.render(readSQL, where), limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }()
	var rows []Row
	var answered time.Time
	for bytes := 0; bytes < PageBytes && found.Next(); {
		if answered.IsZero() {
			answered = time.Now()
		}
		row, err := scan(found, begin, answered)
		if err != nil {
			return nil, err
		}
		if skip == nil || !skip(row.ID) {
			rows = append(rows, row)
			bytes += row.Size()
		}
	}
	return rows, found.Err()
}

func scan(found *sql.Rows, read, answered time.Time) (Row, error) {
	r := Row{Read: read, Answered: answered}
	var due, created sql.NullString
	var delay sql.Null[uint64]
	var age int64
	err := found.Scan(&r.ID, &r.Op, &r.BizType, &r.BizID, &due, &delay, &r.Dedup, &r.Headers, &r.BizKey, &r.Payload,
		&created, &age, &r.Attempts, &r.LastError)
	if err != nil {
		return r, err
	}
	r.Place()
	r.Age = AgeOf(age)
	if delay.Valid {
		r.Delay = DelayOf(int64(min(delay.V, MaxDelay)))
	}
	if due.Valid {
		if r.Due, err = time.Parse(timeForm, due.String); err != nil { // 0000-00-00, say
			r.Due = time.Time{}
		}
	}
	r.Created, err = parse(created.String)
	return r, err
}

// timeForm is a time as text, with as many digits of the second as there are.
const timeForm = "2006-01-02 15:04:05.999999"
