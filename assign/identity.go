package assign

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
)

// A cluster id is a name that people choose, so two sets of databases can have the same one. The first node that
// registers binds the id to the identity of its databases, under a key without a lease:
//
//	/{cluster}/identity    Binding
//
// A node with databases of another identity is refused. The key outlives all nodes: a foreign node that restarts in a
// loop must not get in while the cluster's own nodes are stopped.

// ErrForeign refuses a node whose databases are not those to which etcd has bound the cluster.
var ErrForeign = errors.New("etcd knows the cluster by other databases")

// Identity tells which databases a node works on.
type Identity struct {
	ID        string `json:"identity,omitempty"`  // the same in all databases of a cluster; "": they have none
	Databases string `json:"databases,omitempty"` // for people: their names and addresses
}

// NewIdentity returns the identity of a config's databases, whose layout rows hold id.
func NewIdentity(id string, cfg tocsin.Config) Identity {
	databases := cfg.Layout.Database(0)
	if last := cfg.Layout.Databases - 1; last > 0 {
		databases += " to " + cfg.Layout.Database(last)
	}
	var servers []string
	for _, spec := range client.Specs(cfg) {
		servers = append(servers, spec.Name)
	}
	return Identity{ID: id, Databases: databases + " on " + strings.Join(servers, ", ")}
}

// String names the databases and their identity.
func (i Identity) String() string {
	return fmt.Sprintf("%s (identity %s)", cmp.Or(i.Databases, "unnamed databases"), cmp.Or(i.ID, "none"))
}

// foreignTo reports whether the two are certainly of different clusters.
func (i Identity) foreignTo(other Identity) bool {
	return i.ID != "" && other.ID != "" && i.ID != other.ID
}

// Binding is what etcd stores about a cluster's databases. The zero Binding means that the cluster is not bound.
type Binding struct {
	Identity
	Node  string    `json:"node"`  // the writer: a node's id, or another name
	Since time.Time `json:"since"` // by the writer's clock
	mod   int64     // revision of the key; 0: there is none
}

// bindTries is how often a node reads the binding again because another has bound the cluster meanwhile.
const bindTries = 3

func identityKey(cluster string) string { return "/" + cluster + "/identity" }

// readBinding reads the key. A value that can't be decoded binds nothing, and may be overwritten.
func readBinding(ctx context.Context, client *clientv3.Client, cluster string) (Binding, error) {
	resp, err := client.Get(ctx, identityKey(cluster))
	if err != nil {
		return Binding{}, fmt.Errorf("read %s from etcd: %w", identityKey(cluster), err)
	}
	var b Binding
	for _, kv := range resp.Kvs {
		if err := json.Unmarshal(kv.Value, &b); err != nil {
			b = Binding{}
		}
		b.mod = kv.ModRevision
	}
	return b, nil
}

// refuse returns why databases of this identity don't fit the binding; nil if they do, or if the cluster is not bound.
func (b Binding) refuse(cluster string, mine Identity) error {
	switch {
	case b.ID == "" || b.ID == mine.ID:
		return nil
	case mine.ID == "":
		return fmt.Errorf("%w: %q is that of %s, as %s wrote on %s; those of this config, %s, have no identity: run `tocsin ddl apply`, and then `tocsin cluster adopt` if they replace the others",
			ErrForeign, cluster, b.Identity, b.Node, b.Since.Format(time.DateOnly), mine.Databases)
	}
	return fmt.Errorf("%w: %q is that of %s, as %s wrote on %s, this config has %s: give one of the two clusters another id, or run `tocsin cluster adopt` if the other databases are gone for good",
		ErrForeign, cluster, b.Identity, b.Node, b.Since.Format(time.DateOnly), mine)
}

// unchanged is the condition that the binding is still as it was read.
func (b Binding) unchanged(cluster string) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(identityKey(cluster)), "=", b.mod)
}

