package schedule

import (
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func TestWindows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cron        string
		behind      time.Duration // of made_until at noon
		missed      Missed
		most        int
		end         time.Duration // after noon; 0: none
		first, last time.Duration // of the fire times, before and after noon
		fires       int
		until       time.Duration // made_until after noon
		next        time.Duration // after noon; 0: none
		passedOver  int
	}{
		"up to date":                  {"* * * * *", 0, MissedOnce, 0, 0, time.Minute, 20 * time.Minute, 20, 20 * time.Minute, 21 * time.Minute, 0},
		"ahead":                       {"* * * * *", -15 * time.Minute, MissedOnce, 0, 0, 16 * time.Minute, 20 * time.Minute, 5, 20 * time.Minute, 21 * time.Minute, 0},
		"behind, all in time":         {"* * * * *", 10 * time.Minute, MissedSkip, 0, 0, -9 * time.Minute, 20 * time.Minute, 30, 20 * time.Minute, 21 * time.Minute, 0},
		"just in time":                {"* * * * *", 11 * time.Minute, MissedSkip, 0, 0, -10 * time.Minute, 20 * time.Minute, 31, 20 * time.Minute, 21 * time.Minute, 0},
		"skip":                        {"* * * * *", time.Hour, MissedSkip, 0, 0, -10 * time.Minute, 20 * time.Minute, 31, 20 * time.Minute, 21 * time.Minute, 49},
		"once":                        {"* * * * *", time.Hour, MissedOnce, 0, 0, -11 * time.Minute, 20 * time.Minute, 32, 20 * time.Minute, 21 * time.Minute, 48},
		"all":                         {"* * * * *", time.Hour, MissedAll, 100, 0, -59 * time.Minute, 20 * time.Minute, 80, 20 * time.Minute, 21 * time.Minute, 0},
		"all, bounded":                {"* * * * *", time.Hour, MissedAll, 7, 0, -17 * time.Minute, 20 * time.Minute, 38, 20 * time.Minute, 21 * time.Minute, 42},
		"once, nothing was missed":    {"30 13 * * *", time.Hour, MissedOnce, 0, 0, 0, 0, 0, 20 * time.Minute, 90 * time.Minute, 0},
		"once, of a day ago":          {"30 13 * * *", 24 * time.Hour, MissedOnce, 0, 0, -22*time.Hour - 30*time.Minute, -22*time.Hour - 30*time.Minute, 1, 20 * time.Minute, 90 * time.Minute, 0},
		"skip, of ten years":          {"0 0 1 * *", 10 * 365 * 24 * time.Hour, MissedSkip, 0, 0, 0, 0, 0, 20 * time.Minute, 8*24*time.Hour + 12*time.Hour, 120},
		"all, of ten years":           {"0 0 1 * *", 10 * 365 * 24 * time.Hour, MissedAll, 2, 0, -52*24*time.Hour - 12*time.Hour, -21*24*time.Hour - 12*time.Hour, 2, 20 * time.Minute, 8*24*time.Hour + 12*time.Hour, 118},
		"more missed than are made":   {"@every 1s", time.Hour, MissedAll, 500, 0, -18*time.Minute - 20*time.Second, -10*time.Minute - time.Second, 500, -10*time.Minute - time.Millisecond, -10 * time.Minute, 2499},
		"more to come than are made":  {"@every 1s", 0, MissedOnce, 0, 0, time.Second, 500 * time.Second, 500, 500 * time.Second, 501 * time.Second, 0},
		"an end":                      {"* * * * *", 0, MissedOnce, 0, 5 * time.Minute, time.Minute, 4 * time.Minute, 4, 20 * time.Minute, 0, 0},
		"an end that was long ago":    {"* * * * *", time.Hour, MissedOnce, 0, -30 * time.Minute, -31 * time.Minute, -31 * time.Minute, 1, 20 * time.Minute, 0, 28},
		"the last one is the 500th":   {"@every 1s", 0, MissedOnce, 0, 501 * time.Second, time.Second, 500 * time.Second, 500, 500 * time.Second, 0, 0},
		"a made_until of a later now": {"0 * * * *", -30 * time.Minute, MissedOnce, 0, 0, 0, 0, 0, 30 * time.Minute, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Schedule{Definition: Definition{Name: "n", Cron: c.cron, Missed: c.missed, MissedMost: c.most}.WithDefaults(), Anchor: noon, MadeUntil: noon.Add(-c.behind)}
			if c.end != 0 {
				s.End = noon.Add(c.end)
			}
			times, err := s.Times()
			if err != nil {
				t.Fatal(err)
			}
			w := windowOf(s, times, noon)
			if len(w.fires) != c.fires || w.passedOver != c.passedOver || !w.until.Equal(noon.Add(c.until)) {
				t.Errorf("%d fire times, %d passed over, until %s", len(w.fires), w.passedOver, w.until.Sub(noon))
			}
			if c.fires > 0 && len(w.fires) > 0 && (!w.fires[0].Equal(noon.Add(c.first)) || !w.fires[len(w.fires)-1].Equal(noon.Add(c.last))) {
				t.Errorf("fires from %s to %s", w.fires[0].Sub(noon), w.fires[len(w.fires)-1].Sub(noon))
			}
			if want := noon.Add(c.next); c.next == 0 && !w.next.IsZero() || c.next != 0 && !w.next.Equal(want) {
				t.Errorf("next is %s", w.next)
			}
		})
	}
}

// A run is missed if its due time, jitter included, is too long ago.
func TestJitterDelaysWhatIsMissed(t *testing.T) {
	t.Parallel()
	d := Definition{Name: "n", Cron: "* * * * *", Missed: MissedSkip, Jitter: biztype.Duration(50 * time.Second)}.WithDefaults()
	for id := uint64(1); id < 100; id++ {
		s := Schedule{Definition: d, ID: tocsin.JobID(id), Anchor: noon, MadeUntil: noon.Add(-time.Hour)}
		times, err := s.Times()
		if err != nil {
			t.Fatal(err)
		}
		now := noon.Add(time.Duration(id) * 601 * time.Millisecond)
		w := windowOf(s, times, now)
		if first := w.fires[0].Add(times.Offset()); first.Before(now.Add(-DefaultStartWithin)) || !first.Add(-time.Minute).Before(now.Add(-DefaultStartWithin)) {
			t.Errorf("the first is due at %s, at %s", first, now)
		}
	}
}

// Two windows, one after the other, have the fire times of one.
func TestWindowsHaveNoGapAndNoOverlap(t *testing.T) {
	t.Parallel()
	s := Schedule{Definition: Definition{Name: "n", Cron: "*/7 * * * *"}.WithDefaults(), Anchor: noon, MadeUntil: noon}
	times, err := s.Times()
	if err != nil {
		t.Fatal(err)
	}
	want := noon
	for now := noon; now.Before(noon.Add(24 * time.Hour)); now = now.Add(3 * time.Minute) {
		w := windowOf(s, times, now)
		for _, at := range w.fires {
			if want = times.Next(want); at != want {
				t.Fatalf("%s, want %s", at, want)
			}
		}
		if w.until.Before(s.MadeUntil) || !w.next.Equal(times.Next(want)) {
			t.Fatalf("%+v", w)
		}
		s.MadeUntil = w.until
	}
}
