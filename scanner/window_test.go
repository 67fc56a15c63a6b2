package scanner

import (
	"maps"
	"slices"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/store"
)

var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// ringing is a doorbell whose ids commit out of order.
type ringing struct {
	ids     []uint64 // ascending
	commits []time.Time
}

// read gives the committed ids behind after, as a page of at most limit.
func (r ringing) read(after uint64, limit int, now time.Time) []store.Bell {
	var page []store.Bell
	for i := sort.Search(len(r.ids), func(i int) bool { return r.ids[i] > after }); i < len(r.ids) && len(page) < limit; i++ {
		if !r.commits[i].After(now) {
			page = append(page, store.Bell{ID: r.ids[i], Entry: duequeue.Entry{JobID: tocsin.JobID(r.ids[i])}})
		}
	}
	return page
}

// drawRinging makes ids with gaps, one each few milliseconds, that commit up to
// nine seconds later.
func drawRinging(t *rapid.T) ringing {
	var r ringing
	id, at := uint64(0), start
	for range rapid.IntRange(1, 120).Draw(t, "bells") {
		id += uint64(rapid.SampledFrom([]int{1, 1, 1, 2, 7}).Draw(t, "step"))
		at = at.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "apart")) * time.Millisecond)
		late := time.Duration(rapid.SampledFrom([]int{0, 0, 0, 3, 100, 2000, 9000}).Draw(t, "late")) * time.Millisecond
		r.ids, r.commits = append(r.ids, id), append(r.commits, at.Add(late))
	}
	return r
}

// Every bell that commits within commitTime of its successor is seen exactly
// once, whatever the order of commits, the gaps and the size of pages.
func TestWindowSeesEveryBellOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bells := drawRinging(t)
		limit := rapid.IntRange(1, 20).Draw(t, "limit")
		end := start
		for _, c := range bells.commits {
			end = later(end, c)
		}
		var w window
		seen := make(map[uint64]int)
		for now := start; now.Before(end.Add(2*reReadEvery + time.Second)); now = now.Add(25 * time.Millisecond) {
			after := w.after(now)
			for range 4 {
				fresh, more := w.note(bells.read(after, limit, now), limit, now)
				for _, e := range fresh {
					seen[uint64(e.JobID)]++
				}
				if after = w.cursor; !more {
					break
				}
			}
			checkGaps(t, &w)
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, bells.ids) {
			t.Fatalf("saw %v, want %v", got, bells.ids)
		}
		for id, n := range seen {
			if n != 1 {
				t.Fatalf("saw %d %d times", id, n)
			}
		}
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func checkGaps(t *rapid.T, w *window) {
	top := uint64(0)
	for _, g := range w.gaps {
		if g.low <= top || g.high < g.low || g.high > w.high {
			t.Fatalf("gaps %v under %d are not in order", w.gaps, w.high)
		}
		top = g.high
	}
}

// bellsAt rings with the ids.
func bellsAt(ids ...uint64) []store.Bell {
	var bells []store.Bell
	for _, id := range ids {
		bells = append(bells, store.Bell{ID: id})
	}
	return bells
}

// windowCases are those that a property would not name.
var windowCases = map[string]func(t *testing.T){
	"ids without a gap are never read again": func(t *testing.T) {
		w := window{high: 4}
		w.note(bellsAt(5, 6), 10, start)
		if got := w.after(start); got != 6 {
			t.Errorf("reads behind %d", got)
		}
	},
	"a gap that is not filled in time is given up": func(t *testing.T) {
		w := window{high: 4}
		w.note(bellsAt(9), 10, start)
		if got := w.after(start.Add(commitTime)); got != 4 {
			t.Errorf("at the end of its time it reads behind %d", got)
		}
		if got := w.after(start.Add(commitTime + reReadEvery)); got != 9 || len(w.gaps) > 0 {
			t.Errorf("then it reads behind %d, gaps %v", got, w.gaps)
		}
	},
	"between two readings of old gaps only the young ones are read": func(t *testing.T) {
		w := window{high: 4}
		w.note(bellsAt(6), 10, start)
		w.after(start.Add(time.Second))
		w.note(bellsAt(9), 10, start.Add(time.Second))
		if got := w.after(start.Add(time.Second + lateCommit)); got != 6 {
			t.Errorf("reads behind %d", got)
		}
	},
	"where the highest id fell, it starts anew and reads a few back": func(t *testing.T) {
		w := window{high: 1_000_000}
		w.check(50, start)
		fresh, _ := w.note(bellsAt(1, 50, 51), 10, start)
		if w.high != 51 || len(fresh) != 3 {
			t.Errorf("high %d, fresh %d", w.high, len(fresh))
		}
	},
	"an emptied doorbell goes on with its next id": func(t *testing.T) {
		w := window{high: 1_000_000}
		w.check(0, start)
		if fresh, _ := w.note(bellsAt(1_000_001), 10, start); len(fresh) != 1 {
			t.Errorf("fresh %d", len(fresh))
		}
	},
	"more gaps than it may remember cost the oldest": func(t *testing.T) {
		var w window
		for id := range uint64(maxGaps + 50) {
			w.note(bellsAt(2*id+2), 10, start)
		}
		if w.after(start); len(w.gaps) != maxGaps || w.gaps[0].low != 101 {
			t.Errorf("%d gaps from %d on", len(w.gaps), w.gaps[0].low)
		}
	},
}

func TestWindow(t *testing.T) {
	for name, check := range windowCases {
		t.Run(name, check)
	}
}

func TestBellWait(t *testing.T) {
	cases := map[string]struct {
		peers  int
		silent time.Duration
		want   time.Duration
	}{
		"one node polls at the base interval":              {peers: 1, want: 25 * time.Millisecond},
		"a silent bell is polled half as often":            {peers: 1, silent: time.Minute, want: 50 * time.Millisecond},
		"twenty nodes together poll a hundred times a sec": {peers: 20, want: 200 * time.Millisecond},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := bellWait(DefaultBellInterval, c.peers, c.silent); got != c.want {
				t.Errorf("waits %s, want %s", got, c.want)
			}
		})
	}
}
