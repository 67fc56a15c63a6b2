package sweeper

import (
	"cmp"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
)

// round is one peek of every table: types that share a grace time and a fate.
type round struct {
	grace time.Duration
	left  string // why its tasks stay: "" they are delivered
	types []uint64
	names map[uint64]string
}

// Why a type's tasks are left where they are.
const (
	leftPaused   = "paused"
	leftForeign  = "no handler here"
	leftTimedOut = "no time left"
	leftStopped  = "stopped"
	leftFailed   = "server failed"
	leftNewer    = "newer payload"
	leftAway     = "target away"
)

// rounds groups the biz types so that each table is peeked as few times as
// their grace times allow.
func rounds(policies []biztype.Policy, can func(biztype.Policy) bool, grace time.Duration) []round {
	type key struct {
		grace time.Duration
		left  string
	}
	groups := make(map[key]*round)
	for _, p := range policies {
		k := key{biztype.SweptAfter(p, grace), leftOf(p, can)}
		if groups[k] == nil {
			groups[k] = &round{grace: k.grace, left: k.left, names: map[uint64]string{}}
		}
		groups[k].types = append(groups[k].types, p.Number)
		groups[k].names[p.Number] = p.Name
	}
	var all []round
	for _, r := range groups {
		slices.Sort(r.types)
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b round) int { return cmp.Compare(a.types[0], b.types[0]) })
	return all
}

func leftOf(p biztype.Policy, can func(biztype.Policy) bool) string {
	switch {
	case p.Paused:
		return leftPaused
	case !can(p):
		return leftForeign
	}
	return ""
}
