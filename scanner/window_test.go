package scanner

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// ringing is a doorbell whose ids commit out of order.
type ringing struct {
	ids     []uint64 // ascending
	commits []time.Time
}

// read returns the committed ids that are unheard, as pages of at most limit.
func (r ringing) read(unheard store.Unheard, limit int, now time.Time) []store.Bell {
	missing := r.page(unheard.Missing, limit, now)
	return append(missing, r.page([]store.Span{{Low: unheard.After + 1, High: math.MaxUint64}}, limit, now)...)
}

func (r ringing) page(spans []store.Span, limit int, now time.Time) (page []store.Bell) {
	for i, id := range r.ids {
		in := slices.ContainsFunc(spans, func(s store.Span) bool { return s.Low <= id && id <= s.High })
		if in && !r.commits[i].After(now) && len(page) < limit {
			page = append(page, store.Bell{ID: id, Entry: duequeue.Entry{JobID: tocsin.JobID(id)}})
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

// Every bell that commits within commitTime of its successor is read exactly once,
// for any order of commits, gaps and page size.
func TestWindowReadsEveryBellOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bells := drawRinging(t)
		limit := rapid.IntRange(1, 20).Draw(t, "limit")
		end := start
		for _, c := range bells.commits {
			end = later(end, c)
		}
		var w window
		read, seen := make(map[uint64]int), make(map[uint64]int)
		for now := start; now.Before(end.Add(2*reReadEvery + time.Second)); now = now.Add(25 * time.Millisecond) {
			asked := w.next(now)
			for {
				page := bells.read(asked, limit, now)
				for _, b := range page {
					read[b.ID]++
				}
				fresh, rest := w.note(asked, page, limit, now)
				for _, e := range fresh {
					seen[uint64(e.JobID)]++
				}
				if rest == nil {
					break
				}
				asked = *rest
			}
			checkGaps(t, &w)
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, bells.ids) {
			t.Fatalf("saw %v, want %v", got, bells.ids)
		}
		for id, n := range read {
			if n != 1 || seen[id] != 1 {
				t.Fatalf("read %d %d times, saw it %d times", id, n, seen[id])
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

// behindID asks for the ids above an id.
func behindID(id uint64) store.Unheard { return store.Unheard{After: id} }

// missing returns the ids that a window reads again now.
func missing(w *window, now time.Time) []store.Span { return w.next(now).Missing }

// windowCases are those that a property would not name.
var windowCases = map[string]func(t *testing.T){
	"a gap that is not filled in time is given up": func(t *testing.T) {
		w := window{high: 4}
		w.note(behindID(4), bellsAt(9), 10, start)
		if got := missing(&w, start.Add(commitTime)); len(got) != 1 {
			t.Errorf("at the end of its time it reads %v", got)
		}
		if got := missing(&w, start.Add(commitTime+reReadEvery)); got != nil || len(w.gaps) > 0 {
			t.Errorf("then it reads %v, gaps %v", got, w.gaps)
		}
	},
	"between two rounds through the old gaps only the young ones are read": func(t *testing.T) {
		w := window{high: 4}
		w.note(behindID(4), bellsAt(6), 10, start)
		w.next(start.Add(time.Second))
		w.note(behindID(6), bellsAt(9), 10, start.Add(time.Second))
		if got := missing(&w, start.Add(time.Second+lateCommit)); !slices.Equal(got, []store.Span{{Low: 7, High: 8}}) {
			t.Errorf("reads %v", got)
		}
	},
	"many gaps are read by turns, each once in a round": func(t *testing.T) {
		var w window
		for id := range uint64(3 * gapsAtOnce) {
			w.note(behindID(w.high), bellsAt(2*id+2), 10, start)
		}
		read := make(map[store.Span]int)
		for poll := range 10 {
			asked := missing(&w, start.Add(lateCommit+time.Duration(1+poll)*DefaultBellInterval))
			if len(asked) > gapsAtOnce {
				t.Fatalf("reads %d gaps at once", len(asked))
			}
			for _, s := range asked {
				read[s]++
			}
		}
		if len(read) != 3*gapsAtOnce {
			t.Errorf("read %d gaps", len(read))
		}
		for s, n := range read {
			if n != 1 {
				t.Errorf("read %v %d times", s, n)
			}
		}
	},
	"where the highest id fell, it starts anew and reads a few back": func(t *testing.T) {
		w := window{high: 1_000_000}
		w.check(50, start)
		fresh, _ := w.note(w.next(start), bellsAt(1, 50, 51), 10, start)
		if w.high != 51 || len(fresh) != 3 {
			t.Errorf("high %d, fresh %d", w.high, len(fresh))
		}
	},
	"an emptied doorbell goes on with its next id": func(t *testing.T) {
		w := window{high: 1_000_000}
		w.check(0, start)
		if fresh, _ := w.note(w.next(start), bellsAt(1_000_001), 10, start); len(fresh) != 1 {
			t.Errorf("fresh %d", len(fresh))
		}
	},
	"more gaps than it may remember cost the oldest": func(t *testing.T) {
		var w window
		for id := range uint64(maxGaps + 50) {
			w.note(behindID(w.high), bellsAt(2*id+2), 10, start)
		}
		if w.next(start); len(w.gaps) != maxGaps || w.gaps[0].low != 101 {
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
		hurry  bool
		want   time.Duration
	}{
		"one node polls at the base interval":              {peers: 1, want: 25 * time.Millisecond},
		"a silent bell is polled half as often":            {peers: 1, silent: time.Minute, want: 50 * time.Millisecond},
		"tasks that are due at once are polled for faster": {peers: 1, hurry: true, want: 10 * time.Millisecond},
		"a hurry of twenty nodes is no faster":             {peers: 20, hurry: true, want: 200 * time.Millisecond},
		"twenty nodes together poll a hundred times a sec": {peers: 20, want: 200 * time.Millisecond},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := bellWait(DefaultBellInterval, c.peers, c.silent, c.hurry); got != c.want {
				t.Errorf("waits %s, want %s", got, c.want)
			}
		})
	}
}
