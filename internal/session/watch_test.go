package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/internal/store"
)

// span is when something began and ended.
type span struct{ began, ended time.Time }

// history is all that a watch was told.
type history struct {
	beats []span
	reads []span
	saw   []map[string]uint64 // beats by session, of each read
}

// mayEnd reports whether the history allows a session to be ended: the rule itself, over all that happened.
func (h *history) mayEnd(id string, now time.Time) bool {
	last := len(h.reads) - 1
	if last < 0 || len(h.beats) == 0 || now.Sub(h.reads[last].began) > readGap || now.Sub(h.beats[len(h.beats)-1].began) > beatGap {
		return false
	}
	beat, there := h.saw[last][id]
	for first := last; there && first >= 0; first-- {
		if b, known := h.saw[first][id]; !known || b != beat {
			return false
		}
		if first < last && h.reads[first+1].ended.Sub(h.reads[first].began) > readGap {
			return false
		}
		if last-first+1 >= standReads && h.reads[last].began.Sub(h.reads[first].ended) >= StandFor {
			return h.beatSince(h.reads[first].ended)
		}
	}
	return false
}

// beatSince reports whether the process has beaten without a gap since.
func (h *history) beatSince(since time.Time) bool {
	for i, b := range h.beats {
		if b.ended.After(since) && (i == 0 || b.ended.Sub(h.beats[i-1].began) > beatGap) {
			return false
		}
	}
	return true
}

// A session is ended only as the rule allows, and silent only after a silence that was watched.
func TestJudgementsKeepTheRule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var w watch
		var h history
		now := time.Now()
		beats := map[string]uint64{"own": 0, "a": 0, "b": 0}
		ms := func(least, most int, what string) time.Duration {
			return time.Duration(rapid.IntRange(least, most).Draw(t, what)) * time.Millisecond
		}
		for range rapid.IntRange(0, 120).Draw(t, "steps") {
			pause := ms(50, 400, "pause")
			if rapid.IntRange(0, 29).Draw(t, "stands still") == 0 {
				pause += ms(0, 3000, "for")
			}
			now = now.Add(pause)
			began := now
			now = now.Add(ms(0, 200, "takes"))
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				if id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "beats"); beats[id] > 0 || rapid.Bool().Draw(t, "at all") {
					beats[id]++
				}
			case 1, 2, 3, 4:
				h.beats = append(h.beats, span{began, now})
				w.beaten(began, now)
			default:
				var rows []store.Session
				saw := map[string]uint64{}
				for _, id := range []string{"own", "a", "b"} {
					rows, saw[id] = append(rows, store.Session{ID: id, Beat: beats[id]}), beats[id]
				}
				h.reads, h.saw = append(h.reads, span{began, now}), append(h.saw, saw)
				w.read(began, now, rows, "own")
			}
			var may []string
			for _, s := range w.ends(now, "own") {
				may = append(may, s.ID)
			}
			for _, id := range []string{"own", "a", "b"} {
				if want := id != "own" && h.mayEnd(id, now); slices.Contains(may, id) != want {
					t.Fatalf("session %s may be ended: %t, want %t", id, !want, want)
				}
			}
		}
	})
}

// stalls are the times in which a server takes no writes: what is sent then commits at the end, unless its sender gave up.
type stalls []span

func (s stalls) commits(at time.Time) time.Time {
	for _, one := range s {
		if !at.Before(one.began) && at.Before(one.ended) {
			return one.ended
		}
	}
	return at
}

// However long and often a server's writes stall, while reads work, nobody ends the session of a process that beats.
func TestStalledWritesEndNobody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := time.Now()
		ms := func(least, most int, what string) time.Duration {
			return time.Duration(rapid.IntRange(least, most).Draw(t, what)) * time.Millisecond
		}
		var stalled stalls
		for at, n := start, rapid.IntRange(0, 5).Draw(t, "stalls"); n > 0; n-- {
			at = at.Add(ms(1, 4000, "after"))
			end := at.Add(ms(1, 12000, "lasts"))
			stalled, at = append(stalled, span{at, end}), end
		}
		type beat struct {
			span
			ok bool
		}
		late := rapid.Bool().Draw(t, "a beat that was given up commits late")
		beatsOf := func(offset time.Duration) (all []beat, commits []time.Time) {
			for at := start.Add(offset); at.Before(start.Add(60 * time.Second)); {
				done := stalled.commits(at).Add(10 * time.Millisecond)
				ok := done.Sub(at) <= store.BeatTimeout
				if ok || late {
					commits = append(commits, done)
				}
				ended := done
				if !ok {
					ended = at.Add(store.BeatTimeout)
				}
				all = append(all, beat{span{at, ended}, ok})
				next := at.Add(every)
				for next.Before(ended) {
					next = next.Add(every)
				}
				at = next
			}
			slices.SortFunc(commits, time.Time.Compare)
			return all, commits
		}
		_, theirs := beatsOf(ms(0, 499, "theirs"))
		own, _ := beatsOf(ms(0, 499, "own"))
		var w watch
		for at := start.Add(ms(0, 499, "reads")); at.Before(start.Add(60 * time.Second)); at = at.Add(every) {
			for len(own) > 0 && !own[0].ended.After(at) {
				if own[0].ok {
					w.beaten(own[0].began, own[0].ended)
				}
				own = own[1:]
			}
			beats, _ := slices.BinarySearchFunc(theirs, at, time.Time.Compare)
			w.read(at, at.Add(5*time.Millisecond), []store.Session{{ID: "own"}, {ID: "a", Beat: uint64(beats)}}, "own")
			if may := w.ends(at.Add(6*time.Millisecond), "own"); len(may) > 0 {
				t.Fatalf("after %s: %v are ended; stalls %v", at.Sub(start), may, stalled)
			}
		}
	})
}

// play runs a watch whose process beats and reads each half second, and returns what each read says.
func play(seconds int, beatOf func(at time.Duration) (uint64, bool)) (says []string) {
	var w watch
	start := time.Now()
	for at := time.Duration(0); at < time.Duration(seconds)*time.Second; at += every {
		now := start.Add(at)
		w.beaten(now, now)
		rows := []store.Session{{ID: "own"}}
		if beat, there := beatOf(at); there {
			rows = append(rows, store.Session{ID: "a", Beat: beat})
		}
		gone, changed := w.read(now, now, rows, "own")
		if may := w.ends(now, "own"); changed || len(gone) > 0 || len(may) > 0 {
			silent := w.seen["a"] != nil && w.seen["a"].silent
			says = append(says, fmt.Sprintf("%.1f s: changed %t, gone %v, silent %t, may end %d", at.Seconds(), changed, gone, silent, len(may)))
		}
	}
	return says
}

func TestASilentSessionIsPassedOverThenEnded(t *testing.T) {
	t.Parallel()
	got := play(6, func(at time.Duration) (uint64, bool) { return uint64(min(at, time.Second) / every), true })
	want := []string{
		"0.0 s: changed true, gone [], silent false, may end 0",
		"2.5 s: changed true, gone [], silent true, may end 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	got = play(8, func(at time.Duration) (uint64, bool) {
		return uint64(min(at, time.Second)/every) + uint64(at/(7*time.Second)), at < 7500*time.Millisecond
	})
	want = append(want,
		"6.0 s: changed false, gone [], silent true, may end 1",
		"6.5 s: changed false, gone [], silent true, may end 1",
		"7.0 s: changed true, gone [], silent false, may end 0",
		"7.5 s: changed true, gone [a], silent false, may end 0",
	)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
