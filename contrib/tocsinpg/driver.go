package tocsinpg

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/outbox"
)

// connectTimeout bounds the attempt to reach one address, unless the DSN says otherwise.
const connectTimeout = 5 * time.Second

// Driver is outbox.Config.Driver for outboxes in PostgreSQL. The DSN is a URL, postgres://user:password@host:5432/shop, with
// the parameters of libpq; it may name several hosts, of which the one that takes writes is used.
type Driver struct{}

// Drive sets the Driver of those outboxes of a config file that are in PostgreSQL, and returns all of them.
func Drive(outboxes []outbox.Config) []outbox.Config {
	for i, o := range outboxes {
		if o.OnPostgreSQL() {
			outboxes[i].Driver = Driver{}
		}
	}
	return outboxes
}

// Check returns the first mistake in a config. It connects to nothing.
func (Driver) Check(cfg outbox.Config) error {
	_, err := settings(cfg)
	return err
}

// Open returns the server of an outbox. It connects to nothing.
func (Driver) Open(cfg outbox.Config) (outbox.Server, error) {
	s, err := settings(cfg)
	if err != nil {
		return nil, err
	}
	return &server{settings: s, table: cfg.Table}, nil
}

// sessionSettings are those of a connection of ours. The plans of the statements must not depend on statistics of a table
// that is empty one moment and holds a million rows the next. The sessions of a relay that hangs end soon.
var sessionSettings = map[string]string{
	"timezone":                            "UTC",
	"default_transaction_isolation":       "read committed",
	"idle_session_timeout":                idle, // of PostgreSQL 14
	"idle_in_transaction_session_timeout": idle,
	"lock_timeout":                        "1000",
	"enable_seqscan":                      "off",
	"enable_bitmapscan":                   "off", // its rows are sorted, all of them for a page
	"jit":                                 "off",
}

// idle is how long the server waits for a session that sends nothing, in milliseconds.
var idle = strconv.FormatInt(outbox.WaitTimeout.Milliseconds(), 10)

// settings are those of connections to an outbox.
func settings(cfg outbox.Config) (*pgx.ConnConfig, error) {
	if !cfg.OnPostgreSQL() {
		return nil, errors.New("the DSN of an outbox in PostgreSQL is a URL: postgres://user:password@host:5432/database")
	}
	c, err := pgx.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, err // without the password
	}
	if c.Database == "" {
		return nil, errors.New("the DSN of an outbox in PostgreSQL names its database: postgres://user:password@host:5432/database")
	}
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, connectTimeout)
	c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite // whatever target_session_attrs says
	name := cmp.Or(c.RuntimeParams["application_name"], "tocsin relay")
	maps.Copy(c.RuntimeParams, sessionSettings)
	c.RuntimeParams["application_name"] = name
	if cfg.TLS != nil {
		encrypt(c, cfg.TLS)
	}
	return c, nil
}

// encrypt has all addresses use the given TLS alone.
func encrypt(c *pgx.ConnConfig, with *tls.Config) {
	own := func(host string) *tls.Config {
		clone := with.Clone()
		clone.ServerName = cmp.Or(clone.ServerName, host)
		return clone
	}
	c.TLSConfig = own(c.Host)
	seen := map[string]bool{net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))): true}
	var rest []*pgconn.FallbackConfig
	for _, f := range c.Fallbacks { // one with and one without TLS for each address, by sslmode
		address := net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))
		if seen[address] {
			continue
		}
		seen[address] = true
		rest = append(rest, &pgconn.FallbackConfig{Host: f.Host, Port: f.Port, TLSConfig: own(f.Host)})
	}
	c.Fallbacks = rest
}

// errPooled says that a pooler lends the connections out.
var errPooled = errors.New("the connection goes through a pooler, where the lock of a relay would stay with a connection of the pooler: name the server itself")

// Connect opens a connection to the server of an outbox. It must be the server itself, and take writes.
func Connect(ctx context.Context, cfg outbox.Config) (*pgx.Conn, error) {
	c, err := settings(cfg)
	if err != nil {
		return nil, err
	}
	return connect(ctx, c)
}

func connect(ctx context.Context, c *pgx.ConnConfig) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, c.Copy())
	if err != nil {
		return nil, err
	}
	var pid uint32
	if err := conn.QueryRow(ctx, pidSQL).Scan(&pid); err != nil {
		return nil, errors.Join(err, closeNow(conn))
	}
	if pid != conn.PgConn().PID() {
		return nil, errors.Join(errPooled, closeNow(conn))
	}
	return conn, nil
}

// closeNow closes a connection, whatever became of the caller's context.
func closeNow(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return conn.Close(ctx)
}

// whereIs names a server and its database.
func whereIs(c *pgx.ConnConfig) string {
	return fmt.Sprintf("%s/%s", net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), c.Database)
}

// In adds, cancels and reschedules tasks in a transaction of pgx, through the outbox of the client's Config.Outbox, which
// must have PostgreSQL set. All of it happens exactly if the transaction commits.
func In(client *tocsin.Client, tx pgx.Tx) tocsin.OutboxTx {
	if tx == nil {
		return client.OutboxTx(nil) // refuses each call, as AddTx does
	}
	return client.OutboxTx(func(ctx context.Context, statement string, args ...any) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	})
}
