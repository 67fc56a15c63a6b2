package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/ids"
)

func TestRunNowMakesARunOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := s.create(every("report", "1h"))
	seen := map[tocsin.JobID]bool{}
	for range 3 {
		run, err := s.RunNow(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		seen[run.JobID] = true
	}
	if _, _, err := s.Deactivate(t.Context(), "report"); err != nil {
		t.Fatal(err)
	}
	run, err := s.RunNow(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	seen[run.JobID] = true
	runs := s.pending(made)
	if len(runs) != 4 || len(seen) != 4 {
		t.Fatalf("%d runs, %d ids", len(runs), len(seen))
	}
	for _, r := range runs {
		if !seen[r.ID] || r.Key.Kind != ids.Manual || r.Key.Number != uint64(r.ID) || r.Due.After(s.now()) || r.Payload != "p of report" {
			t.Errorf("%+v", r)
		}
	}
	if n := s.count("SELECT COUNT(DISTINCT job_id) FROM " + s.database(made) + ".doorbell"); n != 4 {
		t.Errorf("%d bells", n)
	}
	if _, err := s.RunNow(t.Context(), "no.such"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestBackfillMakesRunsOfThePast(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := every("report", "1h")
	d.Cron, d.Jitter = "*/10 * * * *", biztype.Duration(time.Minute)
	made := s.create(d)
	pending := len(s.pending(made))
	times, _ := made.Times()
	from := s.now().Truncate(time.Hour).Add(-24 * time.Hour)
	dry, err := s.Backfill(t.Context(), "report", from, from.Add(time.Hour), true)
	if err != nil || len(dry.Times) != 6 || dry.Made != 0 || !dry.Times[0].Time.Equal(from) || !dry.Times[0].Due.Equal(from.Add(times.Offset())) {
		t.Fatalf("%+v, %v", dry, err)
	}
	if n := len(s.pending(made)); n != pending {
		t.Fatalf("a dry run made %d runs", n-pending)
	}
	for _, want := range []Backfilled{{Made: 6}, {There: 6}} {
		got, err := s.Backfill(t.Context(), "report", from, from.Add(time.Hour), false)
		if err != nil || got.Made != want.Made || got.There != want.There || len(got.Times) != 6 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	runs := s.pending(made)[:6]
	for i, r := range runs {
		nominal := from.Add(time.Duration(i) * 10 * time.Minute)
		if r.Key.Kind != ids.Backfill || !r.Key.Nominal().Equal(nominal) || !r.Due.Equal(nominal.Add(times.Offset())) || r.Action.Before(made.Created) {
			t.Errorf("%+v", r)
		}
	}
	// Two transactions, of which a part was there.
	longAgo := from.Add(-5 * 24 * time.Hour)
	got, err := s.Backfill(t.Context(), "report", longAgo, from.Add(time.Hour), false)
	if err != nil || got.Made != 5*24*6 || got.There != 6 {
		t.Errorf("made %d, there %d, %v", got.Made, got.There, err)
	}
	if n := s.get("report"); n.Revision != 1 || !n.MadeUntil.Equal(made.MadeUntil) {
		t.Errorf("the cursor moved: %+v", n)
	}
}

func TestBackfillsAreRefusedInOneLine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := every("report", "1h")
	d.Cron = "* * * * *"
	s.create(d)
	now := s.now()
	for want, span := range map[string][2]time.Time{
		"now, and a backfill makes runs for the past only": {now.Add(-time.Hour), now.Add(time.Minute)},
		"has more than 1000 fire times, the 1000th is ":    {now.Add(-24 * time.Hour), now},
		"to must be after from":                            {now, now.Add(-time.Hour)},
		"from is the zero time":                            {},
	} {
		for _, dry := range []bool{true, false} {
			if _, err := s.Backfill(t.Context(), "report", span[0], span[1], dry); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	if _, err := s.Backfill(t.Context(), "no.such", now.Add(-time.Hour), now, false); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// Ids of other tasks, and payloads too large for one statement, stand in nobody's way.
func TestRunsAreMadeBesideTakenIDsAndInParts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := every("report", "1s")
	d.Payload = strings.Repeat("ä", tocsin.MaxPayload)
	made := s.create(d)
	if n := len(s.pending(made)); n != MaxRuns {
		t.Fatalf("%d runs", n)
	}
	// The id that comes next is taken.
	s.maker.ids.Start(time.Now().Add(time.Hour))
	first := tocsin.JobID(s.maker.ids.Next(time.Now(), made.Table))
	s.exec(made, `INSERT INTO {task} (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute)
VALUES (?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 1, 1, 0, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '')`, uint64(first)+1)
	if got := s.make(made.ID); got.Runs != MaxRuns {
		t.Errorf("%+v", got)
	}
	runs := s.pending(made)
	if once(t, runs); len(runs) != 2*MaxRuns {
		t.Errorf("%d runs", len(runs))
	}
}

func TestOpenRunsAreThosePendingAndClaimed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := every("poll", "5m")
	made := s.create(d)
	other := s.create(every("poll.other", "5m"))
	now, err := s.RunNow(t.Context(), "poll")
	if err != nil {
		t.Fatal(err)
	}
	filled, err := s.Backfill(t.Context(), "poll", s.now().Add(-12*time.Minute), s.now().Add(-6*time.Minute), false)
	if err != nil || filled.Made == 0 {
		t.Fatalf("%+v, %v", filled, err)
	}
	if _, err := s.RunNow(t.Context(), other.Name); err != nil {
		t.Fatal(err)
	}
	count := func(open []OpenRun) map[Why]int {
		kinds := map[Why]int{}
		for i, o := range open {
			kinds[o.For]++
			if i > 0 && o.Action.Before(open[i-1].Action) {
				t.Errorf("%v is behind %v", o.Action, open[i-1].Action)
			}
			if (o.For == ForRunNow) != o.Time.IsZero() || o.For == ForRunNow && o.JobID != now.JobID {
				t.Errorf("%+v", o)
			}
		}
		return kinds
	}
	open := s.open("poll", 100)
	if got := count(open); got[ForFireTime] < 3 || got[ForRunNow] != 1 || got[ForBackfill] != filled.Made {
		t.Errorf("%v", got)
	}
	s.exec(made, "UPDATE {task} SET status = 2 WHERE job_id = ?", uint64(now.JobID))
	s.exec(made, "UPDATE {task} SET status = 1 WHERE job_id = ?", uint64(open[len(open)-1].JobID))
	if got := s.open("poll", 100); count(got)[ForRunNow] != 0 || len(got) != len(open)-1 {
		t.Errorf("a run is done: %+v", got)
	}
	if got := s.open("poll", 2); len(got) != 2 {
		t.Errorf("%d of 2", len(got))
	}
	if _, err := s.OpenRuns(t.Context(), "poll", 0); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if _, err := s.OpenRuns(t.Context(), "none", 1); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func (s *site) open(name string, limit int) []OpenRun {
	s.t.Helper()
	open, err := s.OpenRuns(s.t.Context(), name, limit)
	if err != nil {
		s.t.Fatal(err)
	}
	return open
}
