package firetimes_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// golden are fire times about changes of clocks, worked out by hand: in UTC, after the first time given.
var golden = []struct {
	cron, zone, after, want string
	alone                   string // what robfig/cron does without this package, in words of docs/schedules.md; "": the same
}{
	{"30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", "03-29 01:00, 03-30 00:30", "nothing on 29 March"},
	{"30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", "10-25 00:30, 10-26 01:30", "02:30 twice on 25 October"},
	{"*/20 2 * * *", "Europe/Berlin", "2026-03-28 12:00", "03-29 01:00, 03-30 00:00", "nothing on 29 March"},
	{"*/20 2,3 * * *", "Europe/Berlin", "2026-03-28 12:00", "03-29 01:00, 03-29 01:20, 03-29 01:40, 03-30 00:00", ""},
	{"30 * * * *", "Europe/Berlin", "2026-03-28 23:00", "03-28 23:30, 03-29 00:30, 03-29 01:30", ""},
	{"30 * * * *", "Europe/Berlin", "2026-10-24 23:00", "10-24 23:30, 10-25 00:30, 10-25 01:30, 10-25 02:30", ""},
	{"30 0-23 * * *", "Europe/Berlin", "2026-10-24 23:00", "10-24 23:30, 10-25 00:30, 10-25 01:30, 10-25 02:30", ""},
	{"0 */2 * * *", "Europe/Berlin", "2026-03-28 22:00", "03-28 23:00, 03-29 01:00, 03-29 02:00", "nothing between 00:00 and 04:00"},
	{"0 0 1 1 *", "Europe/Berlin", "2026-06-01 00:00", "12-31 23:00", ""},
	{"30 2 * * *", "America/New_York", "2026-03-07 12:00", "03-08 07:00, 03-09 06:30", "nothing on 8 March"},
	{"30 1 * * *", "America/New_York", "2026-10-31 12:00", "11-01 05:30, 11-02 06:30", "01:30 twice on 1 November"},
	{"*/30 1 * * *", "America/New_York", "2026-10-31 12:00", "11-01 05:00, 11-01 05:30, 11-02 06:00", "01:00 and 01:30 twice on 1 November"},
	{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03 00:00", "10-03 15:30, 10-04 15:15", "nothing on 4 October"},
	{"0 3 * * *", "Australia/Lord_Howe", "2026-10-03 00:00", "10-03 16:00, 10-04 16:00", "nothing on 4 October, though 03:00 exists"},
	{"45 1 * * *", "Australia/Lord_Howe", "2026-04-04 00:00", "04-04 14:45, 04-05 15:15", "01:45 twice on 5 April"},
	{"15 * * * *", "Australia/Lord_Howe", "2026-10-03 14:00", "10-03 14:45, 10-03 16:15", ""},
	{"45 * * * *", "Australia/Lord_Howe", "2026-04-04 14:00", "04-04 14:45, 04-04 15:15, 04-04 16:15", ""},
	{"0 9 * * 5", "Africa/Cairo", "2026-04-17 12:00", "04-24 06:00, 05-01 06:00", "nothing on 24 April, though 09:00 exists: a week lost"},
	{"30 0 * * *", "Africa/Cairo", "2026-04-23 12:00", "04-23 22:00, 04-24 21:30", "nothing on 24 April"},
	{"30 23 * * *", "Africa/Cairo", "2026-10-29 12:00", "10-29 20:30, 10-30 21:30", "23:30 twice on 29 October"},
	{"@daily", "Asia/Beirut", "2026-03-28 12:00", "03-28 22:00, 03-29 21:00", "nothing on 29 March"},
	{"0 9 29 3 *", "Asia/Beirut", "2026-01-01 00:00", "03-29 06:00", "nothing in 2026, though 09:00 exists: a year lost"},
	{"30 23 * * *", "Asia/Beirut", "2026-10-24 12:00", "10-24 20:30, 10-25 21:30", "23:30 twice on 24 October"},
	{"0 9 * * *", "Pacific/Apia", "2011-12-29 12:00", "12-29 19:00, 12-30 10:00, 12-30 19:00", "nothing for 30 December"},
	{"0 * * * *", "Pacific/Apia", "2011-12-30 08:30", "12-30 09:00, 12-30 10:00, 12-30 11:00", ""},
	{"0 12 29 2 *", "Europe/Berlin", "2026-01-01 00:00", "2028-02-29 11:00, 2032-02-29 11:00", ""},
	{"0 0 29 2 *", "", "2096-03-01 00:00", "2104-02-29 00:00, 2108-02-29 00:00", "no more times"},
	{"0 0 29 2 0", "", "2028-02-01 00:00", "02-06 00:00, 02-13 00:00, 02-20 00:00, 02-27 00:00, 02-29 00:00", ""},
	{"0 0 */10 * 1", "", "2026-06-01 12:00", "06-08 00:00, 06-11 00:00, 06-15 00:00, 06-21 00:00", ""},
	{"0 0 */10 * *", "", "2026-06-01 12:00", "06-11 00:00, 06-21 00:00, 07-01 00:00", ""},
}

const minute = "2006-01-02 15:04"

// TestGoldenFireTimes also holds robfig/cron against the table: it differs from the fire times exactly if docs/schedules.md
// says so, in a table that has a line for each difference.
func TestGoldenFireTimes(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range golden {
		after, err := time.Parse(minute, g.after)
		if err != nil {
			t.Fatal(err)
		}
		times, err := firetimes.Parse(firetimes.Spec{Cron: g.cron, Zone: g.zone})
		if err != nil {
			t.Error(err)
			continue
		}
		n := strings.Count(g.want, ",") + 1
		if got := list(times.Next, after, n); got != g.want {
			t.Errorf("%q in %s after %s: %s, want %s", g.cron, g.zone, g.after, got, g.want)
		}
		alone, err := cron.ParseStandard("CRON_TZ=" + g.zone + " " + g.cron)
		if err != nil {
			t.Fatal(err)
		}
		if got := list(alone.Next, after, n); (got == g.want) != (g.alone == "") {
			t.Errorf("%q in %s after %s: robfig/cron alone %s, the table says %q", g.cron, g.zone, g.after, got, g.alone)
		}
		if line := fmt.Sprintf("| `%s` | %s |", g.cron, g.zone); g.alone != "" && g.zone != "" && !tells(string(docs), line, g.alone) {
			t.Errorf("docs/schedules.md has no line %s ... %s |", line, g.alone)
		}
	}
}

// tells reports whether a line begins and ends so.
func tells(docs, begin, end string) bool {
	for line := range strings.Lines(docs) {
		if strings.HasPrefix(line, begin) && strings.HasSuffix(line, "| "+end+" |\n") {
			return true
		}
	}
	return false
}

// list returns n times, without the year if it is that of after.
func list(next func(time.Time) time.Time, after time.Time, n int) string {
	var times []string
	for at := next(after); len(times) < n; at = next(at) {
		times = append(times, strings.TrimPrefix(at.UTC().Format(minute), after.Format("2006-")))
		if at.IsZero() {
			break
		}
	}
	return strings.Join(times, ", ")
}

func TestDescriptorsAreTheirFiveFields(t *testing.T) {
	t.Parallel()
	for descriptor, five := range map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", " @daily ": "0 0 * * *",
		"0 0 * JAN,jul mon-fri": "0 0 * 1,7 1-5",
	} {
		a, b := parse(t, firetimes.Spec{Cron: descriptor, Zone: "Europe/Berlin"}), parse(t, firetimes.Spec{Cron: five, Zone: "Europe/Berlin"})
		from := time.Date(2026, 2, 27, 0, 0, 0, 0, time.UTC)
		if got, want := list(a.Next, from, 60), list(b.Next, from, 60); got != want {
			t.Errorf("%s: %s, want %s", descriptor, got, want)
		}
	}
}

