package schedule

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// ways are the ways to edit a schedule. The command and the HTTP API go through Apply and Edit.
var ways = map[string]func(*site, Definition) error{
	"Apply": func(s *site, d Definition) error {
		_, err := s.Apply(s.t.Context(), []Definition{d}, false)
		return err
	},
	"Update": func(s *site, d Definition) error { _, err := s.Update(s.t.Context(), d, 0); return err },
	"Edit": func(s *site, d Definition) error {
		_, _, err := s.Edit(s.t.Context(), s.get(d.Name), d, false)
		return err
	},
	"ApplyTx": func(s *site, d Definition) error {
		tx, err := s.db.BeginTx(s.t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err = s.ApplyTx(s.t.Context(), tx, d); err != nil {
			return err
		}
		return tx.Commit()
	},
	"Deactivate": func(s *site, d Definition) error { _, _, err := s.Deactivate(s.t.Context(), d.Name); return err },
	"Delete":     func(s *site, d Definition) error { return s.Delete(s.t.Context(), d.Name) },
}

// standing stands for a schedule whose run is due in a while: its row, and the run.
type standingRun struct {
	Schedule
	fire time.Time
	id   tocsin.JobID
}

// stand makes a schedule that fires daily at a minute that has just begun, with a run that is due so long after now. Without jitter the fire time is
// the time of the run.
func (s *site) stand(d Definition, jitter, in time.Duration) standingRun {
	s.t.Helper()
	now := s.now()
	d.Cron, d.Start = "@every 24h", now.Add(-72*time.Hour)
	if d.Jitter = biztype.Duration(jitter); jitter > 0 {
		d.Cron = fmt.Sprintf("%d %d * * *", now.Minute(), now.Hour())
		d.Start = time.Time{}
	}
	made := s.create(d)
	times, err := made.Times()
	if err != nil {
		s.t.Fatal(err)
	}
	fire := now.Truncate(time.Minute)
	due := now.Add(in)
	if jitter == 0 {
		fire = due
		s.exec(made, "UPDATE {schedule} SET start_time = ?, anchor = ? WHERE schedule_id = ?", at(due.Add(-72*time.Hour)), at(due.Add(-72*time.Hour)), uint64(made.ID))
	} else if in == 0 {
		due = fire.Add(times.Offset())
	}
	id := tocsin.JobID(made.ID + 1<<22)
	key := ids.OfTime(uint64(made.ID), 1, fire)
	s.exec(made, "DELETE FROM {task} WHERE biz_id = ?", (&row{Schedule: made}).subject())
	s.exec(made, `INSERT INTO {task} (job_id, gmt_create, gmt_modified, biz_id, biz_key, biz_type, status, action_time, due_time, dedup_key, attribute)
		VALUES (?, ?, ?, ?, ?, 1, 0, ?, ?, ?, 'old')`, uint64(id), at(now.Add(-time.Hour)), at(now.Add(-time.Hour)), (&row{Schedule: made}).subject(), []byte(made.Key),
		at(due), at(due), []byte(key.String()))
	s.exec(made, "UPDATE {schedule} SET made_until = UTC_TIMESTAMP(3) + INTERVAL 20 MINUTE WHERE schedule_id = ?", uint64(made.ID))
	return standingRun{s.get(d.Name), fire, id}
}

// changed are edits of each field that keep the fire time, on a real server: edited has those that don't, in memory.
var changed = map[string]func(*Definition){
	"App": func(d *Definition) { d.App = "x" }, "BizType": func(d *Definition) { d.BizType = "mail.send" },
	"Cron": func(d *Definition) {
		if d.Cron == "@every 24h" {
			d.Cron = "@every 12h"
		} else {
			d.Cron += "/1"
		}
	},
	"Zone": func(d *Definition) { d.Zone = "Africa/Abidjan" },
	"Start": func(d *Definition) {
		d.Start = later(d.Start, time.Now().Add(-700*24*time.Hour)).Truncate(time.Millisecond).Add(-24 * time.Hour)
	},
	"End":    func(d *Definition) { d.End = time.Now().Add(240 * time.Hour).Truncate(time.Millisecond) },
	"Jitter": func(d *Definition) { d.Jitter = biztype.Duration(22 * time.Hour) }, "Payload": func(d *Definition) { d.Payload = "x" },
	"PayloadVersion": func(d *Definition) { d.PayloadVersion = 3 }, "Headers": func(d *Definition) { d.Headers = map[string]string{"a": "b"} },
	"StartWithin": func(d *Definition) { d.StartWithin = biztype.Duration(time.Minute) }, "Missed": func(d *Definition) { d.Missed = MissedSkip },
	"MissedMost": func(d *Definition) { d.MissedMost = 7 }, "Overlap": func(d *Definition) { d.Overlap = OverlapSkip }, "PauseAfter": func(d *Definition) { d.PauseAfter = 7 },
}

// TestEditsOnAServerNeitherLoseNorDoubleARun plays edits of all fields, in all ways, while a run is overdue, about to be due, and to come, before and in its
// jitter.
func TestEditsOnAServerNeitherLoseNorDoubleARun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for field, edits := range edited {
		if _, ok := changed[field]; !ok && edits != nil {
			t.Errorf("field %s is not edited on a server", field)
		}
	}
	plays, wrong := 0, 0
	methods := slices.Sorted(maps.Keys(ways))
	for i, field := range slices.Sorted(maps.Keys(changed)) {
		for j, in := range []time.Duration{-time.Hour, -2 * time.Second, 300 * time.Millisecond, 30 * time.Second, 10 * time.Minute} {
			for k, jitter := range []time.Duration{0, 23 * time.Hour} {
				way := methods[(i+j+k)%len(methods)]
				d := Definition{Name: fmt.Sprint("play.", plays), BizType: "report.make"}
				one := s.stand(d, jitter, in)
				next := one.Definition
				changed[field](&next)
				err := ways[way](s, next)
				plays++
				if bad := s.judge(one, way); err != nil || bad != "" {
					wrong++
					t.Errorf("%s by %s, %s before the run is due, jitter %s: %s %v", field, way, in, jitter, bad, err)
				}
			}
		}
	}
	t.Logf("%d plays, %d wrong", plays, wrong)
}

