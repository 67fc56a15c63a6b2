package presence

import (
	"cmp"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/store"
)

// Node is a node of a group as the node tables show it.
type Node struct {
	Group  string
	ID     string
	About  About
	Schema int           // version that its program is for
	Seen   time.Duration // ago, in the database that saw it last
	First  []int         // tables that it looks at first
	Misses []int         // databases with nodes of its group in which it was not seen
}

// Nodes returns the nodes that were seen, by group and id, with the tables that each looks at first.
func Nodes(layout tocsin.Layout, seen []store.Attendee) (nodes []Node) {
	lists := map[string]map[int][]member{} // group -> database -> members
	for _, a := range seen {
		about := Read(a.About)
		i, known := slices.BinarySearchFunc(nodes, a, func(n Node, a store.Attendee) int {
			return cmp.Or(cmp.Compare(n.Group, a.Group), cmp.Compare(n.ID, a.Node))
		})
		if !known {
			nodes = slices.Insert(nodes, i, Node{Group: a.Group, ID: a.Node, About: about, Schema: a.Schema, Seen: a.Seen})
		}
		nodes[i].Seen = min(nodes[i].Seen, a.Seen)
		if lists[a.Group] == nil {
			lists[a.Group] = map[int][]member{}
		}
		lists[a.Group][a.Database] = append(lists[a.Group][a.Database], member{a.Node, about.Weight, len(about.Lacks) > 0})
	}
	for i := range nodes {
		nodes[i].place(layout, lists[nodes[i].Group])
	}
	return nodes
}

// place finds the node's tables by the lists of its group.
func (n *Node) place(layout tocsin.Layout, lists map[int][]member) {
	for database := range layout.Databases {
		members := lists[database]
		n.First = append(n.First, first(n.ID, members, tablesOf(layout, database))...)
		if len(members) > 0 && !slices.ContainsFunc(members, func(m member) bool { return m.id == n.ID }) {
			n.Misses = append(n.Misses, database)
		}
	}
}

// tablesOf returns the numbers of a database's tables.
func tablesOf(layout tocsin.Layout, database int) []int {
	tables := make([]int, layout.Tables)
	for i := range tables {
		tables[i] = database*layout.Tables + i
	}
	return tables
}
