package relay

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/outbox"
)

// endIDs are the ids at both ends of all ids, where a sum or a difference overflows.
func endIDs() (all []uint64) {
	for n := range uint64(12) {
		all = append(all, n, math.MaxUint64-n)
	}
	slices.Sort(all)
	return all
}

// plainIDs is a set of the ids at both ends, and of all ids between them or none.
type plainIDs struct {
	at      []uint64
	ends    map[uint64]bool
	between bool
}

func (p *plainIDs) set(r outbox.Range, in bool) {
	for _, id := range p.at {
		if r.First <= id && id <= r.Last {
			p.ends[id] = in
		}
	}
	if r.First <= 12 && r.Last >= math.MaxUint64-12 {
		p.between = in
	}
}

func (p *plainIDs) has(id uint64) bool {
	if id < 12 || id > math.MaxUint64-12 {
		return p.ends[id]
	}
	return p.between
}

// drawRange draws a range with both ends among the ids, or an empty set of them.
func drawRange(t *rapid.T, at []uint64) outbox.Range {
	a, b := rapid.SampledFrom(at).Draw(t, "a"), rapid.SampledFrom(at).Draw(t, "b")
	return outbox.Range{First: min(a, b), Last: max(a, b)}
}

// TestIDsAtBothEnds plays additions, removals and joins on ids at both ends and on a plain set, and compares what is asked
// of them.
func TestIDsAtBothEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := endIDs()
		var s ids
		plain := &plainIDs{at: at, ends: map[uint64]bool{}}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			r := drawRange(t, at)
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				s.addRange(r)
				plain.set(r, true)
			case 1:
				s.remove(r)
				plain.set(r, false)
			case 2:
				s.add(r.First)
				plain.set(outbox.Range{First: r.First, Last: r.First}, true)
			default:
				var others ids
				others.addRange(r)
				others.addRange(drawRange(t, at))
				for _, r := range others {
					plain.set(r, false)
				}
				s.removeAll(others)
			}
			compareEnds(t, s, plain)
		}
	})
}

// compareEnds compares a set with the plain one.
func compareEnds(t *rapid.T, s ids, plain *plainIDs) {
	for i, r := range s {
		if r.First > r.Last || i > 0 && (s[i-1].Last == math.MaxUint64 || s[i-1].Last+1 >= r.First) {
			t.Fatalf("not in order and apart: %v", s)
		}
	}
	gaps := s.gaps()
	if back := gaps.gaps(); !slices.Equal(back, s) {
		t.Fatalf("the gaps of the gaps of %v are %v", s, back)
	}
	last := rapid.SampledFrom(plain.at).Draw(t, "last")
	upTo, asked := s.upTo(last), drawRange(t, plain.at)
	covered := true
	for _, id := range append(slices.Clone(plain.at), 12, math.MaxUint64-12) {
		if s.has(id) != plain.has(id) || gaps.has(id) == plain.has(id) || upTo.has(id) != (plain.has(id) && id <= last) {
			t.Fatalf("%d of %v, gaps %v, up to %d %v: want %t", id, s, gaps, last, upTo, plain.has(id))
		}
		covered = covered && (id < asked.First || id > asked.Last || plain.has(id))
	}
	if s.covers(asked) != covered {
		t.Fatalf("%v covers %v: want %t", s, asked, covered)
	}
}

// TestIDsStayFewWhereTheyAreNear adds ids in any order over a bridge of known ones: what is bridged is one range.
func TestIDsStayFewWhereTheyAreNear(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var known, s ids
		for _, id := range rapid.SliceOfN(rapid.Uint64Range(1, 60), 1, 60).Draw(t, "known") {
			known.add(id)
		}
		rows := slices.Clone(rapid.SliceOfN(rapid.SampledFrom(members(known)), 1, 20).Draw(t, "rows"))
		for _, id := range rows {
			s.addNear(id, known)
		}
		s.join(known)
		for _, id := range rows {
			if !s.has(id) {
				t.Fatalf("%d is missing in %v", id, s)
			}
		}
		for _, r := range s {
			if !known.covers(r) {
				t.Fatalf("%v has ids that are not known: %v", s, known)
			}
		}
		if len(s) > len(known) {
			t.Fatalf("%v has more ranges than %v", s, known)
		}
	})
}

func members(s ids) (all []uint64) {
	for _, r := range s {
		for id := r.First; id <= r.Last; id++ {
			all = append(all, id)
		}
	}
	return all
}
