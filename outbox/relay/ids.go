package relay

import (
	"math"
	"slices"
	"sort"

	"github.com/tocsinhq/tocsin/outbox"
)

// ids is a set of ids as ranges, in order and with a gap between any two.
type ids []outbox.Range

// at returns the index of the first range that ends at id or later.
func (s ids) at(id uint64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].Last >= id })
}

func (s ids) has(id uint64) bool {
	i := s.at(id)
	return i < len(s) && s[i].First <= id
}

// covers reports whether all ids of the range are in s. An empty range is covered.
func (s ids) covers(r outbox.Range) bool {
	if r.First > r.Last {
		return true
	}
	i := s.at(r.First)
	return i < len(s) && s[i].First <= r.First && s[i].Last >= r.Last
}

// within reports whether all ids of s up to the last one are in other.
func (s ids) within(other ids, last uint64) bool {
	for _, r := range s {
		if r.First > last {
			break
		}
		if !other.covers(outbox.Range{First: r.First, Last: min(r.Last, last)}) {
			return false
		}
	}
	return true
}

func (s *ids) add(id uint64) { s.addRange(outbox.Range{First: id, Last: id}) }

// addRange adds ids, and joins ranges that touch.
func (s *ids) addRange(r outbox.Range) {
	first := (*s).at(max(r.First, 1) - 1)
	last := first
	for ; last < len(*s) && (r.Last == math.MaxUint64 || (*s)[last].First <= r.Last+1); last++ {
		r.First, r.Last = min(r.First, (*s)[last].First), max(r.Last, (*s)[last].Last)
	}
	*s = slices.Replace(*s, first, last, r)
}

// addNear adds an id, and what is between it and the range before it if all of that is in bridge.
func (s *ids) addNear(id uint64, bridge ids) {
	if s.has(id) {
		return
	}
	r := outbox.Range{First: id, Last: id}
	if i := (*s).at(id); i > 0 {
		if between := (outbox.Range{First: (*s)[i-1].Last + 1, Last: id - 1}); bridge.covers(between) {
			r.First = between.First
		}
	}
	s.addRange(r)
}

// join joins ranges between which all ids are in bridge.
func (s *ids) join(bridge ids) { *s = s.joined(bridge, math.MaxUint64) }

// remove takes ids out.
func (s *ids) remove(r outbox.Range) {
	var kept ids
	for i := s.at(r.First); i < len(*s) && (*s)[i].First <= r.Last; i++ {
		old := (*s)[i]
		if old.First < r.First {
			kept = append(kept, outbox.Range{First: old.First, Last: r.First - 1})
		}
		if old.Last > r.Last {
			kept = append(kept, outbox.Range{First: r.Last + 1, Last: old.Last})
		}
	}
	first := s.at(r.First)
	last := first
	for last < len(*s) && (*s)[last].First <= r.Last {
		last++
	}
	*s = slices.Replace(*s, first, last, kept...)
}

// removeAll takes all ids of other sets out.
func (s *ids) removeAll(others ids) {
	for _, r := range others {
		s.remove(r)
	}
}

// gaps returns all ids that are not in s.
func (s ids) gaps() ids {
	var gaps ids
	next := uint64(0)
	for _, r := range s {
		if r.First > next {
			gaps = append(gaps, outbox.Range{First: next, Last: r.First - 1})
		}
		if r.Last == math.MaxUint64 {
			return gaps
		}
		next = r.Last + 1
	}
	return append(gaps, outbox.Range{First: next, Last: math.MaxUint64})
}

// joined joins ranges that have at most that many ids between them, if all of those ids are in bridge.
func (s ids) joined(bridge ids, most uint64) ids {
	var joined ids
	for _, r := range s {
		if n := len(joined); n > 0 && r.First-joined[n-1].Last-1 <= most && bridge.covers(outbox.Range{First: joined[n-1].Last + 1, Last: r.First - 1}) {
			joined[n-1].Last = r.Last
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// upTo returns the ids of s up to a limit.
func (s ids) upTo(last uint64) ids {
	some := slices.Clone(s)
	if last < math.MaxUint64 {
		some.remove(outbox.Range{First: last + 1, Last: math.MaxUint64})
	}
	return some
}
