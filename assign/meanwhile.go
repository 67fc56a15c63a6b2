package assign

import "slices"

// PlanMeanwhile is PlanAround while some members are idle. Idle members keep their tables and take no others. All other
// tables are planned as if only the remaining members existed. If no remaining member takes tables, it is PlanAround.
//
// If no member is idle, it gives the same plan as PlanAround. So nodes that saw different members idle agree again.
func PlanMeanwhile(nodes []Member, owners []string, m misses, idle map[string]bool) []string {
	takes := func(one Member) bool { return one.Weight > 0 && !idle[one.ID] }
	if len(idle) == 0 || !slices.ContainsFunc(nodes, takes) {
		return PlanAround(nodes, owners, m)
	}
	target, rest := slices.Clone(owners), make([]int, 0, len(owners))
	for table, owner := range owners {
		if !idle[owner] {
			rest = append(rest, table)
		}
	}
	busy := slices.DeleteFunc(slices.Clone(nodes), func(one Member) bool { return idle[one.ID] })
	planSome(busy, rest, owners, m, target)
	return target
}
