package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// together is what becomes of seven runs that have come together, and of one whose time comes while the first of them is in delivery, or after all if none is.
type together struct {
	done, missed, skipped, replaced int
	punctual                        string
}

// wantTogether is the table of docs/schedules.md, with missed_most 3.
func wantTogether(missed Missed, overlap Overlap, longer bool, by string) together {
	w := together{done: 7, punctual: "done"}
	inTurn := by != outage || missed == MissedAll || longer
	if by == outage && longer {
		w.done = map[Missed]int{MissedSkip: 0, MissedOnce: 1, MissedAll: 3}[missed]
		w.missed = 7 - w.done
	}
	switch {
	case w.done == 0 || overlap == OverlapAllow:
	case overlap == OverlapSkip:
		w.punctual = "skipped"
		if !inTurn {
			w.done, w.skipped = 1, 6
		}
	case overlap == OverlapQueue && !inTurn:
		w.done, w.skipped, w.punctual = 2, 5, "skipped"
	case overlap == OverlapReplace && inTurn:
		w.done, w.replaced = w.done-1, 1 // the punctual one replaces the one in delivery
	case overlap == OverlapReplace:
		w.done, w.replaced = 0, 7
	}
	return w
}

const outage, backfill, runNow = "outage", "backfill", "run-now"

// TestPoliciesTogether plays each combination of missed, overlap, a start_within that is longer or shorter than the outage, and what brings many runs
// at once.
func TestPoliciesTogether(t *testing.T) {
	t.Parallel()
	s := newTurns(t)
	for _, missed := range []Missed{MissedSkip, MissedOnce, MissedAll} {
		for _, overlap := range []Overlap{OverlapAllow, OverlapSkip, OverlapQueue, OverlapReplace} {
			for _, longer := range []bool{true, false} {
				for _, by := range []string{outage, backfill, runNow} {
					within := 2 * time.Hour
					if longer {
						within = 2 * time.Minute
					}
					if got, want := s.together(missed, overlap, within, by), wantTogether(missed, overlap, longer, by); got != want {
						t.Errorf("missed %s, overlap %s, start_within %s, %s: %+v, want %+v", missed, overlap, within, by, got, want)
					}
				}
			}
		}
	}
}

// together plays one combination. The fire times are each 10 minutes, the last one 5 minutes ago.
func (s *turns) together(missed Missed, overlap Overlap, within time.Duration, by string) (w together) {
	s.t.Helper()
	s.base = s.now()
	of := s.plan(overlap, func(d *Definition) {
		d.Cron, d.Missed, d.MissedMost, d.StartWithin = "@every 10m", missed, 3, biztype.Duration(within)
	})
	s.exec(of, "UPDATE {schedule} SET anchor = ? WHERE schedule_id = ?", s.base.Add(-9005*time.Minute), uint64(of.ID))
	var runs []tocsin.JobID
	switch by {
	case outage:
		for ago := 65; ago > 0; ago -= 10 {
			runs = append(runs, s.put(of, is{ago: ago}))
		}
	case backfill:
		if _, err := s.Backfill(s.t.Context(), of.Name, s.base.Add(-70*time.Minute), s.base, false); err != nil {
			s.t.Fatal(err)
		}
		for _, r := range s.runs(of) {
			runs = append(runs, r.ID)
		}
	case runNow:
		for range 7 {
			made, err := s.RunNow(s.t.Context(), of.Name)
			if err != nil {
				s.t.Fatal(err)
			}
			runs = append(runs, made.JobID)
		}
	}
	s.look(of, runs)
	s.base = s.now()
	punctual := s.put(of, is{})
	s.look(of, []tocsin.JobID{punctual})
	all := append(runs, punctual)
	for rounds := 0; s.finish(of, all); rounds++ {
		if rounds > len(all) {
			s.t.Fatalf("%s, %s, %s: some wait for ever", missed, overlap, by)
		}
		s.exec(of, "UPDATE {task} SET action_time = UTC_TIMESTAMP(3) WHERE biz_key = ? AND status = 0 AND action_time > UTC_TIMESTAMP(3)", of.Key)
		s.look(of, all)
	}
	for _, id := range runs {
		switch word, _, _ := strings.Cut(s.became(id), ":"); word {
		case "done":
			w.done++
		case "missed":
			w.missed++
		case "skipped":
			w.skipped++
		case "replaced":
			w.replaced++
		default:
			s.t.Errorf("a run is %s", word)
		}
	}
	w.punctual, _, _ = strings.Cut(s.became(punctual), ":")
	return w
}

// look has pending runs begin that are due, one after another.
func (s *turns) look(of Schedule, runs []tocsin.JobID) {
	s.t.Helper()
	for _, id := range runs {
		if s.became(id) != "pending" {
			continue
		}
		turn, row := s.load(id)
		if turn.Alone {
			s.begin(id)
		} else if why := turn.Refused(row, s.now().UnixMilli()); why != "" {
			s.exec(of, "UPDATE {task} SET status = 3, last_error = ? WHERE job_id = ?", why, uint64(id))
		} else {
			s.exec(of, "UPDATE {task} SET status = 1, claimed_by = 'me' WHERE job_id = ?", uint64(id))
		}
	}
}

// finish ends what is in delivery, and reports whether runs are left. Of a schedule that does not allow overlaps only one may be in delivery.
func (s *turns) finish(of Schedule, runs []tocsin.JobID) (left bool) {
	s.t.Helper()
	claimed := 0
	for _, id := range runs {
		switch s.became(id) {
		case "claimed":
			claimed++
			s.exec(of, "UPDATE {task} SET status = 2 WHERE job_id = ?", uint64(id))
		case "pending":
			left = true
		}
	}
	if claimed > 1 && of.Overlap != OverlapAllow {
		s.t.Errorf("%d are in delivery at once", claimed)
	}
	return left
}
