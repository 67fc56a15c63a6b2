package assign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxTables is the most tables a layout can have.
const maxTables = 8192

// NodeState is a node as its group sees it.
type NodeState struct {
	ID      string        `json:"id"`
	Info    NodeInfo      `json:"info"`
	Weight  int           `json:"weight"`
	Leaving bool          `json:"leaving"`
	Tables  int           `json:"tables"`  // how many it owns
	TTL     time.Duration `json:"ttl_ns"`  // what is left of its lease, whole seconds; 0: it has none
	Lacks   []string      `json:"lacks"`   // types that others of the group have handlers for and it has not
	Extra   []string      `json:"extra"`   // types that it has handlers for and not all others have
	Differs bool          `json:"differs"` // whether there are any of these
}

// Nodes reads the nodes of a group, by id. It changes nothing.
func Nodes(ctx context.Context, client *clientv3.Client, cluster, group string) ([]NodeState, error) {
	v, err := readView(ctx, client, spaceOf(cluster, group), maxTables)
	if err != nil {
		return nil, err
	}
	owned := make(map[string]int)
	for _, owner := range v.owners() {
		owned[owner]++
	}
	states := make([]NodeState, 0, len(v.nodes))
	for _, id := range sortedKeys(v.nodes) {
		r := v.nodes[id].record
		state := NodeState{ID: id, Info: r.NodeInfo, Weight: r.Weight, Leaving: r.Leaving, Tables: owned[id]}
		state.Lacks, state.Extra = differing(r.NodeInfo, v.infosBut(id))
		state.Differs = len(state.Lacks)+len(state.Extra) > 0
		if state.TTL, err = leaseLeft(ctx, client, v.nodes[id].lease); err != nil {
			return nil, fmt.Errorf("read the lease of node %s from etcd: %w", id, err)
		}
		states = append(states, state)
	}
	return states, nil
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

// Groups reads the names of the groups that have nodes or own tables, sorted. It changes nothing.
func Groups(ctx context.Context, client *clientv3.Client, cluster string) ([]string, error) {
	prefix := groupsOf(cluster)
	groups, from, end := []string{}, prefix, clientv3.GetPrefixRangeEnd(prefix)
	for { // from group to group: one has thousands of keys
		resp, err := client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return nil, fmt.Errorf("read the groups below %s from etcd: %w", prefix, err)
		}
		if len(resp.Kvs) == 0 {
			slices.Sort(groups) // the keys are in another order: "a-b/" is before "a/"
			return groups, nil
		}
		group, _, _ := strings.Cut(strings.TrimPrefix(string(resp.Kvs[0].Key), prefix), "/")
		groups = append(groups, group)
		from = clientv3.GetPrefixRangeEnd(string(spaceOf(cluster, group)))
	}
}

// Tables reads the owner's node id of every table of a layout with total tables; "" is nobody. It changes nothing.
func Tables(ctx context.Context, client *clientv3.Client, cluster, group string, total int) ([]string, error) {
	v, err := readView(ctx, client, spaceOf(cluster, group), total)
	if err != nil {
		return nil, err
	}
	return v.owners(), nil
}
