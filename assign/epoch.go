package assign

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// An owner row orders the owners of a table: a later one writes a higher revision over a lower one. etcd's own
// revisions do that only while etcd remembers them. An etcd that was wiped, or restored from a snapshot, counts again
// from lower ones, and the owner rows would name past nodes for ever. So the revision of an owner row has two parts:
//
//	epoch, 23 bits | etcd revision at which the table's key was created, 40 bits
//
// A group's epoch stands in etcd. Within the life of one etcd it only grows, and so do the revisions of the owner rows.
// A node that detects that etcd has forgotten begins an epoch above that of every owner row. Writes of an earlier epoch
// that are still under way then lose, whoever sends them. A node detects it:
//
//	before it registers       if etcd has no epoch, or the owner rows have a revision that etcd has not reached yet
//	when it takes a table,    if the owner row has a higher revision than the node's key, and that key still stands
//	or takes it up again
//
// (etcd's cluster id does not show it: it is derived from the members' addresses, and so survives a wipe.)
//
// Three rules keep this safe; test/model has a history that goes wrong without each:
//
//	reserved      an epoch is reserved in MySQL before etcd has it: no two lives of etcd have the same one
//	same life     a node reads the epoch after it has its lease, and registers under that lease only if the epoch is unchanged
//	settling      nodes that etcd has forgotten may still trust their leases, for less than longestTrust. So a new epoch comes with
//	              a key under a lease that nobody renews, at least as long; while that key stands, nobody plans. Only a group's first
//	              epoch has none

// revisionBits is the number of bits of etcd's revision in an owner row's revision. They last 34 years at 1,000 writes
// a second.
const revisionBits = 40

// OwnerRevisions are the highest revisions of a group's owner rows.
type OwnerRevisions = store.OwnerRevisions

// OwnerRows are the owner rows of a group in MySQL, with the operations that epochs need.
type OwnerRows interface {
	// Read returns their highest revisions. It fails only if no database can be read.
	Read(ctx context.Context) (OwnerRevisions, error)

	// Reserve stores a revision if it is above all earlier reserved ones, and reports whether it was.
	Reserve(ctx context.Context, revision int64) (bool, error)
}

// fresh reports whether no node can have owned a table of the group.
func fresh(r store.OwnerRevisions) bool { return r.Taken == 0 && r.Reserved == 0 }

// ownerRevision returns the revision of the owner row for a key created at an etcd revision.
func ownerRevision(epoch, created int64) int64 { return epoch<<revisionBits + created }

// epochTries bounds how often a node checks whether another node begins the missing epoch.
const epochTries = 10

// errEpoch means that the epoch is not settled yet: the caller should try again.
var errEpoch = errors.New("other nodes begin an epoch")

// Overtaken is an error of Take: the owner row of a table has a higher revision than the table's key.
type Overtaken struct {
	Table    int   // the one whose owner row has the highest revision
	Revision int64 // of that row
	Err      error // the failure in full
}

// Error returns the text of Err.
func (o *Overtaken) Error() string { return o.Err.Error() }

// Unwrap returns Err.
func (o *Overtaken) Unwrap() error { return o.Err }

func (s space) epoch() string    { return string(s) + "epoch" }
func (s space) settling() string { return string(s) + "settling" }

// epochKey is the key of a group's epoch; the zero epochKey means that there is none.
type epochKey struct {
	epoch int64
	mod   int64 // revision of the key
}

// readEpoch reads a key's value. One that is not a number counts as 0, and so proves too low.
func readEpoch(kv *mvccpb.KeyValue) epochKey {
	epoch, _ := strconv.ParseInt(string(kv.Value), 10, 64)
	return epochKey{epoch: epoch, mod: kv.ModRevision}
}

// newEpoch is the epoch key that a node has read, and the epoch that the node begins, if any.
type newEpoch struct {
	from   epochKey // as it was read
	epoch  int64    // the one that the node begins; 0: from stays
	settle bool     // past nodes may still trust their leases
}

// wantEpoch reads the epoch, and reserves the next one if etcd has forgotten. rows were read earlier, so rows written
// under this etcd can't be ahead of it.
func (a *Assign) wantEpoch(ctx context.Context, rows store.OwnerRevisions) (newEpoch, error) {
	for try := range epochTries {
		is, now, err := a.readEpoch(ctx)
		if err != nil {
			return newEpoch{}, err
		}
		if is.mod > 0 && rows.Taken <= ownerRevision(is.epoch, now) {
			return newEpoch{from: is}, nil
		}
		if fresh(rows) || try > 0 {
			e, err := a.reserve(ctx, is, rows, try < epochTries-1)
			if !errors.Is(err, errEpoch) {
				return e, err
			}
		}
		_ = loop.Wait(ctx, epochPause) // another node may have reserved one, and may be registering
	}
	return newEpoch{}, errEpoch
}

// readEpoch reads the group's epoch and etcd's current revision.
func (a *Assign) readEpoch(ctx context.Context) (is epochKey, now int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	key := spaceOf(a.cfg.Cluster, a.cfg.Group).epoch()
	resp, err := a.cfg.Client.Get(ctx, key)
	if err != nil {
		return is, 0, fmt.Errorf("read %s from etcd: %w", key, err)
	}
	if len(resp.Kvs) > 0 {
		is = readEpoch(resp.Kvs[0])
	}
	return is, resp.Header.Revision, nil
}

