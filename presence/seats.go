package presence

import (
	"slices"
	"strings"
)

// member is a node as its row describes it.
type member struct {
	id     string
	weight int
	lacks  bool // it can't deliver some biz type of the group
}

// seats returns whose turn it is, table after table: each node as often as its weight says, evenly mixed. Nodes that lack
// a biz type are left out, unless all do. The result depends on the members alone, not on their order.
func seats(members []member) (order []string) {
	members = slices.Clone(members)
	if able := slices.DeleteFunc(slices.Clone(members), func(m member) bool { return m.lacks }); len(able) > 0 {
		members = able
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.id, b.id) })
	total := 0
	for i := range members {
		members[i].weight = max(members[i].weight, 1)
		total += members[i].weight
	}
	credit := make([]int, len(members))
	for range total {
		next := 0
		for i, m := range members {
			credit[i] += m.weight
			if credit[i] > credit[next] {
				next = i
			}
		}
		credit[next] -= total
		order = append(order, members[next].id)
	}
	return order
}

// first returns which of the tables, numbered over the whole layout, a node looks at first.
func first(id string, members []member, tables []int) (mine []int) {
	order := seats(members)
	for _, table := range tables {
		if len(order) > 0 && order[table%len(order)] == id {
			mine = append(mine, table)
		}
	}
	return mine
}