func putBinding(cluster string, mine Identity, node string) clientv3.Op {
	return clientv3.OpPut(identityKey(cluster), encode(Binding{Identity: mine, Node: node, Since: time.Now().UTC().Truncate(time.Second)}))
}

// bind returns the binding on which a change of the node's key depends, and the write that binds the cluster to the
// node's databases if nobody has. It returns ErrForeign if the cluster is bound to other databases.
func (w writer) bind(ctx context.Context, mine Identity) (bound Binding, then []clientv3.Op, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	if bound, err = readBinding(ctx, w.client, w.cluster); err == nil {
		err = bound.refuse(w.cluster, mine)
	}
	if err == nil && bound.ID == "" && mine.ID != "" {
		then = append(then, putBinding(w.cluster, mine, w.id))
	}
	return bound, then, err
}

// refuseBeside refuses to register beside live nodes with other databases: somebody may have removed the binding.
func (w writer) refuseBeside(ctx context.Context, mine Identity) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	v, err := readNodes(ctx, w.client, w.space)
	if err != nil {
		return err
	}
	for _, id := range v.foreigners(mine) {
		return Binding{Identity: v.nodes[id].record.Identity, Node: id, Since: v.nodes[id].record.Started}.refuse(w.cluster, mine)
	}
	return nil
}

// identify publishes an identity that the node's databases were given after it registered.
func (w writer) identify(ctx context.Context, r nodeRecord) error {
	own := w.mine(w.space.node(w.id))
	for range bindTries {
		bound, then, err := w.bind(ctx, r.Identity)
		if err != nil {
			return w.wrap(err, "publish the identity")
		}
		resp, err := w.commit(ctx, []clientv3.Cmp{bound.unchanged(w.cluster), own}, append(then, w.putNode(r))...)
		if err != nil || resp.Succeeded {
			return w.wrap(err, "publish the identity")
		}
	}
	return w.wrap(errors.New("the keys keep changing"), "publish the identity")
}

// foreigners returns the live nodes with databases of another identity, sorted.
func (v view) foreigners(mine Identity) (ids []string) {
	for id, n := range v.nodes {
		if n.lease != clientv3.NoLease && n.record.Identity.foreignTo(mine) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// identity returns the current identity of the databases. Once known, it is remembered while they are away.
func (a *Assign) identity() Identity {
	if a.cfg.Identity == nil {
		return Identity{}
	}
	now := a.cfg.Identity()
	if last := a.identified.Load(); now.ID == "" && last != nil {
		return *last
	}
	a.identified.Store(&now)
	return now
}

// compareIdentities logs when nodes of the group work on other databases: tables that they own are not delivered.
func (s *session) compareIdentities(v view) {
	ids := v.foreigners(s.record.Identity)
	s.foreign.Store(int64(len(ids)))
	for _, id := range ids {
		s.limit.Of(s.log, "foreign "+nameOf(id)).Error("a node of another cluster with the same id shares the tables: stop it, and give one of the two clusters another id",
			"foreign_node", id, "foreign_databases", v.nodes[id].record.Identity.String(), "own_databases", s.record.Identity.String())
	}
}

// tellIdentity publishes the identity of the databases when they get one, or another one. A running node goes on even
// if etcd has bound the cluster to other databases: the other node may be the wrong one.
func (s *session) tellIdentity(ctx context.Context) error {
	now := s.identity()
	if now == s.record.Identity {
		return nil
	}
	record := s.record
	record.Identity = now
	err := s.writer.identify(ctx, record)
	if errors.Is(err, ErrForeign) {
		s.tellForeign(err, "going on with the tables that it has")
		return s.put(ctx, record)
	}
	if err == nil {
		s.record = record
	}
	return err
}

// tellForeign logs, at most once a minute, that a running node would be refused if it registered now, and what follows.
func (a *Assign) tellForeign(refusal error, follows string) {
	a.limit.Of(a.cfg.Logger, "foreign").Error("the databases of this node are not those that etcd knows the cluster by: "+follows,
		"error", refusal, "node", a.ID())
}
