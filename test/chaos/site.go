package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/node"
)

// Options say what cluster to start. Zero values are those of a small one.
type Options struct {
	Dir     string        // where servers, journals and logs go; it must exist
	Layout  tocsin.Layout // zero: 4 x 4, its databases dealt out over the servers
	Servers int           // MariaDB or MySQL servers; 0: 2
	Product string        // of the servers; see devserver.Product
	Nodes   int           // 0: 3
	Idle    int           // so many of the nodes' seats are empty at first
	Etcd    int           // members of etcd; 0: 1
	NoEtcd  bool          // there is none: every node claims each row
	Sweeper bool          // a sweeper runs beside the nodes all the time
	OneName bool          // nodes keep their seat's name when they start again, as those of a host do
	Shops   int           // business servers with an outbox; the last of several is PostgreSQL. All nodes relay them
	Purged  bool          // final rows may go: the check takes them as they were last seen
	Broker  string        // "kafka", "rabbitmq", "nats": tasks of hook go to such a broker, not to the receiver
	Runs    bool          // the tables of schedules' runs are watched, finished ones are purged, and there are biz types of runs
	Program string        // the file of the real program, which nodes run then; "": they run this one, in a role
	Workers int           // processes that ask the nodes' APIs for tasks: needs Program
	Timing  Timing        // zero: lease 4s, scan 1s, grace 12s; of the real program as it is shipped

	Timeout     time.Duration // of deliveries to handlers, but of runs; 0: deliveryTimeout
	HookTimeout time.Duration // of callbacks; 0: deliveryTimeout

	servers  []serverOptions       // by number; those that are left out are plain
	serve    func(*seat) *exec.Cmd // the program of each node; nil: this one, in a role
	policies []biztype.Policy      // nil: those of handlers and receiver
	direct   bool                  // processes reach all servers without proxies: no link can be harmed
}

// serverOptions are what a scenario wants of one server.
type serverOptions struct {
	args   []string             // of the server
	params string               // of the DSNs that lead to it: "tls=true"
	disk   *devserver.SmallDisk // of its binary log; nil: it has none
}

// server returns the options of a server.
func (o Options) server(number int) serverOptions {
	if number < len(o.servers) {
		return o.servers[number]
	}
	return serverOptions{}
}

func (o Options) withDefaults() Options {
	if o.Layout == (tocsin.Layout{}) {
		o.Layout = tocsin.Layout{Databases: 4, Tables: 4, Prefix: "chaos"}
	}
	if o.Servers == 0 {
		o.Servers = 2
	}
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Etcd == 0 {
		o.Etcd = 1
	}
	if o.Timing == (Timing{}) && o.Program != "" {
		o.Timing = Timing{Lease: 3 * time.Second, Scan: 5 * time.Second, Grace: time.Minute}
	}
	if o.Timing == (Timing{}) {
		o.Timing = Timing{Lease: 4 * time.Second, Scan: time.Second, Grace: 12 * time.Second}
	}
	return o
}

// timeout is that of a delivery, or of a callback.
func (o Options) timeout(callback bool) time.Duration {
	if callback {
		return cmp.Or(o.HookTimeout, deliveryTimeout)
	}
	return cmp.Or(o.Timeout, deliveryTimeout)
}

// place is where a task is kept, and came from.
type place struct {
	server, database int
	shop             int  // the business server that asked for it, counted from one; 0: none
	broker           bool // it goes to the broker
}

// placeOf is the place of a table.
func (o Options) placeOf(table int) place {
	return place{server: o.serverOf(table), database: o.Layout.DatabaseOf(table)}
}

// serverOf is the number of the server that holds a table.
func (o Options) serverOf(table int) int { return o.Layout.DatabaseOf(table) % o.Servers }

// Site is a running cluster.
type Site struct {
	opts      Options
	log       *evidence
	proxies   *toxiproxy.ApiServer // of all links, without its API
	databases []*database
	etcd      []*devserver.Etcd
	receiver  *receiver
	broker    *broker // nil: callbacks go to the receiver
	seats     []*seat // of nodes, then of a process that only relays
	workers   []*seat
	sweeper   *seat
	purger    *seat // nil: nothing is purged
	harness   *seat // the links of this process
	spare     *seat // of a relay without the lock; nil: there are no outboxes
	shops     []*shop
	keeper    *keeper // of schedules; nil: there are none
	client    *tocsin.Client
	aimed     atomic.Int64 // freezes that met the moment at which a run is admitted
}

