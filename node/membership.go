package node

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/internal/session"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/scanner"
)

// membership is a node's place in its group: *assign.Assign where nodes own tables, *claimers where nobody does.
type membership interface {
	group
	Run(ctx context.Context) error
	ID() string
	Peers() int
	Owned() int
	Wanted() int
	Delivered(ctx context.Context) (types map[string]bool, told bool, err error) // that other nodes of the group deliver; false: one does not tell
}

// join makes the node's place in its group.
func (p *parts) join(ctx context.Context) (err error) {
	info := assign.NodeInfo{Version: p.cfg.Version, Schema: layoutrow.SchemaVersion, Listen: p.cfg.Listen, API: p.cfg.API, Started: p.started}
	if p.cfg.Ownership == ByRows {
		p.claimers, err = newClaimers(p.cfg, p.store, info)
		if err != nil {
			return err
		}
		p.group, p.keeper = p.claimers, p.claimers.keeper
		return nil
	}
	etcd := p.cfg.Etcd
	etcd.TLS = p.expires.Watch(etcd.TLS)
	client, err := assign.Dial(ctx, etcd)
	if err != nil {
		return err
	}
	p.etcd = client
	p.store.Hold()
	p.marks.keep = func(ctx context.Context, identity string, known map[int]int64) (map[int]int64, error) {
		return assign.KeepMarks(ctx, client, p.cfg.Tables.Cluster, identity, known)
	}
	p.marks.exchange(ctx, nil) // before a table is taken
	p.holder = newHolder(p.cfg.Group, p.cfg.Tables.Layout.DatabaseOf, p.cfg.Logger)
	layout := p.cfg.Tables.Layout
	p.assign, err = assign.New(assign.Config{
		Client: client, Cluster: p.cfg.Tables.Cluster, Group: p.cfg.Group, Node: p.cfg.Name,
		Tables: layout.Total(), ServerOf: p.store.ServerOf, Block: layout.Tables, Weight: p.cfg.Weight, TTL: p.cfg.LeaseTTL, LeaveTimeout: p.cfg.DrainTimeout,
		Info:      info,
		StandIn:   p.holder.setDuties,
		Jumped:    p.store.Jumped,
		Identity:  func() assign.Identity { return assign.NewIdentity(p.store.Identity(), p.cfg.Tables) },
		OwnerRows: ownerRows{p.store, p.cfg.Group, p.cfg.Name},
		Logger:    p.cfg.Logger, Registerer: p.cfg.Registerer,
	}, p.holder)
	p.holder.refuse = p.assign.Refuse
	p.group = p.assign
	return err
}

// mayAct reports whether rows of tables that were taken as that owner may start without a claim.
func (p *parts) mayAct(owner string) bool { return p.assign != nil && p.assign.MayAct(owner) }

// leaseOK reports whether the node's lease is proven; without etcd there is none.
func (p *parts) leaseOK() bool { return p.assign != nil && p.assign.LeaseOK() }

// hold retries tables that could not be taken, stands in for other owners and follows servers to other addresses, until ctx ends. If nobody owns
// tables, there is nothing to do: claims decide.
func (p *parts) hold(ctx context.Context) {
	if p.holder == nil {
		return
	}
	var all sync.WaitGroup
	all.Go(func() { p.holder.run(ctx) })
	all.Go(func() { p.holder.runStandIns(ctx) })
	all.Go(func() { p.holder.runFailovers(ctx) })
	all.Wait()
}

// ownerRows are the owner rows of a group, for epochs. A server that does not answer
// soon is left out.
type ownerRows struct {
	store *store.Store
	group string
	node  string
}

// Read returns the highest revisions.
func (o ownerRows) Read(ctx context.Context) (store.OwnerRevisions, error) {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	r, err := o.store.OwnerRevisions(ctx, o.group)
	if r.Databases > 0 {
		err = nil
	}
	return r, err
}

// Reserve stores a revision.
func (o ownerRows) Reserve(ctx context.Context, revision int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	return o.store.Reserve(ctx, o.group, o.node, revision)
}

// look is how a node looks at a table, where nobody owns tables.
type look uint8

const (
	never  look = iota // its database is wrong
	second             // another node looks at it first
	first
)

