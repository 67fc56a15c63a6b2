package schedule

import (
	"strings"
	"testing"
	"time"
)

// TestAScheduleSaysWhatWillHappen in each state, where runs of its last fire times are to come and where they are not.
func TestAScheduleSaysWhatWillHappen(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	at := func(by time.Duration) time.Time { return now.Add(by) }
	for name, c := range map[string]struct {
		end    time.Time
		jitter time.Duration
		state  State
		reason string
		fires  time.Time
		says   string
	}{
		"active":                               {time.Time{}, 0, Active, "", at(10 * time.Minute), "active"},
		"ended, its only run is to come":       {at(11 * time.Minute), 0, Ended, "x", at(10 * time.Minute), "ended: its last run is made, and is due 2026-11-28 12:10:00.000Z"},
		"ended, its last run waits for jitter": {at(-10 * time.Minute), 50 * time.Minute, Ended, "x", at(-50 * time.Minute), "ended: its last run is made, and is due 2026-11-28 12:"},
		"ended, all is over":                   {at(-10 * time.Minute), 0, Ended, "x", time.Time{}, "ended: no fire time is left"},
		"inactive":                             {time.Time{}, 0, Inactive, "", time.Time{}, "inactive"},
		"paused":                               {time.Time{}, 0, Paused, "paused after 3 failures", time.Time{}, "paused: paused after 3 failures"},
	} {
		s := Schedule{Definition: Definition{Name: "a", BizType: "b", Cron: "10 * * * *", End: c.end}.WithDefaults(), State: c.state, Reason: c.reason, ReadAt: now, MadeUntil: at(20 * time.Minute), ID: 1}
		if c.jitter > 0 {
			jittered(59*time.Minute + 59*time.Second)(&s.Definition)
			for times, _ := s.Times(); times.Offset() < c.jitter+time.Minute; times, _ = s.Times() {
				s.ID++
			}
		}
		if c.state == Active {
			s.NextFire = at(10 * time.Minute)
		}
		if got := s.Stands(); !strings.HasPrefix(got, c.says) || !s.Fires().Equal(c.fires) {
			t.Errorf("%s: %q, fires %s, want %q, %s", name, got, s.Fires(), c.says, c.fires)
		}
	}
}
