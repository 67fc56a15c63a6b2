package assign

import (
	"testing"
)

func TestPortionsAreBoundedAndWhatIsStuckComesLast(t *testing.T) {
	t.Parallel()
	many := make(map[int]int64)
	for table := range 2*part + 1 {
		many[table] = 7
	}
	s := &session{doomed: map[int]int64{3: 7, 4: 7}}
	first := s.portion(many)
	if len(first) != part || s.next.IsZero() {
		t.Errorf("%d tables at first, next round at %s", len(first), s.next)
	}
	if _, has := first[3]; has || first[0] != 7 {
		t.Error("what was dropped before comes first")
	}
	s = &session{doomed: map[int]int64{3: 7, 4: 7}, stuck: true}
	if got := s.portion(many); len(got) != len(many) {
		t.Errorf("%d tables, where some are stuck and each part would wait", len(got))
	}
	s = &session{doomed: map[int]int64{3: 7, 4: 7}}
	if got := s.portion(map[int]int64{3: 7, 4: 7}); len(got) != 2 || !s.next.IsZero() {
		t.Errorf("%v is left, and a round is asked for at %s", got, s.next)
	}
}

// TestTablesMoveInParts: a node that gives up many goes on with the others meanwhile.
func TestTablesMoveInParts(t *testing.T) {
	t.Parallel()
	c, many := newCrowd(t), func(cfg *Config) { cfg.Tables = 5 * part }
	a := c.node(many)
	var had []int // before each drop
	a.onDrop = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		had = append(had, len(a.held))
	}
	c.start(a)
	c.awaitCounts(map[*desk]int{a: 5 * part})
	b := c.join(many)
	c.awaitCounts(map[*desk]int{a: 2*part + part/2, b: 2*part + part/2})
	a.leave()
	c.awaitCounts(map[*desk]int{b: 5 * part})
	if len(had) < 6 {
		t.Errorf("dropped in %d parts: %v", len(had), had)
	}
	for i := 1; i < len(had); i++ {
		if had[i-1]-had[i] > part {
			t.Errorf("a part of %d tables", had[i-1]-had[i])
		}
	}
}