// Start brings everything up and returns when every table has an owner. After an
// error nothing is left.
func Start(ctx context.Context, opts Options) (*Site, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("chaos: only Linux can freeze processes and end them with their parent")
	}
	opts = opts.withDefaults()
	s := &Site{opts: opts, log: newEvidence(opts)}
	if !opts.direct {
		s.proxies = toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	}
	for _, step := range []func(context.Context) error{s.startServers, s.startShops, s.openSeats, s.makeSchema, s.openShops, s.startNodes, s.startRelays} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
	}
	return s, nil
}

func (s *Site) startServers(ctx context.Context) (err error) {
	if s.receiver, err = startReceiver(filepath.Join(s.opts.Dir, receiverName+journalSuffix)); err != nil {
		return err
	}
	if s.opts.Broker != "" {
		if s.broker, err = startBroker(ctx, s.opts.Broker, s.opts.Dir); err != nil {
			return err
		}
	}
	for i := range s.opts.Servers {
		o := s.opts.server(i)
		d, err := startDatabase(ctx, i, s.opts.Dir, s.opts.Layout.Prefix, devserver.Product(s.opts.Product), slices.Concat(o.args, o.disk.Args()))
		if err != nil {
			return err
		}
		s.databases = append(s.databases, d)
	}
	if !s.opts.NoEtcd {
		s.etcd, err = startEtcd(ctx, s.opts.Dir, s.opts.Etcd)
	}
	return err
}

// ownership says who may start a row.
func (o Options) ownership() string {
	if o.NoEtcd {
		return node.ByRows
	}
	return node.ByEtcd
}

// openSeats makes the seats of all processes that there may be.
func (s *Site) openSeats(context.Context) error {
	for i := range s.opts.Nodes {
		at := &seat{name: fmt.Sprintf("n%d", i+1), role: role{Kind: roleNode}}
		if s.opts.OneName {
			at.role.Node = at.name
		}
		s.seats = append(s.seats, at)
	}
	s.harness = &seat{name: "harness"}
	s.sweeper = &seat{name: "sweeper", role: role{Kind: roleSweep, Grace: s.opts.Timing.Grace, Pause: 200 * time.Millisecond}}
	if s.opts.Runs {
		s.purger = &seat{name: "purger", role: role{Kind: rolePurge, Pause: 500 * time.Millisecond}}
	}
	if s.opts.Shops > 0 {
		s.seats = append(s.seats, &seat{name: "r1", role: role{Kind: roleRelay}})
		s.spare = &seat{name: "spare", role: role{Kind: roleSpare}}
	}
	for i := range s.opts.Workers {
		s.workers = append(s.workers, &seat{name: fmt.Sprintf("w%d", i+1), role: role{Kind: roleWork, Aim: s.aim()}})
	}
	for _, at := range s.everybody() {
		if err := s.openLinks(at); err != nil {
			return err
		}
	}
	return nil
}

func (s *Site) makeSchema(ctx context.Context) (err error) {
	cfg := s.tables(s.harness)
	direct := cfg
	direct.Servers = append([]tocsin.Server(nil), cfg.Servers...)
	for i, d := range s.databases {
		direct.Servers[i].DSN = d.server.DSN() // the schema is made past the proxies
	}
	if _, err := ddl.Apply(ctx, direct, ddl.Options{Cluster: direct.Cluster, Ownership: s.opts.ownership(), SweepGrace: s.opts.Timing.Grace}); err != nil {
		return err
	}
	all := s.opts.policies
	if all == nil {
		all = policies(s.receiver.url())
		for i, p := range all[:3] { // plain, strict and hook
			all[i].Timeout = biztype.Duration(s.opts.timeout(p.Webhook != nil))
		}
		if s.broker != nil {
			all[2].Webhook, all[2].Sink, all[2].Concurrency = nil, toBroker, 0
		}
	}
	if s.opts.Workers > 0 {
		all = append(all, pullPolicy(all[0]))
		if err := s.watchLeases(ctx); err != nil {
			return err
		}
	}
	if s.opts.Runs {
		all = append(all, runPolicies(all)...)
		if err := s.watchRuns(ctx); err != nil {
			return err
		}
	}
	if _, err := biztype.Apply(ctx, direct, all); err != nil {
		return err
	}
	s.client, err = tocsin.Open(ctx, cfg)
	return err
}

