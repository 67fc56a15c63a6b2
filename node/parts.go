package node

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/session"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/outbox/relay"
	"github.com/tocsinhq/tocsin/pull"
	"github.com/tocsinhq/tocsin/scanner"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/upkeep"
)

// parts are the engines of one Run, wired to one another.
type parts struct {
	cfg          Config
	handlers     *Handlers
	bringer      *bringer
	started      time.Time
	store        *store.Store
	etcd         io.Closer    // nil until dialled
	expires      mysql.Expiry // of the connection to etcd
	watcher      *biztype.Watcher
	targets      *targets // nil until the engines are made
	hub          *pull.Hub
	runs         *schedule.Runs
	dispatcher   *dispatcher.Dispatcher
	history      *upkeep.Recorder
	scanner      *scanner.Scanner
	holder       *holder         // nil: nobody owns tables
	claimers     *claimers       // nil: nodes own tables
	keeper       *session.Keeper // likewise
	health       *store.Health
	certificates *certificates
	group        membership
	assign       *assign.Assign // nil: nobody owns tables
	roster       *roster
	backlog      *upkeep.Backlog
	alarms       *upkeep.Alarms
	generator    *schedule.Generator
	marks        *marks
	relay        *relay.Relay // nil: there are no outboxes
	metrics      *scope
}

