package devcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
)

// Site is the private servers of a cluster on this machine.
type Site struct {
	Config  tocsin.Config
	Servers []*devserver.MariaDB // those of Config
	Etcd    *devserver.Etcd      // nil: there is none

	broker *Broker       // nil: there is none
	grace  time.Duration // of sweeps, which the databases hold; 0: the default
}

// SiteOptions say what to start.
type SiteOptions struct {
	Config  tocsin.Config             // of the cluster, without its servers
	Name    string                    // of the server; of several: "name-1", "name-2", ...
	Conns   int                       // MaxConns of each
	Servers []devserver.MariaDBConfig // at most one for each database
	Etcd    *devserver.EtcdConfig     // nil: none
}

// StartSite starts the servers and divides the databases among them. The tables are still to be made.
func StartSite(ctx context.Context, opts SiteOptions) (*Site, error) {
	s := &Site{Config: opts.Config}
	if err := s.start(ctx, opts); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Site) start(ctx context.Context, opts SiteOptions) (err error) {
	for i, cfg := range opts.Servers {
		started, err := devserver.StartMariaDB(ctx, cfg)
		if err != nil {
			return err
		}
		s.Servers = append(s.Servers, started)
		server := tocsin.Server{Name: opts.Name, DSN: started.DSN(), MaxConns: opts.Conns}
		if len(opts.Servers) > 1 {
			server.Name = fmt.Sprintf("%s-%d", opts.Name, i+1)
		}
		s.Config.Servers = append(s.Config.Servers, server)
	}
	s.Config.Servers = Spread(s.Config.Servers, s.Config.Layout.Databases)
	if opts.Etcd != nil {
		s.Etcd, err = devserver.StartEtcd(ctx, *opts.Etcd)
	}
	return err
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

// Stop ends the servers and removes what they stored.
func (s *Site) Stop() error {
	var errs []error
	if s.Etcd != nil {
		errs = append(errs, s.Etcd.Stop())
	}
	for _, server := range s.Servers {
		errs = append(errs, server.Stop())
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
