package assign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// txnTables is how many tables one transaction takes or frees: etcd allows 128 operations.
const txnTables = 100

// errTaken says that somebody else has registered under the same id.
var errTaken = errors.New("the id is taken")

// writer makes one incarnation's changes in etcd. Each carries its own condition, so a late or repeated one does no harm.
type writer struct {
	client  *clientv3.Client
	cluster string
	space   space
	id      string
	lease   clientv3.LeaseID
	timeout time.Duration // of one transaction
}

// register creates the node's key, draining if its former incarnation was, and makes other changes, if other conditions
// hold. It returns errTaken if the key exists, or errEpoch if one of the other conditions may have failed.
func (w writer) register(ctx context.Context, r nodeRecord, draining bool, more []clientv3.Op, when ...clientv3.Cmp) error {
	for range bindTries {
		bound, ops, err := w.bind(ctx, r.Identity)
		if err == nil {
			err = w.refuseBeside(ctx, r.Identity)
		}
		if err != nil {
			return w.wrap(err, "register")
		}
		ops = append(append(ops, w.putNode(r)), more...)
		if draining {
			ops = append(ops, putDrain(w.space, w.id))
		}
		absent := clientv3.Compare(clientv3.CreateRevision(w.space.node(w.id)), "=", 0)
		resp, err := w.commit(ctx, append(slices.Clone(when), absent, bound.unchanged(w.cluster)), ops...)
		if err != nil || resp.Succeeded {
			return w.wrap(err, "register")
		}
	}
	if len(when) > 0 {
		return w.wrap(errEpoch, "register")
	}
	return w.wrap(errTaken, "register")
}

// restore writes the node's key again after somebody removed or overwrote it. mod is the revision at which it was seen
// wrong, 0 where it is missing; if it has changed since, nothing is written.
func (w writer) restore(ctx context.Context, r nodeRecord, mod int64) error {
	unchanged := clientv3.Compare(clientv3.ModRevision(w.space.node(w.id)), "=", mod)
	_, err := w.commit(ctx, []clientv3.Cmp{unchanged}, w.putNode(r))
	return w.wrap(err, "restore the key")
}

// update writes the node's key, and makes other changes, if it is still ours. It returns the revision of the write, or 0 if
// nothing was written.
func (w writer) update(ctx context.Context, r nodeRecord, more ...clientv3.Op) (rev int64, err error) {
	resp, err := w.commit(ctx, []clientv3.Cmp{w.mine(w.space.node(w.id))}, append(more, w.putNode(r))...)
	if err == nil && resp.Succeeded {
		rev = resp.Header.Revision
	}
	return rev, w.wrap(err, "write the key")
}

// take creates the keys of those tables that have none, each decided on its own, while the node's own key is ours.
// It returns the revision of the last write, 0 where nothing was written.
func (w writer) take(ctx context.Context, tables []int) (rev int64, err error) {
	value := encode(tableRecord{Node: w.id, Lease: leaseText(w.lease)})
	registered := w.mine(w.space.node(w.id))
	return w.each(ctx, "take tables", tables, []clientv3.Cmp{registered}, func(table int) clientv3.Op {
		key := w.space.table(table)
		absent := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
		put := clientv3.OpPut(key, value, clientv3.WithLease(w.lease))
		return clientv3.OpTxn([]clientv3.Cmp{absent}, []clientv3.Op{put}, nil)
	})
}

// free deletes the keys of tables (table -> revision that created it) as far as they are still those and ours. It
// returns as take does.
func (w writer) free(ctx context.Context, tables map[int]int64) (rev int64, err error) {
	return w.each(ctx, "free tables", sortedKeys(tables), nil, func(table int) clientv3.Op {
		key := w.space.table(table)
		same := clientv3.Compare(clientv3.CreateRevision(key), "=", tables[table])
		return clientv3.OpTxn([]clientv3.Cmp{w.mine(key), same}, []clientv3.Op{clientv3.OpDelete(key)}, nil)
	})
}

// sweep deletes keys that no node stands behind, as far as they are unchanged since the revision they were seen at.
func (w writer) sweep(ctx context.Context, orphans map[string]int64) error {
	for chunk := range slices.Chunk(sortedKeys(orphans), txnTables) {
		ops := make([]clientv3.Op, len(chunk))
		for i, key := range chunk {
			unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", orphans[key])
			ops[i] = clientv3.OpTxn([]clientv3.Cmp{unchanged}, []clientv3.Op{clientv3.OpDelete(key)}, nil)
		}
		if _, err := w.commit(ctx, nil, ops...); err != nil {
			return w.wrap(err, "remove keys without a node")
		}
	}
	return nil
}

// each commits one operation per table, many per transaction, each of which demands when.
func (w writer) each(
	ctx context.Context, what string, tables []int, when []clientv3.Cmp, op func(table int) clientv3.Op,
) (rev int64, err error) {
	for chunk := range slices.Chunk(tables, txnTables) {
		ops := make([]clientv3.Op, len(chunk))
		for i, table := range chunk {
			ops[i] = op(table)
		}
		resp, err := w.commit(ctx, when, ops...)
		if err != nil {
			return rev, w.wrap(err, fmt.Sprintf("%s %d to %d", what, chunk[0], chunk[len(chunk)-1]))
		}
		if wrote(resp) {
			rev = resp.Header.Revision
		}
	}
	return rev, nil
}

// wrote reports whether any nested transaction's condition held.
func wrote(resp *clientv3.TxnResponse) bool {
	for _, r := range resp.Responses {
		if nested := r.GetResponseTxn(); nested != nil && nested.Succeeded {
			return true
		}
	}
	return false
}

func (w writer) commit(ctx context.Context, when []clientv3.Cmp, then ...clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return w.client.Txn(ctx).If(when...).Then(then...).Commit()
}

// mine is the condition that a key is under our lease.
func (w writer) mine(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.LeaseValue(key), "=", w.lease)
}

func (w writer) putNode(r nodeRecord) clientv3.Op {
	return clientv3.OpPut(w.space.node(w.id), encode(r), clientv3.WithLease(w.lease))
}

// sortedKeys makes what is sent, and so what is logged, the same every time.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// wrap names what was tried. An unknown lease becomes errLost; ErrForeign is returned as it is.
func (w writer) wrap(err error, what string) error {
	if err == nil || errors.Is(err, ErrForeign) {
		return err
	}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		err = fmt.Errorf("%w: %w", errLost, err)
	}
	return fmt.Errorf("%s of node %s in etcd: %w", what, w.space.node(w.id), err)
}
