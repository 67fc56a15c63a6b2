package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

func TestANewScheduleHasItsFirstRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := every("report", "1m")
	d.PayloadVersion = 2
	d.Headers, d.Jitter = map[string]string{"tenant": "shop-7"}, biztype.Duration(30*time.Second)
	made := s.create(d)
	times, err := made.Times()
	if err != nil {
		t.Fatal(err)
	}
	runs := s.runs(made)
	if made.State != Active || made.Revision != 1 || made.Made != 20 || len(runs) != 20 || !made.MadeUntil.Equal(made.Anchor.Add(2*Step)) {
		t.Fatalf("%d runs of %+v", len(runs), made)
	}
	for i, r := range runs {
		nominal := made.Anchor.Add(time.Duration(i+1) * time.Minute)
		if !r.Key.Nominal().Equal(nominal) || r.Key.Revision != 1 || !r.Due.Equal(nominal.Add(times.Offset())) || !r.Action.Equal(r.Due) || r.Payload != "p of report" || r.ID.Table() != made.Table {
			t.Errorf("run %d: %+v", i, r)
		}
	}
	if got := s.get("report"); got.NextFire != made.Anchor.Add(21*time.Minute) || got.Key != "report" || got.BizType != "report.make" || got.Headers["tenant"] != "shop-7" || got.PayloadVersion != 2 {
		t.Errorf("%+v", got)
	}
	if n := s.count("SELECT COUNT(*) FROM " + s.cfg.Layout.Table(made.Table) + " WHERE biz_type = 1 AND headers = '{\"_payload_version\":\"2\",\"tenant\":\"shop-7\"}' AND gmt_create <= UTC_TIMESTAMP(3)"); n != 20 {
		t.Errorf("%d runs have the headers", n)
	}
}

func TestNearRunsRingTheDoorbell(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := s.create(every("each.second", "1s"))
	near := 0
	horizon := s.count("SELECT doorbell_horizon_ms FROM " + s.database(made) + ".layout")
	for _, r := range s.runs(made) {
		if r.Due.Sub(made.Anchor) < time.Duration(horizon)*time.Millisecond {
			near++
		}
	}
	bells := s.count("SELECT COUNT(*) FROM " + s.database(made) + ".doorbell AS b JOIN " + s.cfg.Layout.Table(made.Table) +
		fmt.Sprintf(" AS t ON t.job_id = b.job_id AND t.action_time = b.action_time AND t.biz_type = b.biz_type WHERE b.table_no = %d", made.Table))
	if near == 0 || bells != near {
		t.Errorf("%d bells for %d near runs", bells, near)
	}
}

func TestAWindowIsCutAndGoneOnWith(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := s.create(every("each.second", "1s"))
	if made.Made != MaxRuns || !made.MadeUntil.Equal(made.Anchor.Add(MaxRuns*time.Second)) {
		t.Fatalf("%+v", made)
	}
	for _, want := range []int{MaxRuns, 0} {
		if got := s.make(made.ID); got.Runs != want || !s.get(made.Name).NextFire.Equal(made.Anchor.Add((2*MaxRuns+1)*time.Second)) {
			t.Errorf("%+v, want %d runs", got, want)
		}
	}
	runs := s.pending(made)
	for i, r := range runs {
		if want := made.Anchor.Add(time.Duration(i+1) * time.Second); !r.Key.Nominal().Equal(want) {
			t.Fatalf("run %d is for %s, want %s", i, r.Key.Nominal(), want)
		}
	}
	if got := s.get("each.second"); uint64(len(runs)) != got.Made {
		t.Errorf("%d runs of %+v", len(runs), got)
	}
}

// once wants one run for each fire time.
func once(t *testing.T, runs []stored) {
	t.Helper()
	seen := map[time.Time]bool{}
	for _, r := range runs {
		if r.Status == tocsin.Cancelled {
			continue
		}
		if nominal := r.Key.Nominal(); seen[nominal] {
			t.Errorf("two runs for %s", nominal)
		} else {
			seen[nominal] = true
		}
	}
}

// Edits, deactivations and makers at once: each fire time from the last change on has one run, of the last revision.
func TestChangesAgainstMakers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := every("each.second", "1s")
	made := s.create(d)
	ctx, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, m := range []*maker{s.maker, s.another()} {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := m.Make(ctx, made.ID, false)
				// An edit may hold the row for longer than a maker waits for it. The maker comes again.
				if err != nil && ctx.Err() == nil && mysql.ClassOf(err) != mysql.Contended {
					t.Error(err)
				}
			}
		})
	}
	for i := range 20 {
		d.Payload = fmt.Sprint(i)
		repeated(t, func() (bool, error) {
			applied, err := s.Apply(t.Context(), []Definition{d}, false)
			if err != nil {
				return false, err
			}
			return applied[0].Verdict == Changed, applied[0].Err
		})
		if i%5 == 0 {
			repeated(t, func() (bool, error) { _, changed, err := s.Deactivate(t.Context(), d.Name); return changed, err })
			repeated(t, func() (bool, error) { _, changed, err := s.Activate(t.Context(), d.Name); return changed, err })
		}
	}
	end()
	all.Wait()
	s.make(made.ID)
	now := s.get(d.Name)
	if now.Revision != 1+20+2*4 {
		t.Errorf("revision %d", now.Revision)
	}
	pending := s.pending(now)
	once(t, pending)
	var last []time.Time
	for _, r := range pending {
		if r.Key.Revision == now.Revision {
			last = append(last, r.Due)
		} else if r.Due.After(s.now().Add(2 * time.Second)) {
			t.Errorf("a run of revision %d is pending: %+v", r.Key.Revision, r)
		}
	}
	times, _ := now.Times()
	for i, due := range last { // the first fire times may have runs of the revision before
		if i > 0 && times.Next(last[i-1]) != due {
			t.Errorf("%s is followed by %s", last[i-1], due)
		}
	}
	if n := len(last); n < 2*MaxRuns-20 || last[n-1] != now.MadeUntil && times.Next(last[n-1]).Before(now.MadeUntil) {
		t.Errorf("%d runs of the last revision, made until %s", n, now.MadeUntil)
	}
}

