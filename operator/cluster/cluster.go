package cluster

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
)

// Config says where a cluster can be asked.
type Config struct {
	Tables tocsin.Config
	ByRows bool          // nobody owns tables: nodes are in the node tables, and etcd is not asked
	Grace  time.Duration // how long a task must be overdue before a sweeper takes it
	Listen string        // status page of a node on this host, or on another with the same config; "": not known

	Registry func(context.Context) (*assign.Registry, error) // opens the keys in etcd, which the caller of it closes; not used with ByRows
	NoEtcd   error                                           // why the config leads to no etcd at all; nil: it does
	Foreign  func(context.Context) error                     // whether the keys in etcd are another cluster's; nil: not asked
	Pages    Asker
}

// View asks a cluster. Make one with New. It holds no connections, and is safe for concurrent use.
type View struct{ cfg Config }

// New makes a View.
func New(cfg Config) View { return View{cfg} }

// Nodes reads the nodes of one group, or of all if only is "".
func (v View) Nodes(ctx context.Context, only string) ([]Group, error) {
	if v.cfg.ByRows {
		return v.presentNodes(ctx, only)
	}
	keys, err := v.cfg.Registry(ctx)
	if err != nil {
		return nil, err
	}
	defer keys.Close()
	return NodesIn(ctx, keys, only)
}

// NodesIn reads the nodes that are registered in etcd.
func NodesIn(ctx context.Context, keys *assign.Registry, only string) ([]Group, error) {
	names := []string{only}
	if only == "" {
		var err error
		if names, err = keys.Groups(ctx); err != nil {
			return nil, err
		}
	}
	groups := []Group{}
	for _, name := range names {
		nodes, err := keys.Nodes(ctx, name)
		if err != nil {
			return nil, err
		}
		groups = append(groups, Group{Group: name, Nodes: nodes, Unlisted: []LastOwner{}})
	}
	return groups, nil
}

// Owners returns the owner of each table by group; if nobody owns tables, who looks at it first.
func (v View) Owners(ctx context.Context) (map[string][]string, error) {
	if v.cfg.ByRows {
		return v.firsts(ctx)
	}
	keys, err := v.cfg.Registry(ctx)
	if err != nil {
		return nil, err
	}
	defer keys.Close()
	names, err := keys.Groups(ctx)
	if err != nil {
		return nil, err
	}
	owners := map[string][]string{}
	for _, name := range names {
		if owners[name], err = keys.Owners(ctx, name); err != nil {
			return nil, err
		}
	}
	return owners, nil
}

// policies reads the stored policies, with the defaults filled in.
func (v View) policies(ctx context.Context) ([]biztype.Policy, error) {
	policies, err := biztype.Load(ctx, v.cfg.Tables)
	for i, p := range policies {
		policies[i] = p.WithDefaults()
	}
	return policies, err
}

// byName sorts groups.
func byName(groups []Group) {
	slices.SortFunc(groups, func(x, y Group) int { return strings.Compare(x.Group, y.Group) })
}
