package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

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
	where := ranges([]Range{{after + 1, 1<<64 - 1}})
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

func (o *onMySQL) change(ctx context.Context, tried, statement string, ids []uint64, all bool) (int, error) {
	where := list(ids)
	if all {
		where = ranges([]Range{{0, 1<<64 - 1}})
	}
	var n int64
	err := mysql.Retry(ctx, func() error {
		res, err := o.server.DB.ExecContext(ctx, o.render(statement, where))
		if err == nil {
			n, err = res.RowsAffected()
		}
		return err
	})
	return int(n), o.wrap(tried, err)
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
