package assign

import (
	"encoding/json"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// view is a group's keys at one revision. A key that belongs to nobody is kept too, so that it can be removed.
type view struct {
	space  space
	rev    int64
	nodes  map[string]nodeKey // by id
	drains map[string]int64   // id of a node told to drain -> revision of its key
	epoch  epochKey
	settle bool       // a new epoch has just begun: nobody plans
	tables []tableKey // by table number; the zero tableKey means no key
}

// nodeKey is a node's key.
type nodeKey struct {
	lease   clientv3.LeaseID
	created int64 // revision that created the key
	mod     int64
	record  nodeRecord // zero if the value can't be decoded
}

// tableKey is a table's key.
type tableKey struct {
	lease   clientv3.LeaseID
	created int64 // revision that created the key: of two owners of a table, the later has the higher one
	mod     int64
}

func newView(s space, tables int, rev int64) view {
	return view{
		space: s, rev: rev, nodes: make(map[string]nodeKey), drains: make(map[string]int64), tables: make([]tableKey, tables),
	}
}

// clone gives a copy that later changes do not reach.
func (v view) clone() view {
	v.nodes, v.drains, v.tables = maps.Clone(v.nodes), maps.Clone(v.drains), slices.Clone(v.tables)
	return v
}

// put notes a key, or that it is gone. Keys with other names, and tables beyond the layout, are not ours.
func (v *view) put(kv *mvccpb.KeyValue, gone bool) {
	key := string(kv.Key)
	if gone {
		kv = &mvccpb.KeyValue{}
	}
	if key == v.space.epoch() {
		v.epoch = readEpoch(kv)
	} else if key == v.space.settling() {
		v.settle = clientv3.LeaseID(kv.Lease) != clientv3.NoLease // a key without a lease would stay for ever, so it does not count
	} else if v.space.isNode(key) && gone {
		delete(v.nodes, v.space.nodeOf(key))
	} else if v.space.isNode(key) {
		n := nodeKey{lease: clientv3.LeaseID(kv.Lease), created: kv.CreateRevision, mod: kv.ModRevision}
		if err := json.Unmarshal(kv.Value, &n.record); err != nil {
			n.record = nodeRecord{} // without weight it gets no table; if it has no lease either, it is removed
		}
		v.nodes[v.space.nodeOf(key)] = n
	} else if id, ok := v.space.drainOf(key); ok && gone {
		delete(v.drains, id)
	} else if ok {
		v.drains[id] = kv.ModRevision
	} else if table, ok := v.space.tableOf(key); ok && table < len(v.tables) {
		v.tables[table] = tableKey{lease: clientv3.LeaseID(kv.Lease), created: kv.CreateRevision, mod: kv.ModRevision}
	}
}

// apply brings the view to the revision of the last event.
func (v *view) apply(events []*clientv3.Event) {
	for _, e := range events {
		v.put(e.Kv, e.Type == clientv3.EventTypeDelete)
		v.rev = max(v.rev, e.Kv.ModRevision)
	}
}

// members gives the live nodes: those whose key has a lease. One that leaves or drains has no weight.
func (v view) members() []Member {
	members := make([]Member, 0, len(v.nodes))
	for id, n := range v.nodes {
		if n.lease == clientv3.NoLease {
			continue
		}
		m := Member{ID: id, Weight: n.record.Weight}
		if _, draining := v.drains[id]; draining || n.record.Leaving {
			m.Weight = 0
		}
		members = append(members, m)
	}
	return members
}

// owners gives the id of each table's owner: the live node with the lease of the table's key; "" is nobody.
func (v view) owners() []string {
	node := make(map[clientv3.LeaseID]string, len(v.nodes))
	for id, n := range v.nodes {
		node[n.lease] = id
	}
	delete(node, clientv3.NoLease)
	owners := make([]string, len(v.tables))
	for table, key := range v.tables {
		owners[table] = node[key.lease]
	}
	return owners
}

// orphans gives the keys, with their revisions, that no live node stands behind: nodes without a lease, tables whose
// lease is no node's, and drains of no node.
func (v view) orphans(owners []string) map[string]int64 {
	orphans := make(map[string]int64)
	for id, n := range v.nodes {
		if n.lease == clientv3.NoLease {
			orphans[v.space.node(id)] = n.mod
		}
	}
	for id, mod := range v.drains {
		if v.nodes[id].lease == clientv3.NoLease {
			orphans[v.space.drain(id)] = mod
		}
	}
	for table, key := range v.tables {
		if key.created != 0 && owners[table] == "" {
			orphans[v.space.table(table)] = key.mod
		}
	}
	return orphans
}
