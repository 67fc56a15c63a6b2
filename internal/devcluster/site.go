package devcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/store"
)

// Site is the private servers of a cluster on this machine.
type Site struct {
	Config  tocsin.Config
	Servers []*devserver.MariaDB // those of Config
	Etcd    *devserver.Etcd      // nil: there is none

	opts SiteOptions
	dir  string // of the servers, if there are several; "": the one has a folder of its own
}

// SiteOptions say what to start.
type SiteOptions struct {
	Config  tocsin.Config             // of the cluster, without its servers
	Name    string                    // of the server; of several: "name-1", "name-2", ...
	Conns   int                       // MaxConns of each
	Servers []devserver.MariaDBConfig // at most one for each database; several get folders from the Site
	Etcd    *devserver.EtcdConfig     // nil: none
}

// StartSite starts the servers and divides the databases among them. The tables are still to be made.
func StartSite(ctx context.Context, opts SiteOptions) (*Site, error) {
	s := &Site{Config: opts.Config, opts: opts}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Site) start(ctx context.Context) (err error) {
	several := len(s.opts.Servers) > 1
	if several {
		// Not the devserver's own prefix: a server that is stopped for a while would lose its folder to another start.
		if s.dir, err = os.MkdirTemp("", "demo-tocsin-"); err != nil {
			return err
		}
	}
	for i := range s.opts.Servers {
		started, err := devserver.StartMariaDB(ctx, s.server(i))
		if err != nil {
			return err
		}
		s.Servers = append(s.Servers, started)
		server := tocsin.Server{Name: s.opts.Name, DSN: started.DSN(), MaxConns: s.opts.Conns}
		if several {
			server.Name = fmt.Sprintf("%s-%d", s.opts.Name, i+1)
		}
		s.Config.Servers = append(s.Config.Servers, server)
	}
	s.Config.Servers = Spread(s.Config.Servers, s.Config.Layout.Databases)
	if s.opts.Etcd != nil {
		s.Etcd, err = devserver.StartEtcd(ctx, *s.opts.Etcd)
	}
	return err
}

func (s *Site) server(i int) devserver.MariaDBConfig {
	cfg := s.opts.Servers[i]
	if s.dir != "" {
		cfg.Dir = filepath.Join(s.dir, fmt.Sprintf("server-%d", i+1))
	}
	return cfg
}

// Spread deals the databases to the servers in turn. Servers beyond the number of databases are left out.
func Spread(servers []tocsin.Server, databases int) []tocsin.Server {
	dealt := slices.Clone(servers[:min(len(servers), databases)])
	for i := range dealt {
		dealt[i].Databases = nil
	}
	for db := range databases {
		at := &dealt[db%len(dealt)]
		at.Databases = append(at.Databases, db)
	}
	return dealt
}

// Memory returns the sizes, in bytes, of a private server's buffer pool and redo log. The pool holds the pages of all tables
// and that many rows. The log is so large that no checkpoint stops the writes.
func Memory(l tocsin.Layout, rows int) (pool, log int) {
	const (
		perTable   = 192 << 10 // bytes: a dozen pages
		perRow     = 700       // bytes, with its indexes
		perRowLog  = 1000
		largestLog = 4 << 30
		unit       = 128 << 20 // MySQL rounds up to it, and would have more memory than MariaDB
	)
	pool = 128<<20 + l.Total()*perTable + rows*perRow
	pool = (pool + unit - 1) / unit * unit
	log = 64<<20 + l.Total()*perTable/2 + rows*perRowLog
	return pool, min(log, largestLog)
}

// Ownership is how nodes own rows: by etcd, if there is one.
func (s *Site) Ownership() string {
	if s.Etcd == nil {
		return node.ByRows
	}
	return node.ByEtcd
}

// EtcdConfig is how nodes reach etcd, if there is one.
func (s *Site) EtcdConfig() node.EtcdConfig {
	if s.Etcd == nil {
		return node.EtcdConfig{}
	}
	return node.EtcdConfig{Endpoints: []string{s.Etcd.Endpoint()}}
}

// StopServer kills a database server; its data stays. Only with several servers, and not concurrently with StartServer.
func (s *Site) StopServer(i int) error {
	return errors.Join(s.Servers[i].Kill(), s.Servers[i].Stop())
}

// StartServer starts a server that StopServer has stopped, on its port and with its data.
func (s *Site) StartServer(ctx context.Context, i int) error {
	cfg := s.server(i)
	cfg.Port = s.Servers[i].Port()
	started, err := devserver.StartMariaDB(ctx, cfg)
	if err == nil {
		s.Servers[i] = started
	}
	return err
}

// Stop ends the servers and removes what they stored.
func (s *Site) Stop() error {
	var errs []error
	if s.Etcd != nil {
		errs = append(errs, s.Etcd.Stop())
	}
	for _, server := range s.Servers {
		if s.dir != "" {
			errs = append(errs, server.Kill()) // a clean end of a server whose data goes takes seconds
		}
		errs = append(errs, server.Stop())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// Count counts the rows of all tables by their status.
func Count(ctx context.Context, tables *store.Store) (sum store.Count, err error) {
	for server := range tables.Servers() {
		counts, err := tables.Counts(ctx, server, tables.TablesOf(server))
		if err != nil {
			return sum, err
		}
		for _, n := range counts {
			sum.Pending += n.Pending
			sum.Claimed += n.Claimed
			sum.Done += n.Done
			sum.Dead += n.Dead
		}
	}
	return sum, nil
}
