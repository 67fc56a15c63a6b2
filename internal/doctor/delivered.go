package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin/biztype"
)

// Member is what a live node publishes about itself.
type Member struct {
	ID      string
	Group   string
	Version string            // of its program; "": not told
	Schema  int               // version that its program is for; 0: not told
	Types   []string          // biz types that it delivers
	Lacks   map[string]string // biz types of its group that it does not deliver -> why
}

// Delivered judges whether the nodes deliver what they should. It fails for a type
// that no node of its group delivers, and warns of nodes that others stand in for, and of
// groups without nodes if other groups have some.
func Delivered(policies []biztype.Policy, members []Member) (checks []Check) {
	const name, fix = "delivered", "give each node of the group the secret (in its environment, or a file in node.secrets_dir) or a program with the handler"
	for _, p := range policies {
		group := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Group != p.WithDefaults().Group })
		var lacking []string
		delivered := false
		for _, m := range group {
			delivered = delivered || slices.Contains(m.Types, p.Name)
			if why := m.Lacks[p.Name]; why != "" {
				lacking = append(lacking, fmt.Sprintf("%s: %s", m.ID, why))
			}
		}
		switch {
		case len(group) > 0 && !delivered:
			is := fmt.Sprintf("no node of group %s delivers %s: its tasks wait", p.WithDefaults().Group, p.Name)
			checks = append(checks, bad(Fail, name, strings.Join(append([]string{is}, lacking...), "; "), fix))
		case len(lacking) > 0:
			is := fmt.Sprintf("some nodes lack %s, and others stand in for them", p.Name)
			checks = append(checks, bad(Warn, name, strings.Join(append([]string{is}, lacking...), "; "), fix))
		}
	}
	checks = append(checks, groupsAway(policies, members)...)
	if len(checks) == 0 && len(members) > 0 {
		checks = append(checks, good(name, "by every node of their groups"))
	}
	return checks
}
