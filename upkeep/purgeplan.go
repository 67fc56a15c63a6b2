package upkeep

import (
	"cmp"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// round is one look through every table: types that are kept for as long.
type round struct {
	retention time.Duration
	types     []uint64
}

// rounds groups the biz types, so that each table is looked through as few times
// as their retentions allow.
func rounds(policies []biztype.Policy) []round {
	groups := make(map[time.Duration]*round)
	for _, p := range policies {
		keep := p.WithDefaults().Retention.D()
		if groups[keep] == nil {
			groups[keep] = &round{retention: keep}
		}
		groups[keep].types = append(groups[keep].types, p.Number)
	}
	var all []round
	for _, r := range groups {
		slices.Sort(r.types)
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b round) int { return cmp.Compare(a.retention, b.retention) })
	return all
}

// statuses are those whose rows are removed.
func statuses(dead bool) []tocsin.Status {
	if dead {
		return []tocsin.Status{tocsin.Done, tocsin.Cancelled, tocsin.Dead}
	}
	return []tocsin.Status{tocsin.Done, tocsin.Cancelled}
}

// pace says how many rows a batch has: a quarter after a lock time-out, so that
// a single locked row is found within five, and twice as many after a batch that
// went well.
type pace struct{ size, most int }

func (p *pace) of(rows int) int { return min(p.size, rows) }

func (p *pace) went() { p.size = min(2*p.size, p.most) }

// shrink answers a time-out of a batch of n rows. False: there is no smaller one.
func (p *pace) shrink(n int) bool {
	p.size = max(n/4, 1)
	return n > 1
}