// reserve reserves the next epoch in MySQL; it returns errEpoch if another node was faster. With patient, it lets a
// node that has just reserved a new group's first epoch register with it: a second epoch would make every node wait for
// a TTL.
func (a *Assign) reserve(ctx context.Context, is epochKey, rows store.OwnerRevisions, patient bool) (newEpoch, error) {
	now, err := a.cfg.OwnerRows.Read(ctx)
	if err != nil {
		return newEpoch{}, fmt.Errorf("read owner rows: %w", err)
	}
	now.Taken = max(now.Taken, rows.Taken)
	if patient && now.Taken == 0 && now.Reserved > a.reserved.Load() {
		return newEpoch{}, errEpoch
	}
	e := newEpoch{from: is, epoch: max(now.Taken, now.Reserved)>>revisionBits + 1, settle: !fresh(rows) || !fresh(now)}
	ok, err := a.cfg.OwnerRows.Reserve(ctx, ownerRevision(e.epoch, 0))
	switch {
	case err != nil:
		return newEpoch{}, fmt.Errorf("reserve epoch %d: %w", e.epoch, err)
	case !ok:
		return newEpoch{}, errEpoch
	}
	a.reserved.Store(ownerRevision(e.epoch, 0))
	return e, nil
}

// guard returns the condition that the epoch has not changed since it was read.
func (e newEpoch) guard(s space) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.epoch()), "=", e.from.mod)
}

// epochOps returns the writes that begin the epoch.
func (a *Assign) epochOps(ctx context.Context, e newEpoch) ([]clientv3.Op, error) {
	if e.epoch == 0 {
		return nil, nil
	}
	keys := spaceOf(a.cfg.Cluster, a.cfg.Group)
	ops := []clientv3.Op{clientv3.OpPut(keys.epoch(), strconv.FormatInt(e.epoch, 10))}
	if !e.settle {
		return ops, nil
	}
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	lease, err := a.cfg.Client.Grant(ctx, int64(a.settling()/time.Second)) // runs out by itself, used or not
	if err != nil {
		return nil, fmt.Errorf("grant a lease for epoch %d in etcd: %w", e.epoch, err)
	}
	return append(ops, clientv3.OpPut(keys.settling(), a.ID(), clientv3.WithLease(lease.ID))), nil
}

// settling returns for how long nothing is taken after a new epoch has begun. Nodes of earlier programs trust a longer lease as
// long as it is.
func (a *Assign) settling() time.Duration { return max(a.cfg.TTL, longestTrust) }

// noteEpoch logs that this node has begun an epoch.
func (a *Assign) noteEpoch(e newEpoch) {
	if e.epoch > 0 && e.settle {
		a.cfg.Logger.Warn("etcd does not know the owner rows of this group: it was wiped or restored, or no node kept epochs before; a new epoch begins",
			"group", a.cfg.Group, "epoch", e.epoch, "nothing_is_taken_for", a.settling().String())
	}
}

// suspect begins a new epoch if the reason why tables could not be taken proves that etcd has forgotten. An owner row
// with a higher revision than that of our key is such a proof only while our key still stands: without our key, it is
// the row of a later owner, and suspect does nothing. Nor is it a proof if the present epoch is above the row: some node has
// begun it since we took the table.
func (s *session) suspect(ctx context.Context, failed map[int]int64, reason error) error {
	var o *Overtaken
	if s.cfg.OwnerRows == nil || !errors.As(reason, &o) || failed[o.Table] == 0 {
		return nil
	}
	is := s.mirror.snapshot().epoch
	if o.Revision < ownerRevision(is.epoch, 0) {
		return nil
	}
	e, err := s.reserve(ctx, is, store.OwnerRevisions{Taken: o.Revision}, false)
	if errors.Is(err, errEpoch) {
		return nil // the table will be tried again
	} else if err != nil {
		return err
	}
	ops, err := s.epochOps(ctx, e)
	if err != nil {
		return err
	}
	key := s.writer.space.table(o.Table)
	stands := clientv3.Compare(clientv3.CreateRevision(key), "=", failed[o.Table])
	resp, err := s.writer.commit(ctx, []clientv3.Cmp{e.guard(s.writer.space), s.writer.mine(key), stands}, ops...)
	if err == nil && resp.Succeeded {
		s.noteEpoch(e)
	}
	return s.writer.wrap(err, "begin an epoch as the owner row is ahead")
}

// ownerRevisions returns the revisions of the owner rows for tables whose keys the view shows (table -> revision that
// created the key). They grow from owner to owner: a later owner's key is created after the earlier one's is gone, so
// its view is later too, and has no lower epoch.
func (v view) ownerRevisions(tables map[int]int64) map[int]int64 {
	revisions := make(map[int]int64, len(tables))
	for table, created := range tables {
		revisions[table] = ownerRevision(v.epoch.epoch, created)
	}
	return revisions
}
