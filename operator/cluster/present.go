package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/doctor"
	"github.com/tocsinhq/tocsin/store"
)

// present reads the nodes from the node tables of all servers at once. The error names what could not be read.
func (v View) present(ctx context.Context) ([]assign.PresentNode, tocsin.Layout, error) {
	cfg := v.cfg.Tables
	db, err := store.Open(cfg)
	if err != nil {
		return nil, cfg.Layout, err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, doctor.DefaultTimeout)
	defer cancel()
	seen, errs := make([][]store.Attendee, len(db.Servers())), make([]error, len(db.Servers()))
	var readers sync.WaitGroup
	for server := range errs {
		readers.Go(func() { seen[server], errs[server] = db.Attending(ctx, server, assign.GoneAfter) })
	}
	readers.Wait()
	return assign.PresentNodes(cfg.Layout, slices.Concat(seen...)), cfg.Layout, errors.Join(errs...)
}

// presentNodes reads the nodes of one group, or of all if only is "", where nobody owns tables.
func (v View) presentNodes(ctx context.Context, only string) ([]Group, error) {
	nodes, _, err := v.present(ctx)
	if len(nodes) == 0 && err != nil {
		return nil, err
	}
	groups := []Group{}
	for _, n := range nodes {
		if only != "" && n.Group != only {
			continue
		}
		if len(groups) == 0 || groups[len(groups)-1].Group != n.Group {
			groups = append(groups, Group{Group: n.Group, Nodes: []assign.NodeState{}, Unlisted: []LastOwner{}})
		}
		g := &groups[len(groups)-1]
		g.Nodes = append(g.Nodes, n.NodeState)
	}
	return groups, err
}

// listPresent is allNodes where nobody owns tables.
func (v View) listPresent(ctx context.Context, only string, ask []string) ([]Group, error) {
	asked := v.askAll(ctx, ask)
	groups, err := v.presentNodes(ctx, only)
	policies, unread := v.policies(ctx)
	if err == nil && unread == nil {
		groups = addGroups(groups, policies, only, []assign.NodeState{})
		addFaults(groups, policies, only)
		groups = slices.DeleteFunc(groups, func(g Group) bool { return len(g.Nodes)+len(g.Faults) == 0 })
	}
	groups = addAsked(groups, asked, []assign.NodeState{})
	byName(groups)
	return groups, errors.Join(err, unread)
}

// firsts returns, by group, which node looks at each table first.
func (v View) firsts(ctx context.Context) (map[string][]string, error) {
	nodes, layout, err := v.present(ctx)
	if err != nil {
		return nil, err
	}
	owners := map[string][]string{}
	for _, n := range nodes {
		if owners[n.Group] == nil {
			owners[n.Group] = make([]string, layout.Total())
		}
		for _, table := range n.First {
			owners[n.Group][table] = n.ID
		}
	}
	return owners, nil
}
