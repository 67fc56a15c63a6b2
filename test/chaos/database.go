package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// database is one MariaDB or MySQL server that can be killed and comes back. Its methods
// may be called at any time from any goroutine.
type database struct {
	number  int
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
	d := &database{number: number, product: product, args: args}
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

// swap runs a statement, and another one to undo it.
func (d *database) swap(ctx context.Context, do, again string) (undo, error) {
	return func(ctx context.Context) error { return d.exec(ctx, again) }, d.exec(ctx, do)
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

// lock keeps everybody out of a table.
func (d *database) lock(ctx context.Context, table string) (undo, error) {
	conn, err := d.direct.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d, err)
	}
	if _, err = conn.ExecContext(ctx, strings.ReplaceAll(lockSQL, "{table}", table)); err != nil {
		err = fmt.Errorf("lock %s: %w", table, err)
	}
	return func(ctx context.Context) error {
		defer conn.Close()
		_, err := conn.ExecContext(ctx, unlockSQL)
		return err
	}, err
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

// startEtcd starts an etcd of n members, each with a folder of its own, and returns when all of them serve. Those that it
// returns with an error are to be stopped too.
func startEtcd(ctx context.Context, dir string, n int) ([]*devserver.Etcd, error) {
	ctx, cancel := context.WithTimeout(ctx, restartWithin)
	defer cancel()
	cfgs, members := make([]devserver.EtcdConfig, n), make([]string, n)
	for i := range cfgs {
		name := fmt.Sprintf("etcd%d", i)
		cfgs[i] = devserver.EtcdConfig{
			Dir: filepath.Join(dir, name), ClientPort: devserver.FreePort(), PeerPort: devserver.FreePort(), Name: name,
		}
		members[i] = fmt.Sprintf("%s=http://%s", name, upstream(cfgs[i].PeerPort))
	}
	all := make([]*devserver.Etcd, n)
	var g errgroup.Group
	for i, cfg := range cfgs {
		if n > 1 {
			cfg.Members = strings.Join(members, ",")
		}
		g.Go(func() (err error) {
			all[i], err = devserver.StartEtcd(ctx, cfg)
			return err
		})
	}
	err := g.Wait()
	return slices.DeleteFunc(all, func(e *devserver.Etcd) bool { return e == nil }), err
}

// endpoints are the clients' addresses, past every proxy.
func endpoints(all []*devserver.Etcd) (at []string) {
	for _, e := range all {
		at = append(at, e.Endpoint())
	}
	return at
}
