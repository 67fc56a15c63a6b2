package outbox

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/internal/outboxrow"
)

// WaitTimeout is how long the server waits for a session of ours that sends nothing, before it ends the session.
const WaitTimeout = 10 * time.Second

// Config says where an outbox is.
type Config struct {
	Name  string      // in logs and metrics, as name.Check wants it; "": the table
	DSN   string      // of the business server, as in tocsin.Server; a database in it is ignored
	TLS   *tls.Config `json:"-"` // overrides the DSN; nil: the DSN decides
	Table string      // database.table
}

// WithDefaults fills in what is empty.
func (c Config) WithDefaults() Config {
	c.Name = cmp.Or(c.Name, c.Table)
	return c
}

// Validate returns the first mistake. It connects to nothing.
func (c Config) Validate() error {
	c = c.WithDefaults()
	if err := outboxrow.CheckTable(c.Table); err != nil {
		return err
	}
	if database, _ := outboxrow.Split(c.Table); database == "" {
		return fmt.Errorf("outbox table %q: name its database too, as shop.%s", c.Table, c.Table)
	}
	if err := name.CheckShown("outbox", c.Name); err != nil {
		return err
	}
	_, err := mysql.Check(c.DSN)
	return err
}

// Outbox is one outbox. Safe for concurrent use.
type Outbox struct {
	Name   string
	table  string // "shop.tocsin_outbox"
	server *mysql.Server
}

// Open makes a pool for the outbox's server. It connects to nothing.
func Open(cfg Config) (*Outbox, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	o := &Outbox{Name: cfg.Name, table: cfg.Table}
	var err error
	o.server, err = mysql.Open(mysql.Spec{
		DSN: cfg.DSN, TLS: cfg.TLS, MaxConns: 2, IdleTime: WaitTimeout / 2, WaitTimeout: WaitTimeout,
		Marker: mysql.Marker{Key: "outbox " + cfg.Table, Read: func(ctx context.Context, conn *sql.Conn) (string, error) {
			return readIdentity(ctx, conn, cfg.Table)
		}},
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Close closes the pool.
func (o *Outbox) Close() error { return o.server.DB.Close() }

// String names the outbox in errors: "outbox shop.tocsin_outbox on db1:3306".
func (o *Outbox) String() string { return "outbox " + o.table + " on " + o.server.Name }

// render fills in the table's name and a condition.
func (o *Outbox) render(statement, ranges string) string {
	return strings.NewReplacer("{outbox}", outboxrow.Quoted(o.table), "{ranges}", ranges).Replace(statement)
}

// wrap says what was tried.
func (o *Outbox) wrap(tried string, err error) error {
	if err == nil {
		return nil
	}
	if mysql.ClassOf(err) == mysql.Missing {
		return fmt.Errorf("%s %s: %w: run `tocsin outbox apply`", tried, o, err)
	}
	return fmt.Errorf("%s %s: %w", tried, o, err)
}

// List returns rows with ids above after, at most limit: all, or those that were set aside.
func (o *Outbox) List(ctx context.Context, after uint64, limit int, stuck bool) ([]outboxrow.Row, error) {
	where := ranges([]Range{{after + 1, 1<<64 - 1}})
	if stuck {
		where += stuckSQL
	}
	rows, err := o.read(ctx, o.server.DB, where, limit, nil)
	return rows, o.wrap("read", err)
}

// Retry lets relays move rows that were set aside: those with the ids, or all. It returns their number.
func (o *Outbox) Retry(ctx context.Context, ids []uint64, all bool) (int, error) {
	return o.change(ctx, "retry rows of", retrySQL, ids, all)
}

// Drop deletes rows that were set aside: those with the ids, or all. It returns their number.
func (o *Outbox) Drop(ctx context.Context, ids []uint64, all bool) (int, error) {
	return o.change(ctx, "drop rows of", dropSQL, ids, all)
}

func (o *Outbox) change(ctx context.Context, tried, statement string, ids []uint64, all bool) (int, error) {
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

// ErrNoIdentity says that the table lacks its identity, under which relays note what they have moved.
var ErrNoIdentity = errors.New("it is not there, this user has no right on it, or the comment of its table holds no identity: run `tocsin outbox apply`")

// identity reads the identity.
func (o *Outbox) identity(ctx context.Context, conn *sql.Conn) (string, error) {
	identity, err := readIdentity(ctx, conn, o.table)
	if err == nil && identity == "" {
		return "", fmt.Errorf("%s: %w", o, ErrNoIdentity)
	}
	return identity, o.wrap("read the identity of", err)
}

// readIdentity returns the identity of an outbox; "": there is none.
func readIdentity(ctx context.Context, conn *sql.Conn, of string) (string, error) {
	database, table := outboxrow.Split(of)
	var comment string
	err := conn.QueryRowContext(ctx, identitySQL, database, table).Scan(&comment)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", err
	}
	return outboxrow.Identity(comment), nil
}
