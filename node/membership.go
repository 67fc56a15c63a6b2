package node

import (
	"context"
	"sync"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// membership is a node's place in its group: *assign.Assign where nodes own tables, *claimers where nobody does.
type membership interface {
	group
	Run(ctx context.Context) error
	ID() string
	Peers() int
	Owned() int
	Wanted() int
	Delivered(ctx context.Context) (map[string]bool, error) // the biz types that other nodes of the group deliver
}

// join makes the node's place in its group.
func (p *parts) join(ctx context.Context) (err error) {
	info := assign.NodeInfo{Version: p.cfg.Version, Schema: layoutrow.SchemaVersion, Listen: p.cfg.Listen, Started: p.started}
	if p.cfg.Ownership == ByRows {
		p.claimers, err = newClaimers(p.cfg, p.store, info)
		p.group = p.claimers
		return err
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