// repeated makes a change until it gets the row within the time that it waits for it, as its caller would.
func repeated(t *testing.T, change func() (bool, error)) {
	t.Helper()
	changed, err := change()
	for mysql.ClassOf(err) == mysql.Contended && t.Context().Err() == nil {
		changed, err = change()
	}
	if err != nil || !changed {
		t.Error(changed, err)
	}
}

func TestWhatBecameOfARunIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := s.create(every("each.second", "1s"))
	client, err := tocsin.Open(t.Context(), s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	runs := s.runs(made)
	for _, r := range runs[:10] {
		if change, err := client.Cancel(t.Context(), tocsin.ByID(r.ID)); err != nil || change.Changed != 1 {
			t.Fatal(change, err)
		}
	}
	for _, r := range runs[10:20] { // delivered and purged
		s.exec(made, "DELETE FROM {task} WHERE job_id = ?", uint64(r.ID))
	}
	s.make(made.ID)
	s.make(made.ID)
	left := s.runs(made)
	for _, r := range left {
		if slices.ContainsFunc(runs[:20], func(gone stored) bool { return r.Due.Equal(gone.Due) && r.Status == tocsin.Pending }) {
			t.Errorf("it was made again: %+v", r)
		}
	}
	if got := s.get(made.Name); uint64(len(left)) != got.Made-10 {
		t.Errorf("%d rows of %d runs", len(left), got.Made)
	}
}

// An outage of two years ends with one transaction, and as many late runs as the policy wants.
func TestMissedFireTimesDoNotFlood(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		missed     Missed
		most, late int
	}{
		"skip": {MissedSkip, 0, 0}, "once": {MissedOnce, 0, 1}, "all": {MissedAll, 7, 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			d := every("report", "1h")
			d.Missed, d.MissedMost = c.missed, c.most
			made := s.create(d)
			s.exec(made, "DELETE FROM {task} WHERE dedup_key IS NOT NULL")
			s.exec(made, "UPDATE {schedule} SET made_until = UTC_TIMESTAMP(3) - INTERVAL 1051230 MINUTE, next_fire = made_until, anchor = anchor - INTERVAL 43170 MINUTE") // it fires at half past
			got := s.make(made.ID)
			runs := s.runs(made)
			if got.Runs != c.late || len(runs) != c.late || got.PassedOver != maxCounted-c.late {
				t.Errorf("%+v, %d runs", got, len(runs))
			}
			for i, r := range runs {
				if now := s.now(); r.Action.Before(made.Created) || !r.Due.Before(now.Add(-DefaultStartWithin)) || r.Due.Before(now.Add(-time.Hour*time.Duration(len(runs)-i)-DefaultStartWithin)) {
					t.Errorf("run %d: %+v", i, r)
				}
			}
			if again := s.make(made.ID); again.Runs+again.PassedOver != 0 {
				t.Errorf("again: %+v", again)
			}
			if stored := s.get(d.Name); stored.PassedOver != uint64(got.PassedOver) || stored.Made != made.Made+uint64(c.late) {
				t.Errorf("%+v", stored)
			}
		})
	}
}

func TestAScheduleEndsAndMayGoOn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := every("short", "1m")
	d.End = s.now().Add(5*time.Minute + 30*time.Second)
	made := s.create(d)
	if made.State != Ended || !made.NextFire.IsZero() || made.Reason == "" || len(s.pending(made)) != 5 {
		t.Fatalf("%+v", made)
	}
	if got := s.make(made.ID); got != (Made{}) {
		t.Errorf("%+v", got)
	}
	d.End = s.now().Add(15*time.Minute + 30*time.Second)
	if a := s.apply(d); a.Verdict != Changed || a.Changes[0].Field != "end" {
		t.Errorf("%+v", a)
	}
	if got := s.get(d.Name); got.State != Ended || len(s.pending(got)) < 14 {
		t.Errorf("%d runs of %+v", len(s.pending(got)), got)
	}
	d.End = time.Time{}
	s.apply(d)
	if got := s.get(d.Name); got.State != Active || got.Reason != "" || got.NextFire.IsZero() {
		t.Errorf("%+v", got)
	}
}

// TestOneWhoseEndIsPastIsNotActivated: it would end at once.
func TestOneWhoseEndIsPastIsNotActivated(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, state := range []State{Inactive, Paused, Ended} {
		d := every("short."+string(state), "1m")
		d.End = s.now().Add(time.Hour)
		made := s.create(d)
		s.exec(made, "UPDATE {schedule} SET state = ?, next_fire = NULL, end_time = UTC_TIMESTAMP(3) - INTERVAL 1 SECOND WHERE schedule_id = ?", string(state), uint64(made.ID))
		_, _, err := s.Activate(t.Context(), d.Name)
		if !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), "schedule "+d.Name+": its end 20") || !strings.HasSuffix(err.Error(), "leaves it no fire time: apply it with a later end") {
			t.Errorf("%s: %v", state, err)
		}
		if got := s.get(d.Name); got.State != state || got.Revision != 1 {
			t.Errorf("%s: %+v", state, got)
		}
	}
}
