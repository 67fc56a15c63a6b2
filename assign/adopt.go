package assign

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrIdentityInUse is returned by Adopt while nodes with other databases are registered.
var ErrIdentityInUse = errors.New("nodes with other databases are registered")

// Binding reads which databases the cluster is bound to in etcd. It returns the zero Binding if no node has bound it
// yet.
func (r *Registry) Binding(ctx context.Context) (Binding, error) {
	return readBinding(ctx, r.client, r.cluster)
}

// Refuse returns the error with which a node with databases of this identity would be refused, or nil. The error is
// ErrForeign, or tells why etcd can't be read.
func (r *Registry) Refuse(ctx context.Context, mine Identity) error {
	bound, err := r.Binding(ctx)
	if err != nil {
		return err
	}
	return bound.refuse(r.cluster, mine)
}

// Adopt binds the cluster to databases of another identity, because the earlier databases are gone for good. It returns
// the earlier binding. by names the caller. Adopt returns ErrIdentityInUse while a live node has databases of another
// identity.
func (r *Registry) Adopt(ctx context.Context, mine Identity, by string) (before Binding, err error) {
	before, err = r.Binding(ctx)
	if err != nil || before.ID == mine.ID {
		return before, err
	}
	when, err := r.noForeigner(ctx, mine)
	if err != nil {
		return before, fmt.Errorf("adopt %s: %w", mine, err)
	}
	resp, err := r.client.Txn(ctx).If(append(when, before.unchanged(r.cluster))...).Then(putBinding(r.cluster, mine, by)).Commit()
	if err == nil && !resp.Succeeded {
		err = errors.New("nodes come and go meanwhile: try again")
	}
	if err != nil {
		return before, fmt.Errorf("adopt %s: %w", mine, err)
	}
	return before, nil
}

// noForeigner returns the conditions that no node with other databases has registered since noForeigner looked.
func (r *Registry) noForeigner(ctx context.Context, mine Identity) (when []clientv3.Cmp, err error) {
	groups, err := r.Groups(ctx)
	if err != nil {
		return nil, err
	}
	for _, group := range groups {
		keys := spaceOf(r.cluster, group)
		v, err := readNodes(ctx, r.client, keys)
		if err != nil {
			return nil, err
		}
		if ids := v.foreigners(mine); len(ids) > 0 {
			return nil, fmt.Errorf("%w: stop %s of group %s, with %s", ErrIdentityInUse, strings.Join(ids, ", "), group, v.nodes[ids[0]].record.Identity)
		}
		when = append(when, clientv3.Compare(clientv3.ModRevision(keys.nodes()), "<", v.rev+1).WithPrefix())
	}
	return when, nil
}
