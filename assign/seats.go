package assign

import (
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin"
)

// attendee is a node as its row in a database describes it.
type attendee struct {
	Member
	lacks bool // it can't deliver some biz type of the group
}

// seats returns whose turn it is, table after table: each node as often as its weight says, evenly mixed. Nodes that lack
// a biz type are left out, unless all do. The result depends on the nodes alone, not on their order.
func seats(nodes []attendee) (order []string) {
	nodes = slices.Clone(nodes)
	if able := slices.DeleteFunc(slices.Clone(nodes), func(n attendee) bool { return n.lacks }); len(able) > 0 {
		nodes = able
	}
	slices.SortFunc(nodes, func(a, b attendee) int { return strings.Compare(a.ID, b.ID) })
	total := 0
	for i := range nodes {
		nodes[i].Weight = max(nodes[i].Weight, 1)
		total += nodes[i].Weight
	}
	credit := make([]int, len(nodes))
	for range total {
		next := 0
		for i, n := range nodes {
			credit[i] += n.Weight
			if credit[i] > credit[next] {
				next = i
			}
		}
		credit[next] -= total
		order = append(order, nodes[next].ID)
	}
	return order
}

// firsts returns the tables, ascending, that a node looks at first, by the nodes of each database.
func firsts(id string, layout tocsin.Layout, nodes map[int][]attendee) (mine []int) {
	for database := range layout.Databases {
		order := seats(nodes[database])
		if len(order) == 0 {
			continue
		}
		for table := database * layout.Tables; table < (database+1)*layout.Tables; table++ {
			if order[table%len(order)] == id {
				mine = append(mine, table)
			}
		}
	}
	return mine
}