func parse(t *testing.T, s firetimes.Spec) *firetimes.Times {
	t.Helper()
	times, err := firetimes.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return times
}

func TestPeriodsCountFromTheAnchor(t *testing.T) {
	t.Parallel()
	anchor := time.Date(2026, 3, 28, 23, 59, 59, 250_900_000, time.UTC)
	whole := anchor.Truncate(time.Millisecond)
	times := parse(t, firetimes.Spec{Cron: "@every 1h30m", Zone: "Europe/Berlin", Anchor: anchor})
	for after, want := range map[time.Time]time.Time{
		whole:                              whole.Add(90 * time.Minute),
		whole.Add(-1):                      whole,
		whole.Add(90 * time.Minute):        whole.Add(180 * time.Minute),
		whole.Add(90*time.Minute - 1):      whole.Add(90 * time.Minute),
		whole.Add(1000 * 90 * time.Minute): whole.Add(1001 * 90 * time.Minute), // summer time changes nothing
		whole.Add(-time.Hour):              whole,
		whole.Add(-2 * time.Hour):          whole.Add(-90 * time.Minute),
	} {
		if got := times.Next(after); !got.Equal(want) {
			t.Errorf("after %s comes %s, want %s", after, got, want)
		}
	}
	if got := parse(t, firetimes.Spec{Cron: "@every 1500ms"}).Next(time.UnixMilli(1500)); got.UnixMilli() != 3000 {
		t.Errorf("without an anchor: %v", got)
	}
}

func TestStartIsInsideAndEndIsNot(t *testing.T) {
	t.Parallel()
	start, end := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), time.Date(2026, 5, 1, 12, 3, 0, 0, time.UTC)
	for _, text := range []string{"* * * * *", "@every 1m"} {
		times := parse(t, firetimes.Spec{Cron: text, Start: start, End: end})
		if got := list(times.Next, start.AddDate(0, -1, 0), 5); got != "05-01 12:00, 05-01 12:01, 05-01 12:02, 0001-01-01 00:00" {
			t.Errorf("%s: %s", text, got)
		}
		if got := times.Next(end); !got.IsZero() {
			t.Errorf("%s: after the end comes %s", text, got)
		}
	}
	late := parse(t, firetimes.Spec{Cron: "0 0 1 1 *", Start: start.Add(time.Millisecond)})
	if got := late.Next(time.Time{}); got.Year() != 2027 {
		t.Errorf("the first is %s", got)
	}
}

func TestNextKnowsTheEndsOfTheCalendar(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"* * * * *", "@every 1h", "0 0 29 2 *"} {
		times := parse(t, firetimes.Spec{Cron: text, Zone: "Europe/Berlin"})
		for _, after := range []time.Time{time.Date(9999, 12, 31, 23, 59, 0, 0, time.UTC), time.Unix(1<<62, 0), time.Unix(1<<56, 0)} {
			if got := times.Next(after); !got.IsZero() {
				t.Errorf("%s: after %v comes %v", text, after, got)
			}
		}
		if got := times.Next(time.Unix(-1<<60, 0)); got.IsZero() || got.Year() > 4 {
			t.Errorf("%s: the first of all is %v", text, got)
		}
	}
}
