package main

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/schedule"
)

// TestSchedulesGoByTheClockOfTheirServer, not by that of the machine where the command runs.
func TestSchedulesGoByTheClockOfTheirServer(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"ahead": 2 * time.Minute, "behind": -2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bareSite(t)
			dsn := devtest.WrongClock(t, off).DSN()
			s.write("tocsin.yaml", s.yaml(s.layout, dsn))
			s.applyDDL()
			s.write("biz.yaml", bizYAML)
			s.run("biz", "apply", "biz.yaml").ok(t)
			s.write("schedules.yaml", schedulesYAML)
			s.run("schedule", "apply", "schedules.yaml").ok(t)
			db, err := sql.Open("mysql", dsn+"?parseTime=true")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			clock := func() (now time.Time) {
				if err := db.QueryRow("SELECT UTC_TIMESTAMP(3)").Scan(&now); err != nil {
					t.Fatal(err)
				}
				return now
			}
			between := func(what string, from, at, to time.Time) {
				t.Helper()
				if at.Before(from) || at.After(to) {
					t.Errorf("%s is %s, want one from %s to %s", what, at, from, to)
				}
			}
			from := clock()
			next := decode[[]nextTimes](t, s.run("schedule", "next", "poll", "--json", "-n", "1"))[0].Times[0].Time
			between("the next fire time", from, next, clock().Add(90*time.Second))
			from = clock()
			s.run("schedule", "deactivate", "poll").ok(t)
			active := decode[turned](t, s.run("schedule", "activate", "poll", "--json"))
			between("the activation", from, active.Anchor, clock())
			s.run("schedule", "activate", "poll").says(t, "next fire time: "+active.Anchor.Add(90*time.Second).Format(timeText))
			s.run("schedule", "list").says(t, active.Anchor.Add(90*time.Second).Format(timeText))
			from, next = clock(), active.Anchor.Add(90*time.Second)
			shown := s.run("schedule", "show", "poll").ok(t)
			_, in, _ := strings.Cut(shown, "# next fire time: "+next.Format(timeText)+" (in ")
			in, _, _ = strings.Cut(in, ")")
			left, err := time.ParseDuration(in)
			if err != nil {
				t.Errorf("%v in\n%s", err, shown)
			}
			between("the clock that is read", from.Add(-time.Second), next.Add(-left), clock().Add(time.Second)) // it is shown to the second
			run := decode[schedule.Run](t, s.run("schedule", "run-now", "poll", "--json"))
			between("a run by hand", active.Anchor, run.Due, clock())
			to := run.Due.Add(-time.Hour).Format(time.RFC3339)
			s.run("schedule", "backfill", "report.daily", "--from", "2026-01-01T00:00:00Z", "--to", to, "--dry-run").says(t, "nothing was made")
			s.run("schedule", "backfill", "report.daily", "--from", "2026-01-01T00:00:00Z", "--to", clock().Add(90*time.Second).Format(time.RFC3339)).refused(t, exitUsage, "a backfill makes runs for the past only")
		})
	}
}
