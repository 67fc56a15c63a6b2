package assign

import "slices"

// PlanMeanwhile is PlanAround where some members are idle: they keep what they have, and take nothing for now. What they
// don't have is planned for the others as if the idle ones were not there; if all are idle, nobody takes it anyway.
//
// When nobody is idle any more it is PlanAround, so nodes that don't agree on who is idle disagree for a while only.
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