// judge counts the runs for the fire time, and what the history says of those that were dropped.
func (s *site) judge(one standingRun, way string) string {
	open := 0
	for _, r := range s.runs(one.Schedule) {
		if r.Status != tocsin.Cancelled && r.Key.Nominal().Equal(one.fire) {
			open++
		}
	}
	told := s.count(fmt.Sprintf("SELECT COUNT(*) FROM %s.run WHERE schedule_id = %d AND job_id = %d AND outcome = 'cancelled' AND output LIKE '%%fire time %s%%'",
		s.database(one.Schedule), one.ID, one.id, one.fire.Format("2006-01-02T15:04:05")))
	switch ends := way == "Deactivate" || way == "Delete"; {
	case ends && (open != 0 || told != 1):
		return fmt.Sprintf("%d runs, %d lines of the history", open, told)
	case !ends && (open != 1 || told != 0):
		return fmt.Sprintf("%d runs, %d lines of the history", open, told)
	}
	return ""
}

// TestARunThatAnEditDropsIsTold: in the history, with its fire time and the reason.
func TestARunThatAnEditDropsIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	one := s.stand(Definition{Name: "daily", BizType: "report.make"}, 23*time.Hour, time.Hour)
	next := one.Definition
	next.Cron = fmt.Sprintf("%d %d * * *", (one.fire.Minute()+2)%60, one.fire.Hour())
	s.apply(next)
	if n := s.count(fmt.Sprintf("SELECT COUNT(*) FROM %s.run WHERE job_id = %d AND output = 'cancelled: the schedule was changed, and fires at other times; fire time %s'",
		s.database(one.Schedule), one.id, one.fire.Format("2006-01-02T15:04:05Z"))); n != 1 {
		t.Error("the history does not tell of the run that was dropped")
	}
	s.exec(one.Schedule, "DELETE FROM "+s.database(one.Schedule)+".run")
	s.create(every("often", "1s"))
	if _, _, err := s.Deactivate(t.Context(), "often"); err != nil {
		t.Fatal(err)
	}
	often := s.get("often")
	if n := s.count(fmt.Sprintf("SELECT COUNT(*) FROM %s.run WHERE schedule_id = %d", s.database(often), often.ID)); n != mostTold {
		t.Errorf("%d lines", n)
	}
	if n := s.count(fmt.Sprintf("SELECT COUNT(*) FROM %s.run WHERE schedule_id = %d AND output LIKE '%%; and so are 480 later ones; fire time %%'", s.database(often), often.ID)); n != 1 {
		t.Error("the last line does not tell of the others")
	}
}

// TestEditsAtOnceBesideMakers: two editors and two makers at once; each fire time has one run.
func TestEditsAtOnceBesideMakers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := every("each.second", "1s")
	d.Start = s.now().Add(-time.Hour).Truncate(time.Second)
	d.Jitter = biztype.Duration(900 * time.Millisecond)
	made := s.create(d)
	from := s.now()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var makers, editors sync.WaitGroup
	for _, m := range []*maker{s.maker, s.another()} {
		makers.Go(func() {
			for ctx.Err() == nil {
				if _, err := m.Make(ctx, made.ID, false); err != nil && ctx.Err() == nil && mysql.ClassOf(err) != mysql.Contended {
					t.Error(err)
				}
			}
		})
	}
	for i, fields := range [][]string{{"App", "Payload", "BizType", "Overlap"}, {"Headers", "PauseAfter", "Missed", "End"}} {
		editors.Go(func() {
			for n := range 12 {
				next := s.get(d.Name).Definition
				changed[fields[n%len(fields)]](&next)
				next.App += fmt.Sprintf("x%d", i)
				if _, err := s.Apply(ctx, []Definition{next}, false); err != nil && mysql.ClassOf(err) != mysql.Contended {
					t.Error(err)
				}
			}
		})
	}
	editors.Wait()
	end()
	makers.Wait()
	s.make(made.ID)
	s.make(made.ID)
	fires := map[time.Time]int{}
	for _, r := range s.runs(made) {
		if r.Status != tocsin.Cancelled {
			fires[r.Key.Nominal()]++
		}
	}
	times, _ := s.get(d.Name).Times()
	n := 0
	for fire := times.Next(from); fire.Before(s.now().Add(5 * time.Minute)); fire = times.Next(fire) {
		if n++; fires[fire] != 1 {
			t.Errorf("%d runs for %s", fires[fire], fire)
		}
	}
	t.Logf("%d fire times, revision %d", n, s.get(d.Name).Revision)
}
