package assign

import (
	"cmp"
	"slices"
	"strings"
)

// Member is a node that tables can be given to.
type Member struct {
	ID     string
	Weight int // share relative to the others, 0 to MaxWeight; 0: it gets nothing and gives up what it has
}

// Plan says who should own each table: target[n] is the id of a member, or "" where no member has a weight.
// owners[n] is who owns table n today; "" or an id that is no member is nobody. Plan is pure: the same members (in any
// order) and owners give the same target on every node, so no leader is needed.
//
//   - Each member's share is its quota by weight, rounded by the largest remainder, so with equal weights any two differ
//     by one table at most.
//   - No other plan of such shares moves fewer tables: among members whose remainders are equal, those that already own
//     more than their floor keep the odd table.
//   - A plan that is carried out is its own plan.
//   - A node takes or gives up tables by its own count, which it knows exactly, so nodes with old views meet: see the
//     comment of quotas.
//
// What is given up or handed out is spread over the table numbers, and so over the databases.
func Plan(nodes []Member, owners []string) []string {
	members := canonical(nodes)
	owned, free := split(members, owners)
	return share(members, owned, free, quotas(members, owned, len(owners)), len(owners))
}

// share gives each member as many tables as its quota says, of its own as far as they go, and uses quota up.
func share(members []Member, owned [][]int, free []int, quota []int, tables int) []string {
	target := make([]string, tables)
	pool := free
	for i, m := range members {
		keep, surplus := cut(owned[i], quota[i])
		for _, table := range keep {
			target[table] = m.ID
		}
		quota[i] -= len(keep)
		pool = append(pool, surplus...)
	}
	deal(members, quota, pool, target)
	return target
}

// canonical gives the members sorted by id, each once, with weights in bounds.
func canonical(nodes []Member) []Member {
	members := slices.Clone(nodes)
	for i := range members {
		members[i].Weight = min(max(members[i].Weight, 0), MaxWeight)
	}
	slices.SortFunc(members, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), cmp.Compare(a.Weight, b.Weight))
	})
	return slices.CompactFunc(members, func(a, b Member) bool { return a.ID == b.ID })
}

// split gives the tables of each member and those of nobody, ascending.
func split(members []Member, owners []string) (owned [][]int, free []int) {
	index := make(map[string]int, len(members))
	for i, m := range members {
		index[m.ID] = i
	}
	owned = make([][]int, len(members))
	for table, owner := range owners {
		if i, ok := index[owner]; ok {
			owned[i] = append(owned[i], table)
		} else {
			free = append(free, table)
		}
	}
	return owned, free
}

// quotas gives how many tables each member should own. They depend on the owners only in who of those with the same
// remainder gets an odd table: first who has more than its floor, then by id.
//
// Why nodes with old views converge, once membership rests: nobody gives up below its floor or takes above its floor
// plus one, so all counts end in {floor, floor+1}. Where the remainder decides, who has the odd table is then fixed; of
// those with the same remainder, no more can have one than there are, at any revision from there on. A node that sees
// such a revision keeps what it has, and free tables only find owners.
func quotas(members []Member, owned [][]int, total int) []int {
	quota, rest, sum := make([]int, len(members)), make([]int, len(members)), 0
	for _, m := range members {
		sum += m.Weight
	}
	if sum == 0 {
		return quota
	}
	odd, order := total, make([]int, len(members))
	for i, m := range members {
		quota[i], rest[i], order[i] = total*m.Weight/sum, total*m.Weight%sum, i
		odd -= quota[i]
	}
	above := func(i int) int { return min(max(len(owned[i])-quota[i], 0), 1) }
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(rest[b], rest[a]), cmp.Compare(above(b), above(a)))
	})
	for _, i := range order[:odd] {
		quota[i]++
	}
	return quota
}

// cut divides tables into quota of them to keep and the surplus, which is spread evenly over them.
func cut(tables []int, quota int) (keep, surplus []int) {
	drop := len(tables) - quota
	if drop <= 0 {
		return tables, nil
	}
	for i, table := range tables {
		if (i+1)*drop/len(tables) > i*drop/len(tables) {
			surplus = append(surplus, table)
		} else {
			keep = append(keep, table)
		}
	}
	return keep, surplus
}

// deal gives out the pool in turn to the members that lack tables.
func deal(members []Member, lack []int, pool []int, target []string) {
	var turn []int
	for i := range members {
		if lack[i] > 0 {
			turn = append(turn, i)
		}
	}
	at := 0
	for _, table := range pool {
		if len(turn) == 0 {
			return // no member has a weight
		}
		at %= len(turn)
		i := turn[at]
		target[table] = members[i].ID
		if lack[i]--; lack[i] == 0 {
			turn = slices.Delete(turn, at, at+1)
			continue
		}
		at++
	}
}
