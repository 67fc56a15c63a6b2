package assign

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Why Drain and Undrain refuse.
var (
	ErrNoNode      = errors.New("no such node")
	ErrNotDraining = errors.New("it is not draining")
	ErrLastNode    = errors.New("no other node of its group would take its tables")
)

// drainTries is how often Drain looks anew because nodes came or went meanwhile.
const drainTries = 10

// drainRecord is the value of a drain's key, for people: that there is a key is what counts.
type drainRecord struct {
	Since time.Time `json:"since"` // by the clock of who wrote it
}

// Drain tells a live node to give up its tables in order and to take none, while it stays registered; that it has none
// left is seen by Nodes. It lasts until Undrain, or until the node is gone: a restarted node is a new one. To drain
// what is draining is no error. It refuses with ErrNoNode, and with ErrLastNode where nobody would own the tables.
func (r *Registry) Drain(ctx context.Context, group, id string) error {
	keys := spaceOf(r.cluster, group)
	for range drainTries {
		v, err := readNodes(ctx, r.client, keys)
		if err != nil {
			return err
		}
		if done, err := v.mayDrain(id); done || err != nil {
			return refusedDrain(keys, id, err)
		}
		resp, err := r.client.Txn(ctx).If(
			clientv3.Compare(clientv3.CreateRevision(keys.node(id)), ">", 0),
			clientv3.Compare(clientv3.ModRevision(keys.nodes()), "<", v.rev+1).WithPrefix(),
			clientv3.Compare(clientv3.ModRevision(keys.drains()), "<", v.rev+1).WithPrefix(),
		).Then(putDrain(keys, id)).Commit()
		if err != nil || resp.Succeeded {
			return refusedDrain(keys, id, err)
		}
	}
	return fmt.Errorf("drain node %s: nodes come and go too fast", keys.node(id))
}

// Undrain lets a node that Drain was called for take tables again. It refuses with ErrNotDraining.
func (r *Registry) Undrain(ctx context.Context, group, id string) error {
	keys := spaceOf(r.cluster, group)
	resp, err := r.client.Delete(ctx, keys.drain(id))
	if err == nil && resp.Deleted == 0 {
		err = ErrNotDraining
	}
	if err != nil {
		return fmt.Errorf("end the drain of node %s: %w", keys.node(id), err)
	}
	return nil
}

func refusedDrain(keys space, id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("drain node %s: %w", keys.node(id), err)
}

// putDrain writes the key of a drain. It has no lease: it outlives who wrote it, and is removed with its node.
func putDrain(keys space, id string) clientv3.Op {
	return clientv3.OpPut(keys.drain(id), encode(drainRecord{Since: time.Now().UTC().Truncate(time.Second)}))
}

// mayDrain reports whether a node is draining already, or why it must not.
func (v view) mayDrain(id string) (done bool, err error) {
	if v.nodes[id].lease == clientv3.NoLease {
		return false, ErrNoNode
	}
	if _, done = v.drains[id]; done {
		return true, nil
	}
	for _, m := range v.members() {
		if m.ID != id && m.Weight > 0 {
			return false, nil
		}
	}
	return false, ErrLastNode
}

// readNodes reads a group's nodes and drains, without its tables, at one revision.
func readNodes(ctx context.Context, client *clientv3.Client, keys space) (view, error) {
	resp, err := client.Txn(ctx).Then(
		clientv3.OpGet(keys.nodes(), clientv3.WithPrefix()), clientv3.OpGet(keys.drains(), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return view{}, fmt.Errorf("read the nodes of %s from etcd: %w", keys, err)
	}
	v := newView(keys, 0, resp.Header.Revision)
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().Kvs {
			v.put(kv, false)
		}
	}
	return v, nil
}

// noteDrain remembers whether this node is draining: a next incarnation drains on, as the operator meant this process.
func (s *session) noteDrain(v view) {
	_, draining := v.drains[s.id]
	if draining == s.draining {
		return
	}
	s.draining = draining
	if draining {
		s.log.Info("told to drain: giving up all tables and taking none")
	} else {
		s.log.Info("drain ended: taking tables again")
	}
}
