package assign

import (
	"cmp"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/store"
)

// PresentNode is a node of a group in which nobody owns tables, in the words of one that does: its tables are those it
// looks at first, and its TTL ends when it counts as gone, unless it is seen again.
type PresentNode struct {
	NodeState
	Group string
	First []int // tables that it looks at first
}

// PresentNodes returns the nodes that were seen, by group and id.
func PresentNodes(layout tocsin.Layout, seen []store.Attendee) (nodes []PresentNode) {
	lists := map[string]map[int][]attendee{} // group -> database -> nodes
	for _, a := range seen {
		record := readRow(a.About)
		record.Schema = a.Schema
		i, known := slices.BinarySearchFunc(nodes, a, func(n PresentNode, a store.Attendee) int {
			return cmp.Or(cmp.Compare(n.Group, a.Group), cmp.Compare(n.ID, a.Node))
		})
		if !known {
			nodes = slices.Insert(nodes, i, PresentNode{Group: a.Group, NodeState: NodeState{
				ID: a.Node, Info: record.NodeInfo, Weight: record.Weight, Mode: ModeRows, Misses: []int{}, Lacks: []string{}, Extra: []string{},
			}})
		}
		nodes[i].TTL = max(nodes[i].TTL, (GoneAfter - a.Seen).Round(time.Second))
		if lists[a.Group] == nil {
			lists[a.Group] = map[int][]attendee{}
		}
		lists[a.Group][a.Database] = append(lists[a.Group][a.Database], attendeeOf(a.Node, record))
	}
	for i := range nodes {
		n := &nodes[i]
		n.First = firsts(n.ID, layout, lists[n.Group])
		n.Tables, n.Wanted = len(n.First), len(n.First)
		for database := range layout.Databases {
			list := lists[n.Group][database]
			if len(list) > 0 && !slices.ContainsFunc(list, func(a attendee) bool { return a.ID == n.ID }) {
				n.Misses = append(n.Misses, database)
			}
		}
	}
	return nodes
}
