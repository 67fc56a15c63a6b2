package dispatcher

import (
	"slices"
	"time"
)

// standIn allows rows to start in a table that this node does not own, because the
// owner lacks their biz types. Each row is claimed, and the owner row must still name
// that owner. So a node that takes the table ends the stand-in before it looks at its
// first row.
type standIn struct {
	owner string
	types []uint64
}

// StandIn lets rows of the biz types start in tables of another owner, each after a
// claim. Tables that this node has admitted as its own are skipped. StandIn may be
// called again, for the same tables or others; types must not change afterwards.
func (d *Dispatcher) StandIn(tables []int, owner string, types []uint64) {
	one := &standIn{owner, types}
	for index, numbers := range d.byServer(tables) {
		s := d.servers[index]
		s.mu.Lock()
		for n := range numbers {
			if t := s.known(n); !t.admitted || t.standIn != nil {
				t.admitted, t.standIn = true, one
			}
		}
		s.mu.Unlock()
	}
}

// StandDown ends StandIn for tables. Claimed rows go on; no further row is claimed.
func (d *Dispatcher) StandDown(tables []int) {
	for index, numbers := range d.byServer(tables) {
		d.servers[index].standDown(numbers)
	}
}

func (s *server) standDown(numbers set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := make(set)
	for n := range numbers {
		if t := s.known(n); t.standIn != nil {
			t.admitted, t.standIn = false, nil
			gone[n] = true
		}
	}
	for _, l := range s.order {
		l.queue.Drop(func(table int) bool { return gone[table] })
	}
}

// strange reports whether this node must not start rows of the type, as it stands in
// for the table's owner with other types only. Called under s.mu.
func (s *server) strange(number int, bizType uint64) bool {
	t := s.tables[number]
	return t != nil && t.standIn != nil && !slices.Contains(t.standIn.types, bizType)
}

// gained returns until when each row of a newly delivered biz type is claimed: others
// stood in for this process, and may not know yet that it can deliver the type. Types
// in its first policies are not newly gained: it had no table before them.
func gained(before *rule, informed bool) time.Time {
	switch {
	case before != nil && !before.lacked:
		return before.claimUntil
	case informed:
		return time.Now().Add(uncleanFor)
	}
	return time.Time{}
}

// claims reports whether each row is claimed before it starts.
func (r *rule) claims() bool { return r.policy.Strict || time.Now().Before(r.claimUntil) }

// InHand reports whether rows of a biz type are in delivery or wait to be settled.
func (d *Dispatcher) InHand(bizType uint64) bool {
	return slices.ContainsFunc(d.servers, func(s *server) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.anyOpen(func(t *task) bool { return t.row.Type == bizType })
	})
}