func (s *Site) startNodes(ctx context.Context) error {
	run := slices.Clone(s.seats[:s.opts.Nodes-s.opts.Idle])
	if s.opts.Sweeper {
		run = append(run, s.sweeper)
	}
	if s.purger != nil {
		run = append(run, s.purger)
	}
	for _, at := range run {
		if err := s.sit(at); err != nil {
			return err
		}
	}
	if s.opts.Idle == s.opts.Nodes {
		return nil
	}
	if err := s.AwaitBalance(ctx, s.opts.Nodes-s.opts.Idle); err != nil {
		return err
	}
	return each(s.workers, s.sit)
}

// tables is the cluster as one seat reaches it.
func (s *Site) tables(at *seat) tocsin.Config {
	cfg := tocsin.Config{Layout: s.opts.Layout, Cluster: s.opts.Layout.Prefix}
	for i := range s.databases {
		dsn := fmt.Sprintf("tocsin@tcp(%s)/?%s", at.servers[i].address, s.opts.server(i).params)
		server := tocsin.Server{Name: fmt.Sprintf("db%d", i), DSN: strings.TrimSuffix(dsn, "?"), MaxConns: 24}
		for db := range s.opts.Layout.Databases {
			if db%len(s.databases) == i {
				server.Databases = append(server.Databases, db)
			}
		}
		cfg.Servers = append(cfg.Servers, server)
	}
	return cfg
}

// databaseOf is the server of a table number.
func (s *Site) databaseOf(table int) *database {
	return s.databases[s.opts.serverOf(table)]
}

// AwaitBalance returns when the given number of nodes own all tables, evenly; without etcd, when that many are present.
func (s *Site) AwaitBalance(ctx context.Context, nodes int) error {
	if s.opts.NoEtcd {
		return s.awaitNodes(ctx, nodes)
	}
	at := assign.EtcdConfig{Endpoints: endpoints(s.etcd), Timeout: 20 * time.Second}
	keys, err := assign.OpenRegistry(ctx, at, s.opts.Layout.Prefix, s.opts.Layout.Total())
	if err != nil {
		return err
	}
	defer func() { _ = keys.Close() }()
	for ctx.Err() == nil {
		found, err := keys.Nodes(ctx, group)
		if err == nil && s.balanced(found, nodes) {
			return nil
		}
		_ = loop.Wait(ctx, 20*time.Millisecond+time.Duration(s.opts.Layout.Total())*50*time.Microsecond) // to read many keys takes long
	}
	return fmt.Errorf("%d nodes do not own all tables evenly: %w", nodes, context.Cause(ctx))
}

// awaitNodes returns when the given number of nodes have written their rows.
func (s *Site) awaitNodes(ctx context.Context, nodes int) error {
	query := strings.ReplaceAll(countNodes, "{database}", s.opts.Layout.Database(0))
	for found := 0; found < nodes; {
		if err := loop.Wait(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d nodes are there: %w", found, nodes, err)
		}
		if err := s.databases[0].direct.QueryRowContext(ctx, query).Scan(&found); err != nil {
			return err
		}
	}
	return nil
}

func (s *Site) balanced(found []assign.NodeState, nodes int) bool {
	total := s.opts.Layout.Total()
	sum, live := 0, 0
	for _, n := range found {
		if n.Tables == 0 {
			continue
		}
		if n.Tables < total/nodes || n.Tables > (total+nodes-1)/nodes {
			return false
		}
		live++
		sum += n.Tables
	}
	return live == min(nodes, total) && sum == total
}

// everybody are all seats that were opened.
func (s *Site) everybody() []*seat {
	all := append(slices.Concat(s.seats, s.workers), s.spare, s.sweeper, s.purger, s.harness)
	return slices.DeleteFunc(all, func(at *seat) bool { return at == nil })
}

// Stop kills everything.
func (s *Site) Stop() error {
	var errs []error
	for _, seat := range s.everybody() {
		seat.kill()
	}
	if s.client != nil {
		_ = s.client.Close() // connections that died with a server can't say goodbye
	}
	if s.keeper != nil {
		_ = s.keeper.schedules.Close() // nor can these
	}
	for _, b := range s.shops {
		errs = append(errs, b.stop())
	}
	for _, seat := range s.everybody() {
		seat.close()
	}
	for _, e := range s.etcd {
		errs = append(errs, e.Kill(), e.Stop())
	}
	for _, d := range s.databases {
		errs = append(errs, d.stop())
	}
	if s.broker != nil {
		errs = append(errs, s.broker.stop())
	}
	if s.receiver != nil {
		errs = append(errs, s.receiver.stop())
	}
	return errors.Join(errs...)
}
