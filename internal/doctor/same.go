package doctor

import (
	"strconv"

	"github.com/tocsinhq/tocsin/store"
)

// same warns of names that lead to one server: it then gets the connections and the load of several. A server without
// facts has the zero Facts.
func same(uses []Use, facts []store.Facts) []Check {
	first := map[string]string{}
	var checks []Check
	for i, f := range facts {
		if !unique(f.ServerID) {
			continue
		}
		if other, seen := first[f.ServerID]; seen {
			c := bad(Warn, "identity", "is the same server as "+other, "list its databases under one name in the config")
			checks = append(checks, of("server "+uses[i].Name, c)...)
			continue
		}
		first[f.ServerID] = uses[i].Name
	}
	return checks
}

// unique tells a generated id from a server_id, a number that two servers may well share.
func unique(id string) bool {
	_, err := strconv.Atoi(id)
	return id != "" && err != nil
}
