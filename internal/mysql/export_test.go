package mysql

import (
	"slices"
	"strings"
)

// Verdicts returns how each variable of sessions is judged: "set", "refused" or "harmless". One that is set and refused for what
// could not be set has both.
func Verdicts() map[string][]string {
	all := map[string][]string{}
	add := func(verdict, names string) {
		for _, name := range strings.Fields(names) {
			all[name] = append(all[name], verdict)
		}
	}
	for _, s := range slices.Concat([]assignment{charset, access}, first, settings) {
		add("set", s.names)
	}
	for _, u := range unfits {
		add("refused", u.name)
	}
	for _, h := range harmless {
		add("harmless", h.names)
	}
	return all
}

// Session is what is run on every new connection.
var Session = session()
