package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin/biztype"
)

// Idle finds handlers that get no task, since the policy of their biz type names another group, or there is none.
func Idle(policies []biztype.Policy, members []Member) (checks []Check) {
	const name = "handlers"
	at := map[[2]string][]string{} // biz type and group -> nodes
	for _, m := range members {
		for _, t := range m.Types {
			at[[2]string{t, m.Group}] = append(at[[2]string{t, m.Group}], m.ID)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(at), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		bizType, group, ids := key[0], key[1], strings.Join(at[key], ", ")
		i := slices.IndexFunc(policies, func(p biztype.Policy) bool { return p.Name == bizType })
		if i < 0 {
			checks = append(checks, bad(Warn, name, fmt.Sprintf("%s of group %s: the handler of %s gets no task, as this biz type has no policy", ids, group, bizType),
				"apply one with `tocsin biz apply`, or remove the handler"))
			continue
		}
		right := policies[i].WithDefaults().Group
		if right == group {
			continue
		}
		checks = append(checks, bad(Warn, name, fmt.Sprintf("%s of group %s: the handler of %s gets no task, as its policy names group %s", ids, group, bizType, right),
			fmt.Sprintf("start these nodes in group %s, or name group %s in the policy", right, group)))
	}
	return checks
}

// Away finds the biz types of groups without a running node: their tasks wait.
func Away(policies []biztype.Policy, group string) []Check {
	var waiting []string
	for _, p := range policies {
		if p.WithDefaults().Group == group {
			waiting = append(waiting, p.Name)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	slices.Sort(waiting)
	return []Check{bad(Warn, "delivered", fmt.Sprintf("no node of group %s runs: tasks of %s wait", group, strings.Join(waiting, ", ")),
		fmt.Sprintf("start a node of group %s, or name in the policies a group that has nodes", group))}
}

// groupsAway finds the groups without a running node, while other groups have one. It fails if nodes of another group have the
// handlers. Without any node nothing is said: they may not have been started yet.
func groupsAway(policies []biztype.Policy, members []Member) (checks []Check) {
	away := map[string]bool{}
	for _, p := range policies {
		group := p.WithDefaults().Group
		away[group] = len(members) > 0 && !slices.ContainsFunc(members, func(m Member) bool { return m.Group == group })
	}
	for _, group := range slices.Sorted(maps.Keys(away)) {
		if !away[group] {
			continue
		}
		found := Away(policies, group)
		if slices.ContainsFunc(policies, func(p biztype.Policy) bool { return p.WithDefaults().Group == group && anywhere(p.Name, members) }) {
			found[0].Level = Fail
		}
		checks = append(checks, found...)
	}
	return checks
}

// anywhere reports whether a node of some group has the handler.
func anywhere(bizType string, members []Member) bool {
	return slices.ContainsFunc(members, func(m Member) bool { return slices.Contains(m.Types, bizType) })
}
