package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Versions warns of nodes with different programs in one group. A program is told by its version and by the schema version
// that it is for.
func Versions(members []Member) (checks []Check) {
	const name = "versions"
	groups := map[string]map[string][]string{} // group -> program -> nodes
	for _, m := range members {
		program := "version " + m.Version
		if m.Version == "" {
			program = "no version"
		}
		if m.Schema > 0 {
			program += fmt.Sprintf(" for schema version %d", m.Schema)
		}
		if groups[m.Group] == nil {
			groups[m.Group] = map[string][]string{}
		}
		groups[m.Group][program] = append(groups[m.Group][program], m.ID)
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		var parts []string
		for _, program := range slices.Sorted(maps.Keys(groups[group])) {
			parts = append(parts, program+": "+some(groups[group][program]))
		}
		if len(parts) > 1 {
			checks = append(checks, bad(Warn, name, fmt.Sprintf("nodes of group %s have different programs: %s", group, strings.Join(parts, "; ")),
				"replace the older ones by the new program; what only it knows is not used, or waits, until then"))
		}
	}
	if len(checks) == 0 && len(members) > 0 {
		checks = append(checks, good(name, "one in each group"))
	}
	return checks
}
