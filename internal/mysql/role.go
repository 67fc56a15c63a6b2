package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
)

// A server says by these settings that it takes no writes: replicas, a primary that was demoted, a reader of Aurora (innodb_read_only), a
// member of a group that is not its primary (read_only), InnoDB that recovers, offline mode, TiDB during a restore. Every new connection asks,
// since an address may lead to another server each time: a balancer, a name, a virtual IP. A user with SUPER, or a right like it, may write to some of
// them: nothing would refuse its statements, and they would be lost.
//
// Its first column tells the server from others.
//
// InnoDB takes no writes while it recovers: MySQL's from 1 on, MariaDB's from 5 on. MariaDB reads /*!50700 as a comment; TiDB alone reads /*T!.
const roleSQL = `SELECT /* tocsin role */
    CONCAT_WS(':', @@hostname, @@port, @@server_id, @@datadir) AS server,
    @@global.read_only AS read_only,
    @@global.innodb_read_only AS innodb_read_only,
    IF(@@global.innodb_force_recovery >= 5 /*!50700 OR @@global.innodb_force_recovery > 0 */, @@global.innodb_force_recovery, 0) AS innodb_force_recovery
    /*!50700 ,
    @@global.offline_mode AS offline_mode */
    /*T! ,
    @@global.tidb_restricted_read_only AS tidb_restricted_read_only,
    @@global.tidb_super_read_only AS tidb_super_read_only */`

// leastRoleSQL is for a server that lacks one of these settings.
const leastRoleSQL = `SELECT /* tocsin role */
    @@global.read_only AS read_only`

// IsOn reads a switch of a server, which is a number or a word; "": the server has none.
func IsOn(value string) bool {
	return value != "" && value != "0" && !strings.EqualFold(value, "OFF")
}

// role returns why the server behind the connection takes no writes; "": it takes some.
func (c *seeingConn) role(ctx context.Context) (string, error) {
	why, err := c.askRole(ctx, roleSQL)
	if ClassOf(err) == Other {
		why, err = c.askRole(ctx, leastRoleSQL)
	}
	if ClassOf(err) == Other { // it has no such settings, or hides them: its errors tell
		why, err = "", nil
	}
	if err == nil {
		c.askedAt, c.readOnly = time.Now(), why
	}
	return why, err
}

func (c *seeingConn) askRole(ctx context.Context, query string) (string, error) {
	rows, err := c.QueryContext(ctx, query, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	names := rows.Columns()
	values := make([]driver.Value, len(names))
	if err := rows.Next(values); errors.Is(err, io.EOF) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	for i, value := range values {
		text := settingText(value)
		if names[i] == "server" {
			c.server = text
		} else if IsOn(text) {
			return setting(names[i], text), nil
		}
	}
	return "", nil
}

// settingText returns a value as the driver read it.
func settingText(value driver.Value) string {
	if text, ok := value.([]byte); ok {
		return string(text)
	}
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// setting words a setting that is on: "read_only is on", "innodb_force_recovery is 4".
func setting(name, value string) string {
	if name != "innodb_force_recovery" && (value == "1" || strings.EqualFold(value, "ON")) {
		value = "on"
	}
	return name + " is " + value
}

// ReadOnly returns why a pool's server takes no writes, "read_only is on"; "": it takes some.
func ReadOnly(ctx context.Context, db *sqlx.DB) (why string, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return roleOver(ctx, conn)
}

// Process returns what tells the server behind a pool's connection from others that may be behind its address at other times; "": the server
// does not say. It sends nothing.
func Process(conn *sql.Conn) (server string, err error) {
	err = conn.Raw(func(dc any) error { server = dc.(*seeingConn).server; return nil })
	return server, err
}

func roleOver(ctx context.Context, conn *sql.Conn) (why string, err error) {
	err = conn.Raw(func(dc any) (err error) {
		why, err = dc.(*seeingConn).role(ctx)
		return err
	})
	return why, err
}

// How a server that takes writes is looked for behind one address.
const (
	dials       = 3               // connections in a row
	inVain      = time.Second     // for which a pool makes one each time, when three have led to none: a cluster would flood a server that stays read-only
	readOnlyFor = 5 * time.Second // how long a connection to a server that takes none is used: for reads
)

// anyServer connects to the only address. If several servers are behind it, one that takes writes is preferred.
func (c *sessionConnector) anyServer(ctx context.Context) (driver.Conn, error) {
	for n := 1; ; n++ {
		conn, err := c.connect(ctx, c.to, nil)
		if err != nil {
			return nil, err
		}
		if conn.readOnly == "" {
			c.vain.Store(nil)
			return conn, nil
		}
		now := time.Now()
		if n == dials {
			c.vain.Store(&now)
			return conn, nil
		}
		if last := c.vain.Load(); last != nil && now.Sub(*last) < inVain {
			return conn, nil
		}
		_ = conn.Close()
	}
}
