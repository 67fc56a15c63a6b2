package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// database is one MariaDB or MySQL server that can be killed and comes back. Its methods
// may be called at any time from any goroutine.
type database struct {
	number  int
	prefix  string
	product devserver.Product
	args    []string // of the server, in addition to those that all have
	direct  *sql.DB  // as root, bypassing every proxy

	mu     sync.Mutex
	server *devserver.MariaDB // the present one
}

// String names the server in errors.
func (d *database) String() string { return fmt.Sprintf("server db%d", d.number) }

// startDatabase starts a server with a folder of its own.
func startDatabase(ctx context.Context, number int, dir, prefix string, product devserver.Product, args []string) (*database, error) {
	d := &database{number: number, prefix: prefix, product: product, args: args}
	if err := d.start(ctx, filepath.Join(dir, fmt.Sprintf("db%d", number))); err != nil {
		return nil, err
	}
	if err := d.connect(); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	for _, statement := range []string{userSQL, strings.ReplaceAll(grantSQL, "{prefix}", strings.ReplaceAll(prefix, "_", `\_`))} {
		if err := d.exec(ctx, statement); err != nil {
			return nil, errors.Join(err, d.stop())
		}
	}
	return d, nil
}

// connect opens the way past the proxies. Nobody else uses direct meanwhile.
func (d *database) connect() (err error) {
	d.direct, err = openQuiet(d.server.DSN())
	return err
}

// openQuiet makes a pool that logs nothing: broken connections are what we want.
func openQuiet(dsn string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.ParseTime, cfg.Logger = true, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// start launches the server in a folder, with what that holds.
func (d *database) start(ctx context.Context, dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	server, err := devserver.StartMariaDB(ctx, devserver.MariaDBConfig{
		Product: d.product, Dir: dir, Memory: 128 << 20, RedoLog: 96 << 20, Args: d.args,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", d, err)
	}
	d.server = server
	return nil
}

// Kill ends the server with SIGKILL, as a crash would.
func (d *database) Kill() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.server.Kill()
}

// Restart brings it back.
func (d *database) Restart(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.server.Restart(ctx)
}

func (d *database) exec(ctx context.Context, statement string) error {
	if _, err := d.direct.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %s: %w", d, statement, err)
	}
	return nil
}

// freeze stops the server's process where it is, for a while. Connections stay open, and the kernel accepts new ones.
func (d *database) freeze(ctx context.Context, during time.Duration) {
	d.server.Signal(syscall.SIGSTOP)
	_ = loop.Wait(ctx, during)
	d.server.Signal(syscall.SIGCONT)
}

// readOnly makes the server refuse writes for a while.
func (d *database) readOnly(ctx context.Context, during time.Duration) error {
	if err := d.exec(ctx, readOnlySQL); err != nil {
		return err
	}
	_ = loop.Wait(ctx, during)
	return d.exec(context.WithoutCancel(ctx), readWriteSQL)
}

// replace shuts the server down and starts one with a copy of its data elsewhere.
func (d *database) replace(ctx context.Context) error {
	d.mu.Lock()
	err := d.server.Stop()
	d.mu.Unlock()
	if err != nil {
		return err
	}
	moved := d.server.Dir() + "-replacement"
	if err := os.CopyFS(moved, os.DirFS(d.server.Dir())); err != nil {
		return fmt.Errorf("copy %s: %w", d, err)
	}
	if err := d.start(ctx, moved); err != nil {
		return err
	}
	old := d.direct
	defer func() { _ = old.Close() }()
	return d.connect()
}

// lock keeps everybody out of a table for a while.
func (d *database) lock(ctx context.Context, table string, during time.Duration) error {
	conn, err := d.direct.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", d, err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, strings.ReplaceAll(lockSQL, "{table}", table)); err != nil {
		return fmt.Errorf("lock %s: %w", table, err)
	}
	_ = loop.Wait(ctx, during)
	_, err = conn.ExecContext(context.WithoutCancel(ctx), unlockSQL)
	return err
}

// stop ends the server for good.
func (d *database) stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.direct != nil {
		_ = d.direct.Close() // connections that died with a server can't say goodbye
	}
	return errors.Join(d.server.Kill(), d.server.Stop())
}
