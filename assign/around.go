package assign

import (
	"cmp"
	"slices"
)

// misses says which blocks of tables a node can't reach, by node id. A block is what stands and falls together: the tables
// of one database.
type misses struct {
	block int // tables in one; 0: no node misses any
	by    map[string]map[int]bool
}

// add notes that the node misses a block.
func (m misses) add(id string, block int) {
	if m.by[id] == nil {
		m.by[id] = make(map[int]bool)
	}
	m.by[id][block] = true
}

// missed reports whether the node misses the table.
func (m misses) missed(id string, table int) bool {
	blocks := m.by[id]
	return len(blocks) > 0 && blocks[table/m.block]
}

// PlanAround is Plan where some members can't reach some tables: these go to those that can. The tables are planned in
// groups, each of those that the same members reach, the most missed first; in each group who has least by then for its
// weight comes first. So who misses a database has as many tables as the others, as far as there are enough for it.
// A table that no member with a weight can reach is planned as if all could.
//
// It is pure and, within a group, as stable and frugal as Plan; nodes with old views meet in one group after the other.
func PlanAround(nodes []Member, owners []string, m misses) []string {
	all, target := make([]int, len(owners)), make([]string, len(owners))
	for table := range all {
		all[table] = table
	}
	planSome(nodes, all, owners, m, target)
	return target
}

// planSome plans only the given tables, which ascend.
func planSome(nodes []Member, tables []int, owners []string, m misses, target []string) {
	if len(m.by) == 0 {
		for i, id := range Plan(nodes, pick(owners, tables)) {
			target[tables[i]] = id
		}
		return
	}
	load := make(map[string]int)
	for _, g := range m.regions(canonical(nodes), tables) {
		g.plan(owners, load, target)
	}
}

// pick returns the owners of the given tables.
func pick(owners []string, tables []int) []string {
	some := make([]string, len(tables))
	for i, table := range tables {
		some[i] = owners[table]
	}
	return some
}

// region is tables that the same members reach.
type region struct {
	tables  []int
	members []Member // those with a weight
}

// regions divides the tables, the most missed first.
func (m misses) regions(members []Member, tables []int) []*region {
	members = slices.DeleteFunc(members, func(one Member) bool { return one.Weight == 0 })
	byReach := make(map[string]*region)
	var all []*region
	for len(tables) > 0 {
		end := slices.IndexFunc(tables, func(table int) bool { return table/m.block != tables[0]/m.block })
		if end < 0 {
			end = len(tables)
		}
		able := slices.DeleteFunc(slices.Clone(members), func(one Member) bool { return m.missed(one.ID, tables[0]) })
		if len(able) == 0 {
			able = members
		}
		key := ""
		for _, one := range able {
			key += one.ID + "/"
		}
		g := byReach[key]
		if g == nil {
			g = &region{members: able}
			byReach[key], all = g, append(all, g)
		}
		g.tables = append(g.tables, tables[:end]...)
		tables = tables[end:]
	}
	slices.SortStableFunc(all, func(a, b *region) int { return cmp.Compare(len(a.members), len(b.members)) })
	return all
}

// plan plans the region's tables, and adds to the members' load.
func (g *region) plan(owners []string, load map[string]int, target []string) {
	owned, free := split(g.members, pick(owners, g.tables))
	for i, id := range share(g.members, owned, free, g.level(owned, load), len(g.tables)) {
		target[g.tables[i]] = id
		load[id]++
	}
}

// level gives how many of the tables each member should own: one after the other goes to who has least for its weight,
// among equals to who has more here than it was given yet, and then by id.
func (g *region) level(owned [][]int, load map[string]int) []int {
	quota := make([]int, len(g.members))
	if len(g.members) == 0 {
		return quota
	}
	for range g.tables {
		best := 0
		for i := 1; i < len(quota); i++ {
			if g.before(i, best, quota, owned, load) {
				best = i
			}
		}
		quota[best]++
	}
	return quota
}

// before reports whether the next table goes to the member i rather than to j, which is before it by id.
func (g *region) before(i, j int, quota []int, owned [][]int, load map[string]int) bool {
	a, b := g.members[i], g.members[j]
	has, other := (load[a.ID]+quota[i]+1)*b.Weight, (load[b.ID]+quota[j]+1)*a.Weight
	if has != other {
		return has < other
	}
	return len(owned[i]) > quota[i] && len(owned[j]) <= quota[j]
}
