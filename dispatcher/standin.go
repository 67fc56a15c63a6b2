package dispatcher

import (
	"slices"
	"time"
)

// standIn is why rows of a table that this node does not own may start: its owner
// lacks their biz types. They are claimed, and the owner row has to name the owner
// still: so whoever takes the table ends that before it looks at its first row.
type standIn struct {
	owner string
	types []uint64
}

// StandIn lets rows of the biz types start in tables of another owner, each by a
// claim. Tables that are admitted are left out. It may be called again, for the
// same or for others; types must not change afterwards.
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

// StandDown ends StandIn for tables. What is claimed goes on; nothing more is.
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

// strange reports whether rows of the type are not this node's to start, as it
// stands in for the table's owner with other types only. Called under s.mu.
func (s *server) strange(number int, bizType uint64) bool {
	t := s.tables[number]
	return t != nil && t.standIn != nil && !slices.Contains(t.standIn.types, bizType)
}

// gained says until when each row of a biz type is claimed that this process could
// not deliver before: others stood in for it, and may not know yet that it can. What
// it delivers from its first policies on is no gain: it has no table before them.
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

// InHand reports whether rows of a biz type are in delivery, or wait to be settled.
func (d *Dispatcher) InHand(bizType uint64) bool {
	return slices.ContainsFunc(d.servers, func(s *server) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.anyOpen(func(t *task) bool { return t.row.Type == bizType })
	})
}
