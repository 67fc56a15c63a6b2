package schedule

import (
	"testing"
	"time"
)

// monday is a Monday at 09:00 UTC.
var monday = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)

// TestAnIntervalCountsFromItsStart: whenever it is applied, in whichever zone, before the start and after it.
func TestAnIntervalCountsFromItsStart(t *testing.T) {
	t.Parallel()
	berlin, _ := time.LoadLocation("Europe/Berlin")
	for name, c := range map[string]struct {
		start, applied, first time.Time
		zone                  string
	}{
		"start to come":                   {monday, monday.Add(-1000 * time.Hour), monday, ""},
		"at the start":                    {monday, monday, monday.Add(336 * time.Hour), ""},
		"a millisecond before it":         {monday, monday.Add(-time.Millisecond), monday, ""},
		"start passed, on a Saturday":     {monday, monday.Add(5*24*time.Hour + 7*time.Hour), monday.Add(336 * time.Hour), ""},
		"years ago":                       {monday.Add(-336 * time.Hour * 100), monday.Add(time.Hour), monday.Add(336 * time.Hour), ""},
		"start in a zone, clocks changed": {time.Date(2026, 3, 16, 9, 0, 0, 0, berlin), time.Date(2026, 3, 20, 0, 0, 0, 0, berlin), time.Date(2026, 3, 30, 10, 0, 0, 0, berlin), "Europe/Berlin"},
		"start in another zone":           {time.Date(2026, 3, 16, 9, 0, 0, 0, berlin), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 16, 8, 0, 0, 0, time.UTC), "Asia/Tokyo"},
		"no start":                        {time.Time{}, monday.Add(77 * time.Hour), monday.Add((77 + 336) * time.Hour), ""},
	} {
		d := Definition{Name: "fortnightly", BizType: "report.make", Cron: "@every 336h", Zone: c.zone, Start: c.start}
		got, err := d.Next(c.applied, 2)
		if err != nil || len(got) != 2 || !got[0].Equal(c.first) || !got[1].Equal(c.first.Add(336*time.Hour)) {
			t.Errorf("%s: %v, %v, want %s", name, got, err, c.first)
		}
	}
}

// TestAnIntervalKeepsItsStart through edits, a deactivation and an activation; a backfill counts from it too.
func TestAnIntervalKeepsItsStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := every("fortnightly", "336h")
	d.Start = s.now().Truncate(time.Hour).Add(-1000 * 336 * time.Hour).Add(3 * time.Hour)
	on := func(what string, from time.Time) {
		t.Helper()
		got := s.get(d.Name)
		fires, err := got.Following(got.ReadAt, 3)
		if err != nil || !got.Anchor.Equal(from) || len(fires) != 3 || fires[0].Time.Sub(from)%(336*time.Hour) != 0 || !fires[0].Time.Equal(got.Fires()) {
			t.Errorf("%s: from %s, %+v, %v", what, got.Anchor, fires, err)
		}
	}
	s.create(d)
	on("created", d.Start)
	d.Payload = "other"
	s.apply(d)
	on("edited", d.Start)
	if _, _, err := s.Deactivate(t.Context(), d.Name); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Activate(t.Context(), d.Name); err != nil {
		t.Fatal(err)
	}
	on("activated", d.Start)
	d.Cron = "@every 672h"
	s.apply(d)
	on("another period", d.Start)
	d.Start = d.Start.Add(48 * time.Hour)
	s.apply(d)
	on("another start", d.Start)
	if b, err := s.Backfill(t.Context(), d.Name, d.Start.Add(-10*time.Hour), d.Start.Add(673*time.Hour), false); err != nil || b.Made != 2 || !b.Times[0].Time.Equal(d.Start) {
		t.Errorf("backfill: %+v, %v", b, err)
	}
	was := d.Start
	d.Start = time.Time{}
	s.apply(d)
	on("without a start", was)
	d.Cron = "@every 40320m"
	s.apply(d)
	on("the period in other words", was)
	d.Start = s.now().Add(100 * time.Hour).Truncate(time.Millisecond)
	s.apply(d)
	on("a start to come", d.Start)
	if got := s.get(d.Name).Fires(); !got.Equal(d.Start) {
		t.Errorf("it fires first at %s, not at its start %s", got, d.Start)
	}
	d.Start = time.Time{}
	s.apply(d)
	if got := s.get(d.Name); got.Anchor.Sub(s.now()).Abs() > time.Minute {
		t.Errorf("without a start that was to come it counts from %s", got.Anchor)
	}
}
