package api

import (
	"context"
	"net/http"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
)

// cluster registers the operations that show nodes and tables. They are of all biz types at once, so a token for some of
// them may not ask.
func (a *API) cluster() {
	register(a, operation{
		id: "list_nodes", method: http.MethodGet, path: "/cluster/nodes", tag: "cluster", needs: apitoken.Read, connects: true, allTypes: true,
		summary: "List the nodes of all groups",
		about:   "As etcd or the node tables list them, and what is wrong with what a group delivers.",
	}, a.listNodes)
	register(a, operation{
		id: "list_tables", method: http.MethodGet, path: "/cluster/tables", tag: "cluster", needs: apitoken.Read, connects: true, allTypes: true,
		summary: "Say which nodes own which tables",
		about:   "With counts also the tasks that wait there, which reads an index of every table.",
	}, a.listTables)
}

// groupQuery names groups.
type groupQuery struct {
	Group string `query:"group" maxLength:"64" doc:"This group only"`
}

// tablesQuery names groups, and which details to return.
type tablesQuery struct {
	Group  string `query:"group" maxLength:"64" doc:"This group only"`
	Counts bool   `query:"counts" doc:"Count the tasks too"`
}

// Node is a node that is registered, or was seen lately.
type Node struct {
	ID            string            `json:"id" example:"host-1-4mzkq7ta"`
	Mode          string            `json:"mode"`
	Version       string            `json:"version"`
	Weight        int               `json:"weight"`
	Tables        int               `json:"tables" doc:"That it owns, or looks at first"`
	Wanted        int               `json:"wanted" doc:"That it is to own"`
	LeaseMS       int64             `json:"lease_ms" doc:"What is left of its lease; without etcd until it counts as gone"`
	Leaving       bool              `json:"leaving"`
	Started       *Time             `json:"started,omitempty"`
	Listen        string            `json:"listen,omitempty" doc:"Address of its status page"`
	BizTypes      []string          `json:"biz_types" doc:"That it delivers, as far as it tells"`
	Lacks         map[string]string `json:"lacks,omitempty" doc:"Biz types of its group that it can't deliver, with the reasons"`
	NewerPayloads map[string]int    `json:"newer_payloads,omitempty" doc:"Biz types of which it leaves tasks alone, as their payload is newer than it reads, with the newest version"`
	Misses        []int             `json:"misses,omitempty" doc:"Numbers of databases that it can't use"`
}

// NodeGroup is the nodes that deliver the same biz types.
type NodeGroup struct {
	Group  string   `json:"group" example:"callback"`
	Nodes  []Node   `json:"nodes"`
	Faults []string `json:"faults,omitempty" doc:"What is wrong with what the group delivers, and what to do"`
}

// Nodes are all groups.
type Nodes struct {
	Groups     []NodeGroup `json:"groups"`
	Incomplete bool        `json:"incomplete,omitempty" doc:"Something could not be asked: the log of the node that answers says what"`
}

func (a *API) listNodes(ctx context.Context, c *call, in *groupQuery) (*body[Nodes], error) {
	groups, err := a.cfg.Cluster.List(ctx, in.Group, nil)
	if err != nil && len(groups) == 0 {
		return nil, unasked(err)
	}
	c.cause = err
	out := Nodes{Groups: []NodeGroup{}, Incomplete: err != nil}
	for _, g := range groups {
		out.Groups = append(out.Groups, groupOf(g))
	}
	return &body[Nodes]{out}, nil
}

// unasked is the problem of a cluster that could not be asked at all.
func unasked(err error) error {
	if p := problemOf(err); p.Status != http.StatusInternalServerError {
		return err
	}
	return &failure{problem(http.StatusServiceUnavailable, "unavailable", "etcd or the databases can't be asked now: repeat the request later; the node's log has the cause").after(retrySoon), err}
}

func groupOf(g operator.Group) NodeGroup {
	out := NodeGroup{Group: g.Group, Nodes: []Node{}}
	for _, n := range g.Nodes {
		out.Nodes = append(out.Nodes, nodeOf(n))
	}
	for _, f := range g.Faults {
		out.Faults = append(out.Faults, f.Is+"; to mend it, "+f.Fix)
	}
	return out
}

func nodeOf(n assign.NodeState) Node {
	return Node{
		ID: n.ID, Mode: n.Mode, Version: n.Info.Version, Weight: n.Weight, Tables: n.Tables, Wanted: n.Wanted, LeaseMS: n.TTL.Milliseconds(),
		Leaving: n.Leaving, Started: timeOf(n.Info.Started), Listen: n.Info.Listen, BizTypes: append([]string{}, n.Info.Types...), Lacks: n.Info.Lacks,
		NewerPayloads: n.Info.Newer, Misses: n.Misses,
	}
}

// TableShare is the tables of one node.
type TableShare struct {
	Node      string   `json:"node,omitempty" doc:"Left out: nobody owns these"`
	Tables    int      `json:"tables"`
	Ranges    []string `json:"ranges" doc:"Their numbers" example:"0-63"`
	Pending   int      `json:"pending" doc:"With counts=true: tasks of the group's biz types"`
	Claimed   int      `json:"claimed"`
	Dead      int      `json:"dead"`
	OverdueMS int64    `json:"overdue_ms" doc:"How long ago the earliest pending task was due"`
}

// TableGroup is who owns the tables of one group.
type TableGroup struct {
	Group  string       `json:"group" example:"callback"`
	Tables int          `json:"tables" doc:"Of the layout"`
	Owned  int          `json:"owned"`
	Shares []TableShare `json:"shares"`
}

// Tables are all groups.
type Tables struct {
	Groups     []TableGroup `json:"groups"`
	Incomplete bool         `json:"incomplete,omitempty" doc:"Not all could be counted: the log of the node that answers says why"`
}

func (a *API) listTables(ctx context.Context, c *call, in *tablesQuery) (*body[Tables], error) {
	groups, err := widely(a, func() ([]operator.Tables, error) { return a.cfg.Cluster.Owned(ctx, in.Group, in.Counts) })
	if err != nil && groups == nil {
		return nil, unasked(err)
	}
	c.cause = err
	out := Tables{Groups: []TableGroup{}, Incomplete: err != nil}
	for _, g := range groups {
		group := TableGroup{Group: g.Group, Tables: g.Tables, Owned: g.Owned, Shares: []TableShare{}}
		for _, s := range g.Shares {
			group.Shares = append(group.Shares, TableShare{s.Node, s.Tables, s.Ranges, s.Pending, s.Claimed, s.Dead, int64(s.Overdue * 1000)})
		}
		out.Groups = append(out.Groups, group)
	}
	return &body[Tables]{out}, nil
}
