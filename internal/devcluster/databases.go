package devcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
)

// startDatabases starts the database servers and divides the databases among them.
func (c *Cluster) startDatabases(ctx context.Context) (err error) {
	n := max(c.opts.Servers, 1)
	if n > 1 {
		// Not the devserver's own prefix: a server that is stopped for a while would lose its folder to another start.
		if c.dir, err = os.MkdirTemp("", "demo-tocsin-"); err != nil {
			return err
		}
	}
	c.config = tocsin.Config{Layout: c.opts.Layout, Cluster: ClusterID}
	for i := range n {
		cfg := c.database(i)
		if i == 0 {
			cfg.Port = c.opts.MySQLPort
		}
		started, err := devserver.StartMariaDB(ctx, cfg)
		if err != nil {
			return err
		}
		c.servers = append(c.servers, started)
		server := tocsin.Server{Name: "dev", DSN: started.DSN(), MaxConns: 64}
		if n > 1 {
			server.Name = fmt.Sprintf("dev-%d", i+1)
		}
		for db := i; db < c.opts.Layout.Databases; db += n {
			server.Databases = append(server.Databases, db)
		}
		c.config.Servers = append(c.config.Servers, server)
	}
	return nil
}

// database is the config of a server.
func (c *Cluster) database(i int) devserver.MariaDBConfig {
	cfg := devserver.MariaDBConfig{Product: c.opts.Server}
	cfg.Memory, cfg.RedoLog = memory(c.opts.Layout)
	if c.dir != "" {
		cfg.Dir = filepath.Join(c.dir, fmt.Sprintf("server-%d", i+1))
	}
	return cfg
}

// memory sizes the buffer pool so that the few pages which even an empty
// table has stay in memory, 8192 tables' too, and the log for their changes.
func memory(l tocsin.Layout) (pool, log int) {
	const perTable = 192 << 10 // bytes: a dozen pages
	return 128<<20 + l.Total()*perTable, 64<<20 + l.Total()*perTable/2
}

// StopServer kills a database server; its data stays. Only with several servers, and not concurrently with StartServer.
func (c *Cluster) StopServer(i int) error {
	return errors.Join(c.servers[i].Kill(), c.servers[i].Stop())
}

// StartServer starts a server that StopServer has stopped, on its port and with its data.
func (c *Cluster) StartServer(ctx context.Context, i int) (err error) {
	cfg := c.database(i)
	cfg.Port = c.servers[i].Port()
	started, err := devserver.StartMariaDB(ctx, cfg)
	if err == nil {
		c.servers[i] = started
	}
	return err
}

// stopDatabases stops all and removes their folder.
func (c *Cluster) stopDatabases() error {
	var errs []error
	for _, server := range c.servers {
		if c.dir != "" {
			errs = append(errs, server.Kill()) // a clean end of a server whose data goes takes seconds
		}
		errs = append(errs, server.Stop())
	}
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}
