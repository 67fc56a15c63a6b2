package assign

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Change is nodes that might come to a group and go from it.
type Change struct {
	Add    int      // how many come, "new-1" and so on
	Weight int      // of each of them, 1 to MaxWeight; 0: 1
	Remove []string // ids of nodes that go
}

// DryRun is what a Change would do.
type DryRun struct {
	Tables int            `json:"tables"` // of the layout
	Moves  int            `json:"moves"`  // tables that would get another owner
	Least  int            `json:"least"`  // no plan that is balanced to within one table moves fewer
	Flows  []Flow         `json:"flows"`  // by from and to
	Shares []PlannedShare `json:"shares"` // by id
}

// Flow is how many tables would move from one node to another. "" is nobody.
type Flow struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Tables int    `json:"tables"`
}

// PlannedShare is what a node has and would have.
type PlannedShare struct {
	ID     string `json:"id"`
	Weight int    `json:"weight"` // 0 for one that goes, leaves or drains
	Owns   int    `json:"owns"`
	Gets   int    `json:"gets"`
}

// Try reads a group's keys and says which tables would move after a change; the zero Change tells what is under way. It
// changes nothing. An id to remove that is no live node is ErrNoNode.
func (r *Registry) Try(ctx context.Context, group string, c Change) (DryRun, error) {
	v, err := r.read(ctx, group)
	if err != nil {
		return DryRun{}, err
	}
	members, err := c.apply(v.members())
	if err != nil {
		return DryRun{}, fmt.Errorf("plan the group %s: %w", group, err)
	}
	return dryRun(members, v.owners(), v.misses()), nil
}

// apply gives the members after the change: who goes has no weight.
func (c Change) apply(members []Member) ([]Member, error) {
	for _, id := range c.Remove {
		i := slices.IndexFunc(members, func(m Member) bool { return m.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("remove %s: %w", id, ErrNoNode)
		}
		members[i].Weight = 0
	}
	for i := range c.Add {
		members = append(members, Member{ID: fmt.Sprintf("new-%d", i+1), Weight: max(c.Weight, 1)})
	}
	return members, nil
}

// dryRun compares today's owners with the plan for members.
func dryRun(members []Member, owners []string, around misses) DryRun {
	members = canonical(members)
	target := PlanAround(members, owners, around)
	owns, gets, flows := tally(owners), tally(target), make(map[Flow]int)
	d := DryRun{Tables: len(owners), Least: leastMoves(members, owners), Flows: []Flow{}, Shares: []PlannedShare{}}
	for table, from := range owners {
		if to := target[table]; from != to {
			d.Moves++
			flows[Flow{From: from, To: to}]++
		}
	}
	for f, n := range flows {
		f.Tables = n
		d.Flows = append(d.Flows, f)
	}
	slices.SortFunc(d.Flows, func(a, b Flow) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	for _, m := range members {
		d.Shares = append(d.Shares, PlannedShare{ID: m.ID, Weight: m.Weight, Owns: owns[m.ID], Gets: gets[m.ID]})
	}
	return d
}

// leastMoves counts without a plan: what nobody owns, and what each member has above its floor; of those above it as many
// keep one table more as there are odd tables.
func leastMoves(members []Member, owners []string) int {
	have, sum := tally(owners), 0
	for _, m := range members {
		sum += m.Weight
	}
	if sum == 0 {
		return len(owners) - have[""] // everything is given up
	}
	moves, left, keep := len(owners), len(owners), 0
	for _, m := range members {
		floor := len(owners) * m.Weight / sum
		left -= floor
		moves -= have[m.ID]
		if above := have[m.ID] - floor; above > 0 {
			moves += above
			if len(owners)*m.Weight%sum > 0 {
				keep++
			}
		}
	}
	return moves - min(keep, left)
}