// claimers is the node's place in a group in which nobody owns tables. It works on all tables: on those that the group
// leaves to it first, on the others a little later. Claims decide who gets a row.
type claimers struct {
	*assign.Rows
	keeper     *session.Keeper // of the node's sessions
	intake     *dispatcher.Dispatcher
	scan       *scanner.Scanner
	databaseOf func(table int) int

	mu    sync.Mutex // held while tables are handed to intake and scan
	begun bool
	looks []look // by table
	wrong []int  // databases

	seen  sync.Mutex
	names map[string]string // nodes by session, also of sessions that have gone
}

func newClaimers(cfg Config, s *store.Store, info assign.NodeInfo) (_ *claimers, err error) {
	layout := cfg.Tables.Layout
	c := &claimers{databaseOf: layout.DatabaseOf, looks: make([]look, layout.Total()), names: map[string]string{}}
	id := name.NewID(cfg.Name)
	c.keeper, err = session.New(session.Config{
		Store: s, Group: cfg.Group, Node: id, Seat: true, Schema: layoutrow.SchemaVersion,
		Changed: func(databases []int) { c.remember(databases); c.Note() },
		Ended:   func(database int, id string) { c.intake.SessionEnded(database, id) },
		Gone: func(database int, _ []string) {
			first := database * layout.Tables
			c.scan.Gone(first, first+layout.Tables)
		},
		Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	if err != nil {
		return nil, err
	}
	c.Rows = assign.NewRows(assign.RowsConfig{
		Sessions: c.keeper, Store: s, Layout: layout, ServerOf: s.ServerOf, Group: cfg.Group, ID: id, Weight: cfg.Weight, Info: info,
		Changed: func() { c.set(func() {}) }, Registerer: cfg.Registerer,
	})
	return c, nil
}

// mostNames bounds how many sessions are remembered.
const mostNames = 10_000

// remember notes whose the sessions are: when one has gone, its claims are to say on which node their tasks were.
func (c *claimers) remember(databases []int) {
	c.seen.Lock()
	defer c.seen.Unlock()
	if len(c.names) > mostNames {
		clear(c.names)
	}
	for _, database := range databases {
		members, _ := c.keeper.Sessions(database)
		for _, m := range members {
			c.names[m.ID] = m.Node
		}
	}
}

// nodes returns whose the sessions are, or were.
func (c *claimers) nodes() map[string]string {
	c.seen.Lock()
	defer c.seen.Unlock()
	return maps.Clone(c.names)
}

// Run works on the tables until ctx ends. Then it takes in nothing more, and returns when what is in delivery has ended or
// is claimed. An error says what could not be settled.
func (c *claimers) Run(ctx context.Context) error {
	c.set(func() { c.begun = true })
	stop := func() { c.set(func() { c.begun = false }) }
	keeping, end := context.WithCancel(context.WithoutCancel(ctx))
	var kept sync.WaitGroup
	kept.Go(func() { c.keeper.Run(keeping) })
	defer kept.Wait()
	defer end()
	<-ctx.Done()
	stop()
	all := make([]int, len(c.looks))
	for table := range all {
		all[table] = table
	}
	flagged, cancel := context.WithTimeout(keeping, fenceTimeout/2)
	defer cancel()
	c.keeper.Drain(flagged)
	bounded, cancel := context.WithTimeout(keeping, fenceTimeout)
	defer cancel()
	_ = c.intake.Drain(bounded, all) // what is left, the dispatcher goes on settling, and says what is lost
	return nil
}

// use sets which databases are wrong: no work is done on their tables.
func (c *claimers) use(wrong []int) { c.set(func() { c.wrong = wrong }) }

// set changes what the looks depend on, and brings intake and scan to how each table is to be looked at then.
func (c *claimers) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	changed := map[look][]int{}
	for table, was := range c.looks {
		if now := c.wanted(table); now != was {
			changed[now] = append(changed[now], table)
			c.looks[table] = now
		}
	}
	for look, as := range map[look]*duequeue.Access{never: nil, second: {Guest: true}, first: {}} {
		if some := changed[look]; len(some) > 0 {
			c.scan.Set(some, as)
		}
	}
}

// wanted returns how a table is to be looked at. Called under mu.
func (c *claimers) wanted(table int) look {
	if !c.begun || slices.Contains(c.wrong, c.databaseOf(table)) {
		return never
	}
	if c.LooksFirst(table) {
		return first
	}
	return second
}

// leads reports whether the node does what one node of the group does for all.
func (c *claimers) leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun && c.Leads()
}
