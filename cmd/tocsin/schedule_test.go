package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/schedule"
)

const schedulesYAML = `schedules:
  - name: report.daily
    app: reports
    biz_type: order.close
    cron: "30 2 * * *"
    zone: Europe/Berlin
    jitter: 5m
    payload: all
  - name: poll
    biz_type: coupon.remind
    biz_id: 42
    cron: "@every 90s"
    end: 2099-01-01T00:00:00Z
    payload: "a\x1b]0;owned\x07 \u202egpj\u2066 \u009b2J"
`

// scheduleSite has two schedules.
func scheduleSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.write("schedules.yaml", schedulesYAML)
	s.run("schedule", "apply", "schedules.yaml").ok(t)
	return s
}

// showSchedule reads one schedule.
func (s *site) showSchedule(name string) schedule.Schedule {
	s.t.Helper()
	return decode[schedule.Schedule](s.t, s.run("schedule", "show", name, "--json"))
}

func TestScheduleApplyShowsWhatItChanges(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("schedules.yaml", schedulesYAML)
	s.run("schedule", "apply", "schedules.yaml", "--dry-run").says(t, "report.daily  would be created\n", "2 would be created, 0 would be changed, 0 unchanged")
	s.run("schedule", "list").says(t, "no schedules")
	s.run("schedule", "apply", "schedules.yaml").says(t, "report.daily  created  active  revision 1\n", "2 created, 0 changed, 0 unchanged")
	made := s.rows()
	if made == 0 {
		t.Error("no runs are made")
	}
	s.run("schedule", "apply", "schedules.yaml").says(t, "report.daily  unchanged  active  revision 1\n", "0 created, 0 changed, 2 unchanged")

	s.write("schedules.yaml", strings.NewReplacer("30 2", "0 4", "    payload: all\n", "").Replace(schedulesYAML))
	dry := s.run("schedule", "apply", "schedules.yaml", "--dry-run")
	dry.says(t, "report.daily  would be changed  active  revision 1\n", "  cron: 30 2 * * * -> 0 4 * * *\n", "  payload: all -> (none)\n", "0 would be created, 1 would be changed, 1 unchanged")
	if got := s.showSchedule("report.daily"); got.Cron != "30 2 * * *" || got.Revision != 1 {
		t.Errorf("after a dry run: %+v", got)
	}
	got := decode[appliedSchedules](t, s.run("schedule", "apply", "schedules.yaml", "--json"))
	if len(got.Schedules) != 2 || got.DryRun || got.Schedules[0].Verdict != schedule.Changed || got.Schedules[0].Revision != 2 ||
		len(got.Schedules[0].Changes) != 2 || got.Schedules[0].Changes[0] != (schedule.Change{Field: "cron", Old: "30 2 * * *", New: "0 4 * * *"}) {
		t.Errorf("%+v", got)
	}
	example, err := filepath.Abs("../../configs/schedules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.run("schedule", "apply", example).says(t, "2 created")
	s.write("bad.yaml", schedulesYAML+"  - {name: x, biz_type: order.close, corn: \"@daily\"}\n")
	s.run("schedule", "apply", "bad.yaml").refused(t, exitFailed, `unknown key "corn"`)
	s.write("bad.yaml", strings.Replace(s.text("schedules.yaml"), "biz_id: 42", "biz_id: 43", 1))
	r := s.run("schedule", "apply", "bad.yaml")
	if r.code != exitFailed || !strings.Contains(r.stderr, `biz_id never changes, and is "42", not "43"`) || !strings.Contains(r.stdout, "poll          failed") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

func TestScheduleListAndShow(t *testing.T) {
	t.Parallel()
	s := scheduleSite(t)
	s.run("schedule", "list").says(t, "NAME          STATE   CRON        ZONE           BIZ TYPE       NEXT FIRE TIME", "poll          active  @every 90s  UTC            coupon.remind  20",
		"report.daily  active  30 2 * * *  Europe/Berlin  order.close    20")
	for args, want := range map[string]string{"--app reports": "report.daily", "--type coupon.remind": "poll", "--limit 1": "poll", "--after poll": "report.daily"} {
		got := decode[[]schedule.Schedule](t, s.run(append([]string{"schedule", "list", "--json"}, strings.Fields(args)...)...))
		if len(got) != 1 || got[0].Name != want {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if r := s.run("schedule", "list", "--state", "paused", "--json"); r.ok(t) != "[]\n" {
		t.Errorf("none: %q", r.stdout)
	}
	for _, name := range []string{"report.daily", "poll"} {
		shown := s.run("schedule", "show", name).ok(t)
		definitions, err := schedule.Parse([]byte(shown), "shown")
		if err != nil || len(definitions) != 1 || !strings.HasPrefix(shown, "# schedule_id ") || !strings.Contains(shown, "\n# active\n") || strings.ContainsFunc(shown, steers) {
			t.Errorf("what is shown can't be applied, or steers the terminal: %v\n%q", err, shown)
		}
		s.write("shown.yaml", shown)
		s.run("schedule", "apply", "shown.yaml").says(t, "0 created, 0 changed, 1 unchanged")
	}
	if got := s.showSchedule("poll").Payload; got != "a\x1b]0;owned\x07 \u202egpj\u2066 \u009b2J" {
		t.Errorf("%q", got)
	}
	s.run("schedule", "show", "poll").says(t, "# counts from 20", "\n  end: 2099-01-01T00:00:00Z\n", "\n  missed: once\n")
	if got := s.showSchedule("report.daily"); got.State != schedule.Active || got.Jitter.D() != 5*time.Minute || got.Key != "report.daily" || got.NextFire.IsZero() {
		t.Errorf("%+v", got)
	}
	r := s.run("__complete", "schedule", "show", "")
	if r.code != exitOK || !strings.HasPrefix(r.stdout, "poll\t@every 90s\nreport.daily\t30 2 * * *\n:") {
		t.Errorf("completion: %d\n%s", r.code, r.stdout)
	}
}

func TestScheduleNextNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	call(t, "schedule", "next", "--cron", "30 2 * * *", "--zone", "Europe/Berlin", "-n", "3", "--after", "2027-03-27T00:00:00Z").says(t,
		"Sat 2027-03-27 02:30:00 CET   2027-03-27 01:30:00.000Z\nSun 2027-03-28 03:00:00 CEST  2027-03-28 01:00:00.000Z\nMon 2027-03-29 02:30:00 CEST  2027-03-29 00:30:00.000Z\n")
	call(t, "schedule", "next", "--cron", "@daily", "--start", "2027-01-01T00:00:00Z", "--end", "2027-01-02T00:00:00+01:00").says(t, "Fri 2027-01-01 00:00:00 UTC  2027-01-01 00:00:00.000Z\n")
	call(t, "schedule", "next", "--cron", "@daily", "--end", "2027-01-02T00:00:00Z", "--after", "2027-05-01T00:00:00Z").says(t, "no fire time is left\n")
	got := decode[[]nextTimes](t, call(t, "schedule", "next", "--cron", "@every 1500ms", "--after", "2027-01-01T00:00:00Z", "-n", "2", "--json"))
	if len(got) != 1 || len(got[0].Times) != 2 || got[0].Times[1].Time.Format(time.RFC3339Nano) != "2027-01-01T00:00:03Z" || got[0].Times[0].Due != nil {
		t.Errorf("%+v", got)
	}
}

func TestScheduleNextOfAFileAndOfTheStored(t *testing.T) {
	t.Parallel()
	s := scheduleSite(t)
	s.write("tocsin.yaml", "broken: [")
	const after = "2027-03-27T12:00:00Z"
	s.run("schedule", "next", "--file", "schedules.yaml", "--after", after, "-n", "1").says(t,
		"report.daily: 30 2 * * * in Europe/Berlin\nSun 2027-03-28 03:00:00 CEST  2027-03-28 01:00:00.000Z\nruns are due later by a constant below 5m0s (jitter)\n",
		"poll: @every 90s in UTC\nSat 2027-03-27 12:01:30 UTC  2027-03-27 12:01:30.000Z\n")
	s.run("schedule", "next", "--file", "schedules.yaml", "poll", "--after", after, "-n", "1").says(t, "Sat 2027-03-27 12:01:30 UTC")
	s.run("schedule", "next", "--file", "schedules.yaml", "pol").refused(t, exitFailed, `schedules.yaml has no schedule "pol"`)

	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn()))
	s.run("schedule", "next", "report.daily", "--after", after).says(t, "Sun 2027-03-28 03:00:00 CEST  2027-03-28 01:00:00.000Z  due 2027-03-28 01:0")
	got := decode[[]nextTimes](t, s.run("schedule", "next", "report.daily", "--after", after, "--json", "-n", "7"))
	if len(got) != 1 || len(got[0].Times) != 7 || got[0].Name != "report.daily" {
		t.Fatalf("%+v", got)
	}
	first, last := got[0].Times[0], got[0].Times[6]
	if offset := first.Due.Sub(first.Time); offset < 0 || offset >= 5*time.Minute || last.Due.Sub(last.Time) != offset {
		t.Errorf("%v, %v", first, last)
	}
}

func TestScheduleDeactivateAndActivate(t *testing.T) {
	t.Parallel()
	s := scheduleSite(t)
	pending := s.count(tocsin.Pending)
	s.run("schedule", "deactivate", "poll").says(t, "poll  inactive  revision 2\n")
	s.run("schedule", "deactivate", "poll").says(t, "poll  was inactive already  revision 2\n")
	s.run("schedule", "next", "poll").says(t, "poll is inactive and makes no runs: `tocsin schedule activate poll` lets it")
	if n := s.count(tocsin.Pending); n >= pending || n > 1 {
		t.Errorf("%d runs are pending, %d were before", n, pending) // one of them may be due at this very moment
	}
	s.run("schedule", "list", "--state", "inactive").says(t, "poll", "-")
	got := decode[turned](t, s.run("schedule", "activate", "poll", "--json"))
	if !got.Changed || got.State != schedule.Active || got.Revision != 3 || got.Name != "poll" || s.count(tocsin.Pending) < pending {
		t.Errorf("%+v", got)
	}
	s.run("schedule", "activate", "poll").says(t, "poll  was active already  revision 3  next fire time: 20")
}

func TestScheduleDeactivateAndActivateSeveral(t *testing.T) {
	t.Parallel()
	s := scheduleSite(t)
	r := s.run("schedule", "deactivate", "poll", "none", "report.daily")
	if r.code != exitFailed || r.stdout != "poll          inactive  revision 2\nnone          failed\nreport.daily  inactive  revision 2\n" ||
		!strings.Contains(r.stderr, "no schedule \"none\": `tocsin schedule list` names those that are applied") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	s.run("schedule", "list", "--state", "inactive").says(t, "poll", "report.daily")
	got := decode[turnedMany](t, s.run("schedule", "activate", "report.daily", "poll", "--json"))
	if len(got.Results) != 2 || !got.Results[0].Changed || got.Results[0].Name != "report.daily" || got.Results[1].Schedule.State != schedule.Active || got.Results[1].Error != "" {
		t.Errorf("%+v", got)
	}
	s.run("schedule", "activate").refused(t, exitUsage, "want NAME, got 0 arguments: see `tocsin schedule activate --help`")
}

func TestScheduleListFindsSortsAndShowsTheLastRuns(t *testing.T) {
	t.Parallel()
	s := historySite(t)
	s.write("schedules.yaml", strings.Replace(schedulesYAML, "order.close", "coupon.remind", 1))
	s.run("schedule", "apply", "schedules.yaml").ok(t)
	names := func(args ...string) (all []string) {
		t.Helper()
		for _, one := range decode[[]schedule.Schedule](t, s.run(append([]string{"schedule", "list", "--json"}, args...)...)) {
			all = append(all, one.Name)
		}
		return all
	}
	if got := names("--q", "PORT"); len(got) != 1 || got[0] != "report.daily" {
		t.Errorf("%q", got)
	}
	if got := names("--sort", "next", "--limit", "1"); len(got) != 1 || got[0] != "poll" { // its next run to make is at most 21 minutes away
		if daily := s.showSchedule("report.daily").NextFire; time.Until(daily) > time.Hour {
			t.Errorf("%q", got)
		}
	}
	s.run("schedule", "list", "--last", "--app", "reports").says(t, "RUNS MADE  LAST RUN  OUTCOME  LATE  TOOK\n", "-         -        -     -\n")
	s.run("runs").says(t, "no runs\n")
	s.run("schedule", "run-now", "report.daily").ok(t)
	s.run("sweep", "--once", "--grace", "0s").ok(t)
	s.run("schedule", "list", "--last", "--app", "reports").says(t, "  completed  ")
	last := decode[[]schedule.Schedule](t, s.run("schedule", "list", "--last", "--app", "reports", "--json"))[0].Last
	if last == nil || last.Outcome != "completed" || time.Since(last.Started) > time.Minute {
		t.Errorf("%+v", last)
	}

	s.run("runs", "--app", "reports").says(t, "JOB_ID", "BIZ TYPE       SCHEDULE      STARTED", "coupon.remind  report.daily  20", "completed", "accepted ééé")
	got := decode[operator.Recent](t, s.run("runs", "--schedule", "report.daily", "--since", "1h", "--outcome", "completed", "--type", "coupon.remind", "--json"))
	if len(got.Runs) != 1 || got.Runs[0].JobID != last.JobID || !got.Complete.IsZero() {
		t.Errorf("%+v", got)
	}
	if none := decode[operator.Recent](t, s.run("runs", "--outcome", "buried", "--json")); none.Runs == nil || len(none.Runs) != 0 {
		t.Errorf("%+v", none)
	}
}

func TestScheduleRunNowAndBackfill(t *testing.T) {
	t.Parallel()
	s := scheduleSite(t)
	run := decode[schedule.Run](t, s.run("schedule", "run-now", "report.daily", "--json"))
	task := decode[taskJSON](t, s.run("task", "get", run.JobID.String(), "--json"))
	if task.BizType != "order.close" || task.Status != "pending" || task.Payload != "all" {
		t.Errorf("%+v", task)
	}
	s.run("schedule", "run-now", "report.daily").says(t, "job_id ", "  report.daily  due 20")

	before := s.rows()
	week := []string{"schedule", "backfill", "report.daily", "--from", "2026-03-25T00:00:00Z", "--to", "2026-04-01T00:00:00Z"}
	s.run(append(week, "--dry-run")...).says(t, "2026-03-25 01:30:00.000Z\n", "2026-03-29 01:00:00.000Z\n", "7 fire times, nothing was made\n")
	if n := s.rows(); n != before {
		t.Errorf("a dry run made %d", n-before)
	}
	s.run(week...).says(t, "7 fire times: 7 runs made, 0 there already\n")
	if n := s.rows(); n != before+7 {
		t.Errorf("%d were made", n-before)
	}
	again := decode[backfilled](t, s.run(append(week, "--json")...))
	if again.Made != 0 || again.There != 7 || len(again.Times) != 7 || again.DryRun {
		t.Errorf("%+v", again)
	}
	s.run("schedule", "backfill", "report.daily", "--from", "2026-03-25T03:00:00Z", "--to", "2026-03-25T04:00:00Z").says(t, "0 fire times: 0 runs made")
}

func TestScheduleRunsShowsOpenRunsAndTheHistory(t *testing.T) {
	t.Parallel()
	s := historySite(t)
	s.write("schedules.yaml", strings.Replace(schedulesYAML, "order.close", "coupon.remind", 1))
	s.run("schedule", "apply", "schedules.yaml").ok(t)
	run := decode[schedule.Run](t, s.run("schedule", "run-now", "poll", "--json"))
	filled := decode[backfilled](t, s.run("schedule", "backfill", "report.daily", "--from", "2026-03-29T00:00:00Z", "--to", "2026-03-30T00:00:00Z", "--json"))
	got := decode[scheduleRuns](t, s.run("schedule", "runs", "poll", "--json"))
	if len(got.Open) < 10 || got.Open[0].JobID != run.JobID || got.Open[0].For != schedule.ForRunNow || got.Open[1].For != schedule.ForFireTime || got.Runs == nil || len(got.Runs) != 0 {
		t.Errorf("%+v", got)
	}
	s.run("schedule", "runs", "poll").says(t, "job_id "+run.JobID.String()+"  run-now", "  fire time 20", "no history: none of its runs was delivered yet")
	if got := decode[scheduleRuns](t, s.run("schedule", "runs", "poll", "--json", "--limit", "3")); len(got.Open) != 3 {
		t.Errorf("%d of 3", len(got.Open))
	}
	s.run("schedule", "runs", "report.daily").says(t, "backfill of 2026-03-29 01:00:00.000Z  pending")

	s.run("sweep", "--once", "--grace", "0s").ok(t)
	s.run("schedule", "runs", "poll").says(t, "JOB_ID", "FIRE TIME", "OUTCOME", run.JobID.String()+"  - ", "completed", "accepted ééé")
	got = decode[scheduleRuns](t, s.run("schedule", "runs", "report.daily", "--json"))
	if len(got.Runs) != filled.Made || got.Runs[0].Outcome != "completed" || got.Runs[0].Schedule != uint64(s.showSchedule("report.daily").ID) {
		t.Fatalf("%+v", got.Runs)
	}
	covered := "2026-03-29 01:00:00.000Z"
	s.run("schedule", "runs", "report.daily").says(t, got.Runs[0].JobID.String()+"  "+covered)
	s.run("task", "get", got.Runs[0].JobID.String()).says(t, "schedule     report.daily", "fire time    "+covered)
}

func TestScheduleDelete(t *testing.T) {
	t.Parallel()
	s := scheduleSite(t)
	id := s.showSchedule("report.daily").ID
	s.run("schedule", "run-now", "poll").ok(t)
	s.run("schedule", "delete", "poll").says(t, "deleted, its pending runs are cancelled")
	s.run("schedule", "delete", "poll").refused(t, exitFailed, "no schedule \"poll\": `tocsin schedule list` names those that are applied")
	gone := decode[deletedSchedule](t, s.run("schedule", "delete", "--id", id.String(), "--json"))
	if gone.ID != id || gone.Name != "" {
		t.Errorf("%+v", gone)
	}
	s.run("schedule", "list").says(t, "no schedules")
	if n := s.count(tocsin.Pending); n != 0 {
		t.Errorf("%d runs are pending", n)
	}
}

// badSchedules are refused on a site with schedules.
var badSchedules = map[string]refusal{
	"no file":                     {"schedule apply", exitUsage, "want FILE, got 0 arguments: see `tocsin schedule apply --help`"},
	"a file that is missing":      {"schedule apply none.yaml", exitFailed, "open none.yaml: no such file or directory"},
	"a state that is none":        {"schedule list --state on", exitUsage, `--state "on": want one of active, inactive, paused, ended`},
	"a list without limit":        {"schedule list --limit 0", exitUsage, "--limit 0: use 1 to 10000"},
	"a list in no order":          {"schedule list --sort cron", exitUsage, `--sort "cron": want name or next`},
	"the next ones after a name":  {"schedule list --sort next --after poll", exitUsage, "--after goes with --sort name: raise --limit to list more"},
	"the next of paused ones":     {"schedule list --sort next --state paused", exitUsage, "--sort next lists active schedules, which alone have a next fire time: leave out --state paused"},
	"runs of no outcome":          {"runs --outcome broken", exitUsage, `--outcome "broken": want failed, or one of completed, retried, snoozed, buried, cancelled, rescheduled, lost, cut_off, missed, skipped`},
	"runs since no time":          {"runs --since noon", exitUsage, `--since "noon": want RFC 3339, as 2030-01-02T15:04:05Z, or how long ago, such as 2h`},
	"no runs at most":             {"runs --limit 0", exitUsage, "--limit 0: use 1 to 1000"},
	"runs of an unknown type":     {"runs --type x", exitFailed, "unknown biz type \"x\": `tocsin biz list` names those that are applied"},
	"a list of an unknown type":   {"schedule list --type x", exitFailed, "unknown biz type \"x\": apply it with `tocsin biz apply`"},
	"show of none":                {"schedule show x", exitFailed, "no schedule \"x\": `tocsin schedule list` names those that are applied"},
	"activation of none":          {"schedule activate x", exitFailed, "no schedule \"x\": `tocsin schedule list` names those that are applied"},
	"deactivation of none":        {"schedule deactivate x", exitFailed, "no schedule \"x\": `tocsin schedule list` names those that are applied"},
	"next of none":                {"schedule next x", exitFailed, "no schedule \"x\": `tocsin schedule list` names those that are applied"},
	"next of nothing":             {"schedule next", exitUsage, "name one schedule, or give either --file FILE or --cron EXPRESSION"},
	"next of two":                 {"schedule next x y", exitUsage, "want one NAME, got 2 arguments: see `tocsin schedule next --help`"},
	"next of name and expression": {"schedule next x --cron @daily", exitUsage, "name one schedule, or give either --file FILE or --cron EXPRESSION"},
	"next in a zone of none":      {"schedule next x --zone UTC", exitUsage, "--zone, --start and --end belong to --cron: a schedule has its own"},
	"next of no expression":       {"schedule next --cron @reboot", exitUsage, `cron expression "@reboot": there is no such descriptor: want one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or "@every 90s"`},
	"next in no zone":             {"schedule next --cron @daily --zone Mars", exitUsage, `zone "Mars" is unknown: name an IANA time zone such as Europe/Berlin, or UTC`},
	"no count":                    {"schedule next --cron @daily -n 0", exitUsage, "--count 0: use 1 to 10000"},
	"next after no time":          {"schedule next --cron @daily --after noon", exitUsage, `--after "noon": want RFC 3339, as 2030-01-02T15:04:05Z`},
	"next of no file":             {"schedule next --file none.yaml", exitFailed, "open none.yaml: no such file or directory"},
	"run-now of none":             {"schedule run-now x", exitFailed, "no schedule \"x\": `tocsin schedule list` names those that are applied"},
	"backfill of no span":         {"schedule backfill poll --from 2026-01-01T00:00:00Z", exitUsage, "--from and --to are needed: see `tocsin schedule backfill --help`"},
	"backfill of no time":         {"schedule backfill poll --from x --to y", exitUsage, `--from "x": want RFC 3339, as 2030-01-02T15:04:05Z`},
	"backfill backwards":          {"schedule backfill poll --from 2026-01-02T00:00:00Z --to 2026-01-01T00:00:00Z", exitUsage, "backfill of schedule poll from 2026-01-02T00:00:00Z to 2026-01-01T00:00:00Z: to must be after from"},
	"backfill of none":            {"schedule backfill x --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z", exitFailed, "no schedule \"x\": `tocsin schedule list` names those that are applied"},
	"delete of nothing":           {"schedule delete", exitUsage, "name one schedule, or give its --id"},
	"delete of name and id":       {"schedule delete poll --id 1", exitUsage, "name one schedule, or give its --id"},
	"delete of a bad id":          {"schedule delete --id x", exitUsage, `--id "x": want a decimal number from 1 to 2^63-1`},
	"runs of none":                {"schedule runs x", exitFailed, "no schedule \"x\": `tocsin schedule list` names those that are applied"},
	"runs without limit":          {"schedule runs poll --limit 0", exitUsage, "--limit 0: use 1 to 1000"},
}

func TestBadScheduleInputIsOneClearLineAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := scheduleSite(t)
	rows, before := s.rows(), s.run("schedule", "list").ok(t)
	for name, bad := range badSchedules {
		t.Run(name, func(t *testing.T) { s.refuses(t, bad) })
	}
	s.run("schedule", "backfill", "poll", "--from", "2020-01-01T00:00:00Z", "--to", "2020-03-01T00:00:00Z").refused(t, exitUsage, "has more than 1000 fire times", "use shorter spans")
	if after := s.run("schedule", "list").ok(t); after != before || s.rows() != rows {
		t.Errorf("%d rows, %d before\n%s\n%s", s.rows(), rows, after, before)
	}
}

var sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")

// The statements of the page are answered, for each database and its task tables.
func TestTheSQLOfTheSchedulesPageIsAnswered(t *testing.T) {
	t.Parallel()
	s := scheduleSite(t)
	page, err := os.ReadFile("../../docs/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := sqlBlock.FindAllStringSubmatch(string(page), -1)
	found := map[int]int{}
	for _, one := range s.everySchedule() {
		names := strings.NewReplacer("toc_0.task_0001", s.layout.Table(one.Table), "toc_0.", s.layout.Database(s.layout.DatabaseOf(one.Table))+".", "report.daily", one.Name)
		for i, block := range blocks {
			found[i] += s.answered(names.Replace(block[1]))
		}
	}
	// Active, behind, not active, punctual, open: for two schedules whose runs were not delivered.
	if len(blocks) != 5 || found[0] < 2 || found[1] != 0 || found[2] != 0 || found[3] != 0 || found[4] < 10 {
		t.Errorf("%d statements: %v rows", len(blocks), found)
	}
}

func (s *site) everySchedule() []schedule.Schedule {
	s.t.Helper()
	return decode[[]schedule.Schedule](s.t, s.run("schedule", "list", "--json"))
}

// answered counts the rows of an answer.
func (s *site) answered(question string) (n int) {
	s.t.Helper()
	rows, err := s.db.Query(strings.ReplaceAll(question, "{prefix}", s.prefix))
	if err != nil {
		s.t.Fatalf("%s: %v", question, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		n++
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func TestTheNextFireTimeMayHaveItsRunAlready(t *testing.T) {
	t.Parallel()
	anchor := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	s := schedule.Schedule{
		Definition: schedule.Definition{Name: "tick", BizType: "report.make", Cron: "@every 1m"}.WithDefaults(),
		State:      schedule.Active, Anchor: anchor, NextFire: anchor.Add(20 * time.Minute),
	}
	s.ReadAt = anchor.Add(90 * time.Second)
	if at := s.Fires(); !at.Equal(anchor.Add(2 * time.Minute)) {
		t.Errorf("with runs made ahead: %v", at)
	}
	if lines := strings.Join(standing(s), "\n"); !strings.Contains(lines, "next fire time: 2026-11-22 12:02:00.000Z (in 30s)") || !strings.Contains(lines, "next run to make: 2026-11-22 12:20:00.000Z") {
		t.Errorf("show says\n%s", lines)
	}
	s.NextFire = anchor.Add(time.Minute)
	if at := s.Fires(); !at.Equal(s.NextFire) {
		t.Errorf("if nobody makes runs: %v", at)
	}
	s.State, s.NextFire = schedule.Inactive, time.Time{}
	if at := s.Fires(); !at.IsZero() {
		t.Errorf("of an inactive one: %v", at)
	}
}

// TestSchedulesGoByTheClockOfTheirServer, not by that of the machine where the command runs.
func TestSchedulesGoByTheClockOfTheirServer(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, devtest.WrongClock(t, time.Hour).DSN()))
	s.applyAll()
	s.write("schedules.yaml", schedulesYAML)
	s.run("schedule", "apply", "schedules.yaml").ok(t)
	ahead := func(what string, at time.Time) {
		t.Helper()
		if by := time.Until(at); by < 30*time.Minute || by > 2*time.Hour {
			t.Errorf("%s is at %s, which is not by the server's clock", what, at)
		}
	}
	ahead("the next fire time", decode[[]nextTimes](t, s.run("schedule", "next", "poll", "--json", "-n", "1"))[0].Times[0].Time)
	s.run("schedule", "deactivate", "poll").ok(t)
	active := decode[turned](t, s.run("schedule", "activate", "poll", "--json"))
	ahead("the activation", active.Anchor)
	s.run("schedule", "list").says(t, active.Anchor.Add(90*time.Second).Format(timeText))
	s.run("schedule", "show", "poll").says(t, "# next fire time: "+active.Anchor.Add(90*time.Second).Format(timeText)+" (in ")
	ahead("a run by hand", decode[schedule.Run](t, s.run("schedule", "run-now", "poll", "--json")).Due)
	backfill := []string{"schedule", "backfill", "report.daily", "--dry-run", "--from", "2026-01-01T00:00:00Z", "--to"}
	s.run(append(backfill, time.Now().Add(30*time.Minute).Format(time.RFC3339))...).says(t, "nothing was made")
	s.run(append(backfill, time.Now().Add(2*time.Hour).Format(time.RFC3339))...).refused(t, exitUsage, "a backfill makes runs for the past only")
}
