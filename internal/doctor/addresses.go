package doctor

import (
	"strings"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Addresses judges what was seen at the addresses of a server; nothing if it has only one.
func Addresses(seen []mysql.Sighting) []Check {
	const name = "addresses"
	if len(seen) == 0 {
		return nil
	}
	var all, split, silent []string
	used := "none"
	for _, s := range seen {
		all = append(all, s.Address+" "+s.Why)
		switch {
		case s.Used:
			used = s.Address
		case s.Split:
			split = append(split, s.Address)
		case s.Silent:
			silent = append(silent, s.Address)
		}
	}
	is := strings.Join(all, "; ")
	switch {
	case len(split) > 0:
		return []Check{bad(Fail, name, "several take writes, "+used+" is used: "+is, "turn read_only on at "+strings.Join(split, " and ")+", and see which of the servers has writes that the other lacks")}
	case len(silent) > 0:
		return []Check{bad(Warn, name, is, "start "+strings.Join(silent, " and ")+" as a replica: until then there is nothing to fail over to, or one less")}
	}
	return []Check{good(name, "%s", is)}
}
