package schedule

import (
	"errors"
	"testing"
	"time"
)

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
