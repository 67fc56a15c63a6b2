package api

import (
	"context"
	"net/http"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
)

// cluster registers the operations that show nodes and tables, and count tasks. Nodes and tables are of all biz types at once, so a
// token for some of them may not ask.
func (a *API) cluster() {
	register(a, operation{
		id: "list_nodes", method: http.MethodGet, path: "/cluster/nodes", tag: "cluster", needs: apitoken.Read, connects: true, allTypes: true,
		summary: "List the nodes of all groups",
		about:   "As etcd or the session tables list them, and what is wrong with what a group delivers.",
	}, a.listNodes)
	register(a, operation{
		id: "list_tables", method: http.MethodGet, path: "/cluster/tables", tag: "cluster", needs: apitoken.Read, connects: true, allTypes: true,
		summary: "Say which nodes own which tables",
		about:   "With counts also the tasks that wait there, which reads an index of every table.",
	}, a.listTables)
	register(a, operation{
		id: "get_stats", method: http.MethodGet, path: "/stats", tag: "cluster", needs: apitoken.Read, connects: true, summary: "Count tasks by biz type and status",
		about: "Counts about 10000 tasks of each status, those of all biz types together: if there are more, the status is in at_least. For watching, use the metrics " +
			"of the nodes.",
	}, a.getStats)
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

func (a *API) listNodes(ctx context.Context, c *call, in *groupQuery) (out Nodes, err error) {
	groups, err := a.cfg.Cluster.List(ctx, in.Group, nil)
	if err != nil && len(groups) == 0 {
		return out, unasked(err)
	}
	c.cause = err
	out = Nodes{Groups: []NodeGroup{}, Incomplete: err != nil}
	for _, g := range groups {
		out.Groups = append(out.Groups, groupOf(g))
	}
	return out, nil
}

// unasked is the problem of a cluster that could not be asked at all.
func unasked(err error) error {
	if p := asProblem(err); p.Status != http.StatusInternalServerError {
		return err
	}
	return &failure{problem(http.StatusServiceUnavailable, "unavailable", "etcd or the databases can't be asked now: repeat the request later; the node's log has the cause").after(retrySoon), err}
}

func groupOf(g operator.Group) NodeGroup {
	out := NodeGroup{Group: g.Group, Nodes: []Node{}}
	for _, n := range g.Nodes {
		out.Nodes = append(out.Nodes, Node{
			ID: n.ID, Mode: n.Mode, Version: n.Info.Version, Weight: n.Weight, Tables: n.Tables, Wanted: n.Wanted, LeaseMS: n.TTL.Milliseconds(),
			Leaving: n.Leaving, Started: timeOf(n.Info.Started), Listen: n.Info.Listen, BizTypes: append([]string{}, n.Info.Types...), Lacks: n.Info.Lacks,
			NewerPayloads: n.Info.Newer, Misses: n.Misses,
		})
	}
	for _, f := range g.Faults {
		out.Faults = append(out.Faults, f.Is+"; to mend it, "+f.Fix)
	}
	return out
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
	Incomplete bool         `json:"incomplete,omitempty" doc:"Not all could be asked or counted: the log of the node that answers says why"`
}

func (a *API) listTables(ctx context.Context, c *call, in *tablesQuery) (out Tables, err error) {
	owned := func() ([]operator.Tables, error) { return a.cfg.Cluster.Owned(ctx, in.Group, in.Counts) }
	var groups []operator.Tables
	if in.Counts {
		groups, err = widely(a, owned)
	} else {
		groups, err = owned()
	}
	if err != nil && groups == nil {
		return out, unasked(err)
	}
	c.cause = err
	out = Tables{Groups: []TableGroup{}, Incomplete: err != nil}
	for _, g := range groups {
		group := TableGroup{Group: g.Group, Tables: g.Tables, Owned: g.Owned, Shares: []TableShare{}}
		for _, s := range g.Shares {
			group.Shares = append(group.Shares, TableShare{s.Node, s.Tables, s.Ranges, s.Pending, s.Claimed, s.Dead, int64(s.Overdue * 1000)})
		}
		out.Groups = append(out.Groups, group)
	}
	return out, nil
}

// Counts are the tasks of a biz type by status.
type Counts struct {
	BizType   string `json:"biz_type" example:"order.close"`
	Pending   int    `json:"pending"`
	Claimed   int    `json:"claimed"`
	Done      int    `json:"done" doc:"Those that are not purged yet"`
	Cancelled int    `json:"cancelled"`
	Dead      int    `json:"dead"`
	OverdueMS int64  `json:"overdue_ms" doc:"How long ago the earliest pending task was due; 0: none is due"`
}

// Stats are the counts of all biz types that a token is for.
type Stats struct {
	BizTypes   []Counts `json:"biz_types"`
	AtLeast    []Status `json:"at_least,omitempty" doc:"Statuses with more tasks than were counted: there are at least as many as their counts say"`
	Incomplete []string `json:"incomplete,omitempty" doc:"Servers that could not be asked in full: their tasks are not counted"`
}

func (a *API) getStats(ctx context.Context, c *call, _ *struct{}) (out Stats, err error) {
	people, err := a.backend.people.get(ctx)
	if err != nil {
		return out, err
	}
	var more []tocsin.Status
	counts, err := widely(a, func() (counts []operator.Stats, err error) {
		counts, more, err = people.StatsUpTo(ctx, tocsin.Pending, tocsin.Claimed, tocsin.Done, tocsin.Cancelled, tocsin.Dead)
		return counts, err
	})
	out.BizTypes = []Counts{}
	for _, status := range more {
		out.AtLeast = append(out.AtLeast, Status(status.String()))
	}
	if out.Incomplete, err = c.incomplete(err, len(counts) > 0); err != nil {
		return out, err
	}
	for _, s := range counts {
		if c.sees(s.BizType) {
			out.BizTypes = append(out.BizTypes, Counts{
				BizType: s.BizType, Pending: s.Pending, Claimed: s.Claimed, Done: s.Done, Cancelled: s.Cancelled, Dead: s.Dead, OverdueMS: int64(s.Overdue * 1000),
			})
		}
	}
	return out, nil
}
