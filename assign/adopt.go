package assign

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrIdentityInUse is why Adopt refuses: nodes of the other databases live.
var ErrIdentityInUse = errors.New("nodes with other databases are registered")

// Binding reads what etcd knows the cluster by; the zero Binding if no node has bound it yet.
func (r *Registry) Binding(ctx context.Context) (Binding, error) {
	return readBinding(ctx, r.client, r.cluster)
}

// Refuse reports why a node with databases of this identity would be refused; nil: it would not. The error is ErrForeign,
// or says why etcd can't be read.
func (r *Registry) Refuse(ctx context.Context, mine Identity) error {
	bound, err := r.Binding(ctx)
	if err != nil {
		return err
	}
	return bound.refuse(r.cluster, mine)
}

// Adopt binds the cluster to databases of another identity than before, which it returns: those of before are gone for
// good. by is who says so. It refuses with ErrIdentityInUse while a node lives whose databases have another identity.
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

// noForeigner returns the condition that no node with other databases has come since it looked.
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
