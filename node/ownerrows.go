package node

import (
	"context"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/store"
)

// ownerRows are the owner rows of a group, for epochs. A server that does not answer
// soon is left out.
type ownerRows struct {
	store *store.Store
	group string
	node  string
}

// Read returns the highest revisions.
func (o ownerRows) Read(ctx context.Context) (assign.OwnerRevisions, error) {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	r, err := o.store.OwnerRevisions(ctx, o.group)
	if r.Databases == 0 {
		return assign.OwnerRevisions{}, err
	}
	return assign.OwnerRevisions{Taken: r.Taken, Reserved: r.Reserved}, nil
}

// Reserve stores a revision.
func (o ownerRows) Reserve(ctx context.Context, revision int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	return o.store.Reserve(ctx, o.group, o.node, revision)
}
