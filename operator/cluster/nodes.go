package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/doctor"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/store"
)

// Group is the nodes of one group; the JSON of `tocsin cluster nodes`.
type Group struct {
	Group    string             `json:"group"`
	Nodes    []assign.NodeState `json:"nodes"` // null: etcd did not answer
	Unlisted []LastOwner        `json:"unlisted"`
	Asked    []AskedNode        `json:"asked,omitempty"`
	Faults   []Fault            `json:"faults,omitempty"` // handlers that get no task, biz types of a group without nodes
}

// Fault is something wrong with what a group delivers.
type Fault struct {
	Is  string `json:"is"`
	Fix string `json:"fix"` // what to change
}

// LastOwner is a node without a key in etcd that the owner rows in MySQL name for
// tables which no live node has: it has ended, or goes on in claim mode.
type LastOwner struct {
	ID     string `json:"id"`
	Tables int    `json:"tables"`
}

// AskedNode is what a node's status page says.
type AskedNode struct {
	Address string       `json:"address"`
	Report  *node.Report `json:"report"` // null: it does not answer
	Error   string       `json:"error,omitempty"`
}

// List reads etcd, MySQL and the status pages at ask. An error beside a result says what could not be read.
func (v View) List(ctx context.Context, only string, ask []string) ([]Group, error) {
	if v.cfg.ByRows {
		return v.listPresent(ctx, only, ask)
	}
	asked := v.askAll(ctx, ask)
	groups, failed := v.Nodes(ctx, only)
	if failed != nil {
		if v.cfg.NoEtcd != nil {
			return nil, v.cfg.NoEtcd
		}
		groups = []Group{}
	}
	policies, unread := v.policies(ctx)
	groups = addGroups(groups, policies, only, nodesOf(failed))
	if len(groups) > 0 {
		unread = errors.Join(unread, v.addUnlisted(ctx, groups, failed == nil))
	}
	if failed == nil && unread == nil {
		addFaults(groups, policies, only)
	}
	var foreign error
	if failed == nil && v.cfg.Foreign != nil {
		foreign = v.cfg.Foreign(ctx)
	}
	groups = addAsked(groups, asked, nodesOf(failed))
	groups = slices.DeleteFunc(groups, func(g Group) bool { return len(g.Nodes)+len(g.Unlisted)+len(g.Asked)+len(g.Faults) == 0 })
	byName(groups)
	return groups, errors.Join(failed, unread, foreign)
}

// nodesOf returns the nodes of a group that etcd does not list: none, or nil if etcd
// could not be read.
func nodesOf(failed error) []assign.NodeState {
	if failed != nil {
		return nil
	}
	return []assign.NodeState{}
}

// addGroups adds the groups of the policies that are not listed yet, with the given nodes.
func addGroups(groups []Group, policies []biztype.Policy, only string, nodes []assign.NodeState) []Group {
	for _, p := range policies {
		name := p.WithDefaults().Group
		if (only == "" || only == name) && !slices.ContainsFunc(groups, func(g Group) bool { return g.Group == name }) {
			groups = append(groups, Group{Group: name, Nodes: nodes, Unlisted: []LastOwner{}})
		}
	}
	return groups
}

// addFaults adds to each group its handlers that get no task, and its biz types if it has no node. Nothing is said of
// groups without nodes if no group has any: a cluster that has not been started yet has no fault.
func addFaults(groups []Group, policies []biztype.Policy, only string) {
	some := only != "" || slices.ContainsFunc(groups, func(g Group) bool { return len(g.Nodes) > 0 })
	for i, g := range groups {
		checks := doctor.Idle(policies, g.Members())
		if some && len(g.Nodes) == 0 {
			checks = append(checks, doctor.Away(policies, g.Group)...)
		}
		for _, c := range checks {
			groups[i].Faults = append(groups[i].Faults, Fault{c.Is, c.Fix})
		}
	}
}

