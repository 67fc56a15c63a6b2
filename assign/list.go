package assign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// How a node comes to its tables, as its keys say, or its rows. A node whose lease has ended goes on in claim mode, if it lives; it has
// no key then.
const (
	ModeOwnership = "ownership"
	ModeDraining  = "draining"
	ModeLeaving   = "leaving"
	ModeRows      = "rows"     // nobody owns tables: it claims each row
	ModeNoLease   = "no lease" // the key was overwritten by hand; its node, or after a TTL another, mends it
)

// Registry is an operator's look at a cluster's keys, from outside of its nodes. Only Drain, Undrain and Adopt change something.
// Its methods are safe for concurrent use.
type Registry struct {
	client  *clientv3.Client
	cluster string
	tables  int
}

// OpenRegistry dials etcd. tables is how many the layout of the cluster has. It is the caller's to close.
func OpenRegistry(ctx context.Context, cfg EtcdConfig, cluster string, tables int) (*Registry, error) {
	client, err := Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Registry{client: client, cluster: cluster, tables: tables}, nil
}

// Alarms returns etcd's error for an alarm that it has raised, with which nodes can't write: reads don't show it. It returns nil if
// this user may not ask.
func (r *Registry) Alarms(ctx context.Context) error {
	resp, err := r.client.AlarmList(ctx)
	if err != nil {
		return nil
	}
	for _, raised := range resp.Alarms {
		switch raised.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			return rpctypes.ErrNoSpace
		case etcdserverpb.AlarmType_CORRUPT:
			return rpctypes.ErrCorrupt
		}
	}
	return nil
}

// Writable returns etcd's error if this user may not write below the cluster's prefix, as a node does, or if no majority takes a
// write. It changes nothing: etcd judges the writes of a transaction before its condition, which never holds.
func (r *Registry) Writable(ctx context.Context) error {
	key := "/" + r.cluster + "/writable"
	never := clientv3.Compare(clientv3.Version(key), "<", 0)
	_, err := r.client.Txn(ctx).If(never).Then(clientv3.OpPut(key, ""), clientv3.OpDelete(key+"/")).Commit()
	return err
}

// Close ends the connection to etcd.
func (r *Registry) Close() error { return r.client.Close() }

func (r *Registry) read(ctx context.Context, group string) (view, error) {
	return readView(ctx, r.client, spaceOf(r.cluster, group), r.tables)
}

// NodeState is a node as its group sees it.
type NodeState struct {
	ID      string        `json:"id"`
	Info    NodeInfo      `json:"info"`
	Weight  int           `json:"weight"`
	Mode    string        `json:"mode"` // one of Mode...
	Leaving bool          `json:"leaving"`
	Tables  int           `json:"tables"`  // how many it owns
	Wanted  int           `json:"wanted"`  // how many it would own by the plan of these keys
	TTL     time.Duration `json:"ttl_ns"`  // what is left of its lease, whole seconds; 0: it has none
	Misses  []int         `json:"misses"`  // numbers of databases that it can't reach
	Lacks   []string      `json:"lacks"`   // types that others of the group have handlers for and it has not
	Extra   []string      `json:"extra"`   // types that it has handlers for and not all others have
	Differs bool          `json:"differs"` // whether there are any of these
	Identity
}

// Nodes reads the nodes of a group, by id.
func (r *Registry) Nodes(ctx context.Context, group string) ([]NodeState, error) {
	v, err := r.read(ctx, group)
	if err != nil {
		return nil, err
	}
	owners := v.owners()
	owned, wanted := tally(owners), tally(PlanMeanwhile(v.members(), owners, v.misses(), v.pausing("")))
	states := make([]NodeState, 0, len(v.nodes))
	for _, id := range sortedKeys(v.nodes) {
		is := v.nodes[id].record
		state := NodeState{ID: id, Info: is.NodeInfo, Weight: is.Weight, Mode: v.modeOf(id), Leaving: is.Leaving, Identity: is.Identity}
		state.Misses = append([]int{}, is.Misses...)
		state.Tables, state.Wanted = owned[id], wanted[id]
		state.Lacks, state.Extra = differing(is.NodeInfo, v.infosBut(id))
		state.Differs = len(state.Lacks)+len(state.Extra) > 0
		if state.TTL, err = leaseLeft(ctx, r.client, v.nodes[id].lease); err != nil {
			return nil, fmt.Errorf("read the lease of node %s from etcd: %w", id, err)
		}
		states = append(states, state)
	}
	return states, nil
}

// modeOf gives the mode of a node that has a key.
func (v view) modeOf(id string) string {
	_, draining := v.drains[id]
	switch n := v.nodes[id]; {
	case n.lease == clientv3.NoLease:
		return ModeNoLease
	case n.record.Leaving:
		return ModeLeaving
	case draining:
		return ModeDraining
	default:
		return ModeOwnership
	}
}

// tally counts the tables of each owner.
func tally(owners []string) map[string]int {
	counts := make(map[string]int)
	for _, owner := range owners {
		counts[owner]++
	}
	return counts
}

// leaseLeft gives what is left of a lease; 0 if there is none.
func leaseLeft(ctx context.Context, client *clientv3.Client, id clientv3.LeaseID) (time.Duration, error) {
	if id == clientv3.NoLease {
		return 0, nil
	}
	resp, err := client.TimeToLive(ctx, id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return max(time.Duration(resp.TTL)*time.Second, 0), nil
}

// Groups reads the names of the groups that have nodes or own tables, sorted.
func (r *Registry) Groups(ctx context.Context) ([]string, error) {
	prefix := groupsOf(r.cluster)
	groups, from, end := []string{}, prefix, clientv3.GetPrefixRangeEnd(prefix)
	for { // from group to group: one has thousands of keys
		resp, err := r.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return nil, fmt.Errorf("read the groups below %s from etcd: %w", prefix, err)
		}
		if len(resp.Kvs) == 0 {
			slices.Sort(groups) // the keys are in another order: "a-b/" is before "a/"
			return groups, nil
		}
		group, rest, _ := strings.Cut(strings.TrimPrefix(string(resp.Kvs[0].Key), prefix), "/")
		if rest == "epoch" { // the epoch outlives the group's nodes
			from = string(resp.Kvs[0].Key) + "\x00"
			continue
		}
		groups = append(groups, group)
		from = clientv3.GetPrefixRangeEnd(string(spaceOf(r.cluster, group)))
	}
}

// Owners reads the owner's node id of every table; "" is nobody.
func (r *Registry) Owners(ctx context.Context, group string) ([]string, error) {
	v, err := r.read(ctx, group)
	if err != nil {
		return nil, err
	}
	return v.owners(), nil
}
