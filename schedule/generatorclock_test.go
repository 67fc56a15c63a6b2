package schedule

import (
	"slices"
	"testing"
	"time"
)

// TestAClockIsSuspect at first, when it was set back by more than a minute, and each hour.
func TestAClockIsSuspect(t *testing.T) {
	t.Parallel()
	var c clock
	start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		in, off time.Duration // how far this process and the server's clock beside it are from the start
		unknown bool
		want    bool
	}{
		{unknown: true},
		{in: time.Second, want: true},
		{in: time.Minute},
		{in: 2 * time.Minute, off: 3 * time.Hour},
		{in: 3 * time.Minute, off: 3*time.Hour - 50*time.Second},
		{in: 4 * time.Minute, want: true},
		{in: 5 * time.Minute},
		{in: 63 * time.Minute},
		{in: 64 * time.Minute, want: true},
	} {
		now := start.Add(step.in)
		server := now.Add(step.off).UnixMilli()
		if step.unknown {
			server = 0
		}
		got := c.suspect(server, now)
		if got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
		if got {
			c.looked = now
		}
	}
}

// TestAFailedLookIsNoNews: it is made again in the next pass, and does not end the pause before it.
func TestAFailedLookIsNoNews(t *testing.T) {
	t.Parallel()
	var c clock
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		off        time.Duration // of the server's clock, beside this process's
		pass       bool          // else the rest between two passes
		news, look bool
	}{
		{news: true},
		{pass: true, look: true},
		{},
		{pass: true, look: true},
		{off: -time.Hour, news: true},
		{off: -time.Hour, news: true},
		{off: -time.Hour, pass: true, look: true},
		{off: -time.Hour},
	} {
		now = now.Add(time.Second)
		server := now.Add(step.off).UnixMilli()
		if step.pass {
			if got := c.suspect(server, now); got != step.look {
				t.Errorf("step %d: looks %v", i, got)
			}
		} else if got := c.note(server, now); got != step.news {
			t.Errorf("step %d: news %v", i, got)
		}
	}
}

// TestSchedulesThatAreMadeTooFarAheadAreTakenBack by any generator.
func TestSchedulesThatAreMadeTooFarAheadAreTakenBack(t *testing.T) {
	t.Parallel()
	s := newGenerated(t)
	s.creates(12, "@every 1m")
	all := s.all()
	wrong := all[:5]
	for _, one := range wrong {
		s.exec(one, "UPDATE {schedule} SET made_until = made_until + INTERVAL 3 DAY, next_fire = next_fire + INTERVAL 3 DAY WHERE schedule_id = ?", uint64(one.ID))
	}
	g := s.generator(func(c *GeneratorConfig) { c.Mine = func(int) bool { return false } })
	for server := range 2 {
		if !g.takeBack(t.Context(), server) {
			t.Error("it could not look")
		}
	}
	for _, one := range s.all() {
		if one.FarAhead() || time.Until(one.NextFire) > 2*Step+2*time.Minute || one.Revision != 1 {
			t.Errorf("%+v", one)
		}
		times := s.fires(one)
		if again := slices.CompactFunc(slices.Clone(times), time.Time.Equal); len(again) != len(times) || len(times) < 20 || len(times) > 22 {
			t.Errorf("%s: %d runs, %d fire times", one.Name, len(times), len(again))
		}
	}
}
