package assign

import (
	"context"
	"testing"
)

func TestPortionsAreBoundedAndWhatIsStuckTakesNoPlace(t *testing.T) {
	t.Parallel()
	many := make(map[int]int64)
	for table := range 2*part + 1 {
		many[table] = 7
	}
	oddServer := func(table int) int { return table % 2 }
	s := &session{Assign: &Assign{cfg: Config{ServerOf: oddServer}}, doomed: map[int]int64{3: 7, 4: 7}, hands: newHands(t.Context(), nil)}
	if first := s.portion(many); len(first) != part+2 || first[3] != 7 || first[0] != 7 || first[2*part] != 0 {
		t.Errorf("%d tables at first", len(first))
	}
	s.hands.quick = part - 1
	if next := s.portion(many); len(next) != 2+1 {
		t.Errorf("%d tables, while others are being dropped", len(next))
	}
	one := hand{server: 1, drops: true}
	s.hands.quick, s.hands.busy[one] = 0, one.atOnce()
	for table := range s.portion(many) {
		if table%2 == 1 && table != 3 {
			t.Fatalf("table %d, whose server has enough to do", table)
		}
	}
}

func TestEachServerHasItsShareOfAPart(t *testing.T) {
	t.Parallel()
	many := make(map[int]int64)
	for table := range 4 * part {
		many[table] = 7
	}
	s := &session{Assign: &Assign{cfg: Config{ServerOf: func(table int) int { return table / part }}}, hands: newHands(t.Context(), nil)}
	share := make(map[int]int)
	for table := range s.portion(many) {
		share[s.cfg.ServerOf(table)]++
	}
	for server := range 4 {
		if share[server] != part/4 {
			t.Errorf("server %d has %d of a part of %d", server, share[server], part)
		}
	}
}

// TestTablesMoveInParts: a node that gives up many goes on with the others meanwhile.
func TestTablesMoveInParts(t *testing.T) {
	t.Parallel()
	c, many := newCrowd(t), func(cfg *Config) { cfg.Tables = 5 * part }
	a := c.node(many)
	var had []int // before each drop
	a.onDrop = func(context.Context, []int) {
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
