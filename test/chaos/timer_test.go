package chaos

import (
	"strings"
	"testing"
	"time"
)

// clock reads a time of a day of 2026 in UTC.
func clock(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse("01-02 15:04:05.000", text)
	if err != nil {
		t.Fatal(err)
	}
	return at.AddDate(2026, 0, 0)
}

// TestFireTimesOfTheHarness: counted by hand, in zones whose hours begin at other minutes than those of UTC.
func TestFireTimesOfTheHarness(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		beat                  beat
		zone                  string
		anchor, after, before string
		want                  []string
	}{
		"from the anchor, which is none": {beat{Every: time.Second}, "UTC", "11-22 10:00:00.250", "11-22 10:00:00.000", "11-22 10:00:02.500",
			[]string{"11-22 10:00:01.250", "11-22 10:00:02.250"}},
		"neither end counts": {beat{Every: 2 * time.Second}, "UTC", "11-22 10:00:00.250", "11-22 10:00:02.250", "11-22 10:00:06.250",
			[]string{"11-22 10:00:04.250"}},
		"each minute": {beat{Step: 1}, "Asia/Kathmandu", "11-22 10:00:00.000", "11-22 10:00:00.000", "11-22 10:02:00.001",
			[]string{"11-22 10:01:00.000", "11-22 10:02:00.000"}},
		"each third minute": {beat{Step: 3}, "UTC", "11-22 10:00:00.000", "11-22 09:59:59.999", "11-22 10:04:00.000",
			[]string{"11-22 10:00:00.000", "11-22 10:03:00.000"}},
		"each hour in Kathmandu, which is 5:45 ahead": {beat{}, "Asia/Kathmandu", "11-22 10:00:00.000", "11-22 10:00:00.000", "11-22 12:00:00.000",
			[]string{"11-22 10:15:00.000", "11-22 11:15:00.000"}},
		"each hour on Lord Howe in winter, 10:30 ahead": {beat{Minute: 10}, "Australia/Lord_Howe", "06-22 10:00:00.000", "06-22 10:00:00.000", "06-22 11:00:00.000",
			[]string{"06-22 10:40:00.000"}},
		"and in summer, 11:00 ahead": {beat{Minute: 10}, "Australia/Lord_Howe", "11-22 10:00:00.000", "11-22 10:00:00.000", "11-22 11:00:00.000",
			[]string{"11-22 10:10:00.000"}},
		"each day in New York, 5:00 behind": {beat{Daily: true, Hour: 9, Minute: 30}, "America/New_York", "11-22 10:00:00.000", "11-22 10:00:00.000", "11-24 10:00:00.000",
			[]string{"11-22 14:30:00.000", "11-23 14:30:00.000"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone := (&timer{Zone: c.zone}).location()
			got := c.beat.fires(zone, clock(t, c.anchor), clock(t, c.after).In(elsewhere), clock(t, c.before))
			if len(got) != len(c.want) {
				t.Fatalf("%d fire times: %v, want %v", len(got), got, c.want)
			}
			for i := range got {
				if got[i] != clock(t, c.want[i]) { // in UTC too, as runs are found by their times
					t.Errorf("fire time %d is %v, want %s", i, got[i], c.want[i])
				}
			}
		})
	}
}

// TestCostOfGenerators: the statements of those who make runs are counted apart from all others.
func TestCostOfGenerators(t *testing.T) {
	t.Parallel()
	c := cost{generates: true, from: noon, to: noon.Add(100 * time.Second), questions: 10_000, statements: map[string]float64{
		"schedules due": 6, "schedule lock": 20, "schedule runs": 20, "schedule ring": 4, "schedule made": 20, "peek": 500, "judged": 100,
		passesTold: 6, runsTold: 4000,
	}}
	want := "generators in 6 passes: 1.3 statements/s, 1.30 % of all, for 20 transactions and 4000 runs"
	if got := c.String(); !strings.HasSuffix(got, want) {
		t.Errorf("%s, want %s at its end", got, want)
	}
}
