package schedule

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// stepped is a site on a server whose clock can be set.
type stepped struct {
	*site
	file string // that libfaketime reads
}

func newStepped(t *testing.T) *stepped {
	t.Helper()
	s := &stepped{site: &site{t: t}, file: filepath.Join(t.TempDir(), "offset")}
	s.set(0)
	dsn := devtest.ClockOf(t, "FAKETIME_TIMESTAMP_FILE="+s.file).DSN()
	cfg := tocsin.Config{Layout: tocsin.Layout{Databases: 2, Tables: 2, Prefix: "stepped"}, Servers: []tocsin.Server{{Name: "db1", DSN: dsn}}}
	s.site = openSiteOn(t, apply(t, cfg), dsn)
	return s
}

// set sets the server's clock so far ahead.
func (s *stepped) set(ahead time.Duration) {
	s.t.Helper()
	if err := os.WriteFile(s.file+".new", fmt.Appendf(nil, "%+.3f\n", ahead.Seconds()), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.file+".new", s.file); err != nil {
		s.t.Fatal(err)
	}
	if s.db == nil {
		return
	}
	if off := s.now().Sub(time.Now().Add(ahead)).Abs(); off > time.Minute {
		s.t.Fatalf("the server's clock is %s from what was set", off)
	}
}

// ahead lists what is made too far ahead.
func (s *stepped) ahead() (ids []tocsin.JobID) {
	s.t.Helper()
	found, err := s.maker.Ahead(s.t.Context(), 0, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, d := range found {
		ids = append(ids, d.ID)
	}
	return ids
}

// TestACursorOfAClockThatWasAheadIsTakenBack: each fire time from now on has one run, and those that were made while the clock
// was ahead by hours keep theirs.
func TestACursorOfAClockThatWasAheadIsTakenBack(t *testing.T) {
	t.Parallel()
	s := newStepped(t)
	open := s.create(every("open", "1m"))
	ending := every("ending", "1m")
	ending.End = s.now().Add(2 * time.Hour).Truncate(time.Millisecond)
	ended, right := s.create(ending), s.create(Definition{Name: "right", BizType: "report.make", Cron: "@yearly"})
	s.exec(open, "UPDATE {schedule} SET open_from = 'x' WHERE name = 'open'")
	if ids := s.ahead(); len(ids) != 0 {
		t.Fatalf("%v are made too far ahead", ids)
	}

	s.set(3 * time.Hour)
	for _, one := range []Schedule{open, ended, right} {
		s.make(one.ID)
	}
	if got := s.get("ending"); got.State != Ended {
		t.Fatalf("%+v", got)
	}
	s.set(0)
	ids, want := s.ahead(), []tocsin.JobID{open.ID, ended.ID}
	if got := s.get("open"); !got.FarAhead() || !slices.Equal(slices.Sorted(slices.Values(ids)), slices.Sorted(slices.Values(want))) {
		t.Fatalf("%v, want %v: %+v", ids, want, got)
	}
	from := s.now()
	for _, one := range []Schedule{open, ended} {
		if made := s.make(one.ID); made.Back.Before(from.Add(2*time.Hour)) || made.Name != one.Name {
			t.Errorf("%+v", made)
		}
		s.oneRunEach(one, from)
	}
	if n := s.count("SELECT COUNT(*) FROM " + s.database(open) + ".schedule WHERE open_from IS NOT NULL"); n != 0 {
		t.Error("runs below open_from are made")
	}
	if ids := s.ahead(); len(ids) != 0 {
		t.Errorf("then %v are", ids)
	}
}

// oneRunEach holds the runs of the next 20 minutes against the fire times.
func (s *stepped) oneRunEach(of Schedule, from time.Time) {
	s.t.Helper()
	one := s.get(of.Name)
	times, err := one.Times()
	if err != nil || one.State != Active || one.FarAhead() || one.Revision != 1 || one.MadeUntil.Before(from.Add(2*Step)) {
		s.t.Fatalf("%+v, %v", one, err)
	}
	runs := map[int64]int{}
	for _, r := range s.pending(one) {
		runs[r.Key.Nominal().UnixMilli()]++
	}
	n := 0
	for f := times.Next(from); !f.After(one.MadeUntil); f = times.Next(f) {
		if n++; runs[f.UnixMilli()] != 1 {
			s.t.Errorf("%s: %d runs of %s", one.Name, runs[f.UnixMilli()], f)
		}
	}
	for f, n := range runs {
		if n != 1 {
			s.t.Errorf("%s: %d runs of %s", one.Name, n, time.UnixMilli(f).UTC())
		}
	}
	if n < 19 {
		s.t.Errorf("%s: %d fire times", one.Name, n)
	}
}

// TestACursorIsNotTakenBackByAClockThatIsBehind: fire times that were delivered, and purged, would be made again.
func TestACursorIsNotTakenBackByAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	s := newStepped(t)
	one := s.create(every("open", "1m"))
	s.set(-3 * time.Hour)
	s.exec(one, "DELETE FROM {task}")
	if ids := s.ahead(); len(ids) != 0 {
		t.Errorf("%v", ids)
	}
	if made := s.make(one.ID); made.Runs != 0 || !made.Back.IsZero() || len(s.runs(one)) != 0 {
		t.Errorf("%+v, %d runs", made, len(s.runs(one)))
	}
}