// Members returns what the live nodes of the group deliver.
func (g Group) Members() (all []doctor.Member) {
	for _, n := range g.Nodes {
		all = append(all, doctor.Member{ID: n.ID, Group: g.Group, Version: n.Info.Version, Schema: n.Info.Schema, Types: n.Info.Types, Lacks: n.Info.Lacks})
	}
	return all
}

// addUnlisted adds the last owners of tables without an owner. The error names what
// could not be read.
func (v View) addUnlisted(ctx context.Context, groups []Group, etcd bool) error {
	db, err := store.Open(v.cfg.Tables)
	if err != nil {
		return err
	}
	defer db.Close()
	owners := map[string][]string{}
	if etcd {
		if owners, err = v.Owners(ctx); err != nil {
			return err
		}
	}
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.Group
	}
	rows, unread := ownerRows(ctx, db, names)
	for i, g := range groups {
		groups[i].Unlisted = lastOwners(g, rows[i], owners[g.Group])
	}
	return unread
}

// ownerRows reads the last owner of each table, for each of the groups, from all
// servers at once. The error names the servers that could not be read in full.
func ownerRows(ctx context.Context, db *store.Store, groups []string) ([]map[int]string, error) {
	ctx, cancel := context.WithTimeout(ctx, doctor.DefaultTimeout)
	defer cancel()
	rows, errs := make([]map[int]string, len(groups)), make([]error, len(db.Servers()))
	for i := range rows {
		rows[i] = map[int]string{}
	}
	var mu sync.Mutex // guards rows
	var readers sync.WaitGroup
	for server := range errs {
		readers.Go(func() {
			for i, group := range groups {
				found, err := db.Owners(ctx, server, group)
				mu.Lock()
				maps.Copy(rows[i], found)
				mu.Unlock()
				if errs[server] = err; err != nil {
					return // the next group would fail the same way
				}
			}
		})
	}
	readers.Wait()
	return rows, errors.Join(errs...)
}

// lastOwners counts the tables of a group that have no owner by etcd, by who took
// them last. owners nil: no table has one, or nobody knows.
func lastOwners(g Group, rows map[int]string, owners []string) []LastOwner {
	tables := map[string]int{}
	for table, id := range rows {
		if owners == nil || owners[table] == "" {
			tables[id]++
		}
	}
	unlisted := []LastOwner{}
	for id, n := range tables {
		if !slices.ContainsFunc(g.Nodes, func(n assign.NodeState) bool { return n.ID == id }) {
			unlisted = append(unlisted, LastOwner{id, n})
		}
	}
	slices.SortFunc(unlisted, func(x, y LastOwner) int { return strings.Compare(x.ID, y.ID) })
	return unlisted
}

// askAll asks all status pages at once.
func (v View) askAll(ctx context.Context, addresses []string) []AskedNode {
	asked := make([]AskedNode, len(addresses))
	as := v.cfg.Pages
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() {
			asked[i] = AskedNode{Address: address}
			var err error
			if address == "" {
				err = errNoPage
			} else {
				asked[i].Report, err = as.Ask(ctx, address)
			}
			if err != nil {
				asked[i].Error = OneLine(err)
			}
		})
	}
	wg.Wait()
	return asked
}

// addAsked adds what the status pages answered to their groups. Pages that don't
// answer are shown with the first group. A group that is not listed yet gets the
// given nodes.
func addAsked(groups []Group, asked []AskedNode, nodes []assign.NodeState) []Group {
	for _, one := range asked {
		name := ""
		if one.Report != nil {
			name = one.Report.Group
		}
		i := slices.IndexFunc(groups, func(g Group) bool { return name == "" || g.Group == name })
		if i < 0 {
			groups, i = append(groups, Group{Group: name, Nodes: nodes, Unlisted: []LastOwner{}}), len(groups)
		}
		groups[i].Asked = append(groups[i].Asked, one)
	}
	return groups
}