// open checks the stored layout, reads the policies, and makes the engines. One
// usable database is enough.
func (n *Node) open(ctx context.Context) (p *parts, err error) {
	p = &parts{cfg: n.cfg, handlers: n.handlers, bringer: n.bringer, hub: n.hub, started: time.Now()}
	p.metrics = newScope(n.cfg.Registerer)
	p.cfg.Registerer = p.metrics.registerer()
	defer func() {
		if err = cmp.Or(p.metrics.check(), err); err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.store, err = store.Connect(ctx, n.cfg.Tables, store.Ownership(n.cfg.Ownership), store.SweepGrace(n.cfg.SweepGrace)); err != nil {
		return p, err
	}
	if p.cfg.Registerer != nil {
		_ = p.store.RegisterMetrics(p.cfg.Registerer) // its error is checked with all others
	}
	p.marks = &marks{store: p.store, log: n.cfg.Logger, changed: make(chan struct{}, 1)}
	if err := p.join(ctx); err != nil {
		return p, err
	}
	policies, unread := biztype.Load(ctx, n.cfg.Tables)
	if policies == nil { // otherwise the watcher logs which it can't read
		return p, unread
	}
	p.targets = newTargets(p.cfg, p.handlers, p.cfg.mine)
	p.targets.hub = p.hub
	p.targets.export(p.cfg.Registerer)
	p.compareHorizon()
	if p.store.Identity() == "" {
		p.cfg.Logger.Warn("the databases have no identity, so nodes of another cluster with the same id are not kept out: run `tocsin ddl apply`")
	}
	p.cfg.export(p.cfg.Registerer, p.mode)
	p.certificates = newCertificates(p.store, &p.expires, p.cfg.Registerer)
	p.health = store.NewHealth(store.HealthConfig{Servers: p.store, Changed: p.sight, Logger: n.cfg.Logger, Registerer: p.cfg.Registerer})
	if err := p.openEngines(ctx, policies); err != nil {
		return p, err
	}
	return p, p.strict(ctx)
}

// openDispatcher makes what delivers, settles and records.
func (p *parts) openDispatcher(ctx context.Context) (err error) {
	p.history = upkeep.NewRecorder(upkeep.RecorderConfig{
		Runs: p.store, Servers: p.store.Servers(), Logger: p.cfg.Logger, Registerer: p.cfg.Registerer,
	})
	p.runs = schedule.NewRuns(p.store, schedule.RunsConfig{
		Missed: p.alarms.Missed, Logger: p.cfg.Logger, Registerer: p.cfg.Registerer,
	})
	var sessions dispatcher.Sessions
	if p.keeper != nil {
		sessions = p.keeper
	}
	p.dispatcher, err = dispatcher.New(dispatcher.Config{
		Sessions: sessions, DatabaseOf: p.cfg.Tables.Layout.DatabaseOf,
		Store: p.store, Servers: len(p.store.Servers()), ServerOf: p.store.ServerOf, Node: p.group.ID(),
		QueueCap: p.cfg.QueueCap, PayloadBytes: p.cfg.PayloadBytes, SweepGrace: p.cfg.SweepGrace, LookAhead: p.cfg.LookAhead,
		DrainTimeout: p.cfg.DrainTimeout,
		Runs:         p.runs, Leased: func(server int, tables []int, at time.Time) { p.scanner.RunOut(server, tables, at) },
		Target: p.targets.of, Group: p.cfg.Group, LeaseOK: p.mayAct, Peers: p.group.Peers,
		Woken: func(server int) { p.scanner.Wake(server) }, Refused: func(server int, rows []duequeue.Entry) { p.scanner.Refuse(server, rows) },
		Exact: true, Settled: func(s dispatcher.Settlement) { died(p.alarms, s) }, Record: p.history.Record, Observe: p.cfg.observer(ctx),
		Logger: p.cfg.Logger, Registerer: p.cfg.Registerer,
	})
	return err
}

// openEngines makes what stands between the assignment and the database.
func (p *parts) openEngines(ctx context.Context, policies []biztype.Policy) (err error) {
	p.alarms = upkeep.NewAlarms(upkeep.AlarmsConfig{ // about all that the node settles, and about all tasks of its group while it leads
		Store: p.store, Cluster: p.cfg.Tables, Policies: func() []biztype.Policy { return p.roster.known() }, Mine: p.cfg.mine, Leads: p.leads,
		Logger: p.cfg.Logger, Registerer: p.cfg.Registerer,
	})
	if err := p.openDispatcher(ctx); err != nil {
		return err
	}
	p.scanner, err = scanner.New(scanner.Config{
		Store: p.store, Intake: p.dispatcher, Interval: p.cfg.ScanInterval, LookAhead: p.cfg.LookAhead,
		Peers: p.group.Peers, Claims: p.claimers != nil, Nodes: p.nodes, Logger: p.cfg.Logger, Registerer: p.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	if p.claimers != nil {
		p.claimers.intake, p.claimers.scan = p.dispatcher, p.scanner
	} else {
		p.holder.store, p.holder.intake, p.holder.scan, p.holder.node = p.store, p.dispatcher, p.scanner, p.group.ID
	}
	p.roster = newRoster(p.targets, p.group, p.cfg.Logger, p.cfg.Registerer)
	if p.holder != nil {
		p.holder.standIns = newStandIns(p.roster.number, p.assign.LeaseOK, p.cfg.Registerer)
	}
	p.roster.lanes = p.dispatcher
	p.backlog = upkeep.NewBacklog(upkeep.BacklogConfig{
		Store: p.store, Policies: p.ofGroup, Leads: p.leads, Logger: p.cfg.Logger, Registerer: p.cfg.Registerer,
	})
	made := schedule.GeneratorConfig{Store: p.store, Tables: p.group.Owned, Missed: p.alarms.Missed, Logger: p.cfg.Logger, Registerer: p.cfg.Registerer}
	if p.holder != nil { // without owners every node tries to make the runs of all tables, and the first one does
		made.Mine = p.holder.has
	}
	p.generator = schedule.NewGenerator(made)
	if len(p.cfg.Outboxes) > 0 {
		if p.relay, err = relay.New(p.cfg.relay()); err != nil {
			return err
		}
	}
	p.roster.set(ctx, policies)
	p.watcher, err = biztype.NewWatcher(biztype.WatchConfig{
		Cluster: p.cfg.Tables, Changed: func(now []biztype.Policy) { p.roster.set(ctx, now) }, Logger: p.cfg.Logger, Registerer: p.cfg.Registerer,
	})
	return err
}

// openHub lets workers ask for tasks.
func (p *parts) openHub() {
	p.hub.Open(pull.Backend{
		Store: p.store, Runs: p.runs, Node: p.group.ID(), Policies: p.roster.known, Mine: p.cfg.mine, Ask: p.dispatcher.Ask,
		Record: p.history.Record, Died: p.alarms.Died, Registerer: p.cfg.Registerer,
	})
}

// died tells alarms of a task that an outcome has made dead.
func died(a *upkeep.Alarms, s dispatcher.Settlement) {
	if s.Verb == tocsin.Buried && s.Fate == store.Stored && !s.Undone {
		a.Died(s.Type, s.JobID)
	}
}

// compareHorizon warns where tasks may be late since neither the doorbell nor a
// scan tells of them in time. It says nothing if no layout row has been read.
func (p *parts) compareHorizon() {
	if horizon := p.store.Horizon(); horizon > 0 && horizon < 2*p.cfg.ScanInterval {
		p.cfg.Logger.Warn("the scan interval is more than half of the tables' doorbell horizon: tasks that are due between them may be late",
			"doorbell_horizon", horizon.String(), "scan_interval", p.cfg.ScanInterval.String())
	}
}

// ofGroup returns the policies of this node's group.
func (p *parts) ofGroup() (some []biztype.Policy) {
	for _, policy := range p.roster.known() {
		if p.cfg.mine(policy) {
			some = append(some, policy)
		}
	}
	return some
}

// nodes returns whose the sessions are, or were; nil if rows are not claimed under sessions.
func (p *parts) nodes() map[string]string {
	if p.claimers == nil {
		return nil
	}
	return p.claimers.nodes()
}

// leads reports whether this node does what one node of the group does for all: it has table 0. While etcd is away it still has.
func (p *parts) leads() bool {
	if p.claimers != nil {
		return p.claimers.leads()
	}
	return p.holder.has(0)
}

// sight acts on a new state of the databases: it tells the other nodes, and stops
// work on the tables of wrong ones.
func (p *parts) sight(s store.Databases) {
	unusable := s.Unusable()
	if len(s.Wrong()) > 0 {
		p.marks.wrong()
	}
	if p.claimers != nil {
		p.claimers.use(s.Wrong())
		return
	}
	p.assign.Miss(unusable)
	p.holder.use(unusable, s.Wrong())
}

// close gives back what open took.
func (p *parts) close() error {
	p.metrics.end()
	if p.targets != nil {
		p.targets.close()
	}
	var errs []error
	if p.etcd != nil {
		errs = append(errs, p.etcd.Close())
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	return errors.Join(errs...)
}
