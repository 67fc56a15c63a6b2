package relay

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/outbox"
)

// TestIDsAreASet plays additions and removals on ids and on a plain set.
func TestIDsAreASet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s, bridge ids
		plain := map[uint64]bool{}
		draw := func(label string) outbox.Range {
			first := rapid.Uint64Range(0, 40).Draw(t, label)
			return outbox.Range{First: first, Last: first + rapid.Uint64Range(0, 5).Draw(t, "more")}
		}
		bridge.addRange(draw("bridge"))
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			r := draw("range")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				s.addRange(r)
				for id := r.First; id <= r.Last; id++ {
					plain[id] = true
				}
			case 1:
				s.remove(r)
				for id := r.First; id <= r.Last; id++ {
					delete(plain, id)
				}
			case 2:
				s.join(bridge)
				fill(bridge, plain)
			default:
				near(&s, bridge, plain, r.First)
			}
			compare(t, s, plain)
		}
	})
}

// fill adds what join adds: what is between two ids, if all of it is in bridge.
func fill(bridge ids, plain map[uint64]bool) {
	for id := uint64(0); id < 60; id++ {
		if !plain[id] || plain[id+1] {
			continue
		}
		next := id + 1
		for next < 60 && !plain[next] && bridge.has(next) {
			next++
		}
		for between := id + 1; plain[next] && between < next; between++ {
			plain[between] = true
		}
	}
}

// near adds an id as addNear does.
func near(s *ids, bridge ids, plain map[uint64]bool, id uint64) {
	s.addNear(id, bridge)
	if plain[id] {
		return
	}
	plain[id] = true
	for below := id; below > 0; {
		if below--; plain[below] {
			for ; below < id; below++ {
				plain[below] = true
			}
			return
		} else if !bridge.has(below) {
			return
		}
	}
}

func compare(t *rapid.T, s ids, plain map[uint64]bool) {
	for i, r := range s {
		if r.First > r.Last || i > 0 && s[i-1].Last+1 >= r.First {
			t.Fatalf("not in order and apart: %v", s)
		}
	}
	gaps := s.gaps()
	for id := uint64(0); id < 60; id++ {
		if s.has(id) != plain[id] || gaps.has(id) == plain[id] || s.covers(outbox.Range{First: id, Last: id + 2}) != (plain[id] && plain[id+1] && plain[id+2]) {
			t.Fatalf("%d in %v, gaps %v, want %t", id, s, gaps, plain[id])
		}
	}
	if !gaps.has(math.MaxUint64) || s.gaps().upTo(30).has(31) || s.gaps().upTo(30).has(30) == plain[30] {
		t.Fatalf("gaps of %v", s)
	}
}
