package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
)

// The group of a run's nodes and its two biz types: what is measured, and what
// may disturb it.
const (
	group        = "bench"
	plainNumber  = 1
	otherNumber  = 2
	nodeConns    = 64
	probeConns   = 4 // beside those of the raw bound
	deliverLimit = 10 * time.Second
)

var (
	plain = tocsin.Define[string]("bench.plain")
	other = tocsin.Define[string]("bench.other")
)

// payload is that of every task: of the size of a small JSON object.
const payload = `{"order":"A-1234567890","reason":"unpaid","customer":4711,"note":"thirty minutes"}`

// site is the servers and tables of one run.
type site struct {
	opts   Options
	config tocsin.Config
	etcd   node.EtcdConfig
	own    *devcluster.Site // nil: the servers were given
	client *tocsin.Client
	store  *store.Store
	pools  []*mysql.Server // of the raw bound, by server
	rows   *rows

	fills   uint64   // the biz type of the rows that fill stores
	scraped *Scraped // of the nodes that ran last; nil: none, or without metrics
}

// openSite starts the servers unless they are given, and makes the tables.
// paused is how the biz types begin.
func openSite(ctx context.Context, opts Options, paused bool) (*site, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	s := &site{opts: opts.withDefaults(), fills: plainNumber}
	for _, step := range []func(context.Context) error{
		s.findServers,
		s.makeTables,
		func(ctx context.Context) error { return s.applyTypes(ctx, biztype.Policy{Paused: paused}) },
		s.connect,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	s.rows = newRows(s.config.Layout)
	return s, nil
}

// findServers gives the run servers, and databases that nobody else has.
func (s *site) findServers(ctx context.Context) (err error) {
	s.config = tocsin.Config{Layout: s.opts.Layout, Cluster: "bench-" + strconv.FormatUint(rand.Uint64(), 36)}
	if s.opts.Servers != nil {
		s.config.Layout.Prefix = "bench_" + strconv.FormatUint(rand.Uint64(), 36)
		s.config.Servers, s.etcd = devcluster.Spread(s.opts.Servers, s.opts.Layout.Databases), s.opts.Etcd
		for i := range s.config.Servers {
			s.config.Servers[i].MaxConns = nodeConns
		}
		return nil
	}
	s.config.Layout.Prefix = ""
	server := devserver.MariaDBConfig{Product: devserver.Product(s.opts.Server), Durable: true}
	server.Memory, server.RedoLog = devcluster.Memory(s.opts.Layout, s.opts.rows())
	own := devcluster.SiteOptions{Config: s.config, Name: "bench", Conns: nodeConns, Servers: []devserver.MariaDBConfig{server}}
	if s.opts.Ownership != node.ByRows {
		own.Etcd = &devserver.EtcdConfig{}
	}
	if s.own, err = devcluster.StartSite(ctx, own); err != nil {
		return err
	}
	s.config, s.etcd = s.own.Config, s.own.EtcdConfig()
	return nil
}

func (s *site) makeTables(ctx context.Context) error {
	_, err := ddl.Apply(ctx, s.config, ddl.Options{
		Cluster: s.config.Cluster, Ownership: s.opts.Ownership,
		Progress: func(done, total int) { s.opts.Progress("create", done, total) },
	})
	return err
}

// applyTypes writes the policy for both biz types.
func (s *site) applyTypes(ctx context.Context, p biztype.Policy) error {
	p.Name, p.Number, p.Group, p.Timeout = plain.Name(), plainNumber, group, biztype.Duration(deliverLimit)
	burst := p
	burst.Name, burst.Number, burst.Priority = other.Name(), otherNumber, s.opts.BurstPriority
	if s.opts.Backlog > 0 {
		burst = (&Target{Pull: &Pull{}}).policy(burst)
	}
	_, err := biztype.Apply(ctx, s.config, []biztype.Policy{s.opts.Target.policy(p), burst})
	return err
}

// pause stops the deliveries of both biz types, or lets them begin.
func (s *site) pause(ctx context.Context, paused bool) error {
	for _, name := range []string{plain.Name(), other.Name()} {
		if _, err := biztype.SetPaused(ctx, s.config, name, paused); err != nil {
			return err
		}
	}
	return nil
}

// apart returns a config whose connections are not divided with the client's, since
// in production its user is a process of its own. Each such user has another number.
func (s *site) apart(number int) tocsin.Config {
	cfg := s.config
	cfg.Servers = slices.Clone(cfg.Servers)
	for i := range cfg.Servers {
		cfg.Servers[i].MaxConns = nodeConns + number
	}
	return cfg
}

func (s *site) connect(ctx context.Context) (err error) {
	if s.client, err = tocsin.Open(ctx, s.config); err != nil {
		return err
	}
	if s.store, err = store.Open(s.apart(1)); err != nil {
		return err
	}
	for _, spec := range client.Specs(s.config) {
		spec.MaxConns, spec.Share = workers+probeConns, ""
		pool, err := mysql.Open(spec)
		if err != nil {
			return err
		}
		s.pools = append(s.pools, pool)
	}
	return nil
}

// close removes all that the run made. It is no part of what ctx bounds.
func (s *site) close() error {
	var errs []error
	if s.own == nil && s.config.Servers != nil {
		errs = append(errs, s.dropDatabases())
	}
	for _, pool := range s.pools {
		errs = append(errs, pool.DB.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.own != nil {
		errs = append(errs, s.own.Stop())
	}
	return errors.Join(errs...)
}

// dropWithin bounds the removal of the databases on servers that were given.
const dropWithin = 5 * time.Minute

func (s *site) dropDatabases() error {
	ctx, cancel := context.WithTimeout(context.Background(), dropWithin)
	defer cancel()
	var errs []error
	for _, spec := range client.Specs(s.config) {
		pool, err := mysql.Open(spec)
		if err != nil {
			return err
		}
		for _, db := range spec.Databases {
			if _, err := pool.DB.ExecContext(ctx, dropSQL+s.config.Layout.Database(db)); err != nil {
				errs = append(errs, fmt.Errorf("drop database %s on %s: %w", s.config.Layout.Database(db), spec.Name, err))
			}
		}
		errs = append(errs, pool.DB.Close())
	}
	return errors.Join(errs...)
}

// done counts the rows that are settled as done, by the tables.
func (s *site) done(ctx context.Context) (int, error) {
	n, err := devcluster.Count(ctx, s.store)
	return n.Done, err
}
