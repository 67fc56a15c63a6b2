package firetimes_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// zones have every kind of change since 1975: of an hour, 30 and 20 minutes, two hours, a day, at midnight, in
// Ramadan, by law from one day to the next, and none.
var zones = []string{
	"", "UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Istanbul", "Europe/Moscow", "Europe/Lisbon",
	"America/New_York", "America/Chicago", "America/Sao_Paulo", "America/Santiago", "America/Asuncion", "America/Havana",
	"America/St_Johns", "America/Caracas", "America/Nuuk", "America/Scoresbysund", "America/Metlakatla", "America/Danmarkshavn",
	"Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun", "Africa/Windhoek", "Africa/Juba", "Africa/Sao_Tome",
	"Asia/Beirut", "Asia/Gaza", "Asia/Amman", "Asia/Tehran", "Asia/Jerusalem", "Asia/Pyongyang", "Asia/Kathmandu",
	"Asia/Kolkata", "Asia/Shanghai", "Asia/Tokyo", "Asia/Colombo", "Asia/Manila", "Asia/Yerevan", "Asia/Anadyr",
	"Australia/Lord_Howe", "Australia/Adelaide", "Australia/Sydney", "Australia/Eucla", "Antarctica/Troll", "Antarctica/Casey",
	"Pacific/Apia", "Pacific/Kwajalein", "Pacific/Kiritimati", "Pacific/Chatham", "Pacific/Norfolk", "Pacific/Fakaofo",
	"Pacific/Fiji", "Pacific/Easter", "Pacific/Honolulu", "Atlantic/Azores", "Indian/Maldives", "EST5EDT",
}

// TestFireTimesAreThoseOfAWalkAlongTheClock compares random expressions in random zones and years with enumerate_test.go:
// 200 of them, or TOCSIN_FIRETIMES (make firetimes: 10,000).
func TestFireTimesAreThoseOfAWalkAlongTheClock(t *testing.T) {
	t.Parallel()
	const perWalk = 50
	random, total := source(t)
	compared, times := 0, 0
	for compared < total {
		zone, year := zones[random.IntN(len(zones))], 1975+random.IntN(75)
		switch random.IntN(10) {
		case 0:
			zone, year = "Pacific/Apia", 2011
		case 1:
			zone = "Africa/Casablanca"
		}
		from := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
		w := walkZone(location(t, zone), from, from+365*24*3600, 60)
		for range perWalk {
			times += compare(t, random, w, zone, anExpression(random))
			compared++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d expressions, %d fire times: 0 differ", compared, times)
}

// old are changes of clocks by odd seconds, and across the date line.
var old = []struct {
	zone  string
	about string
}{
	{"Europe/Amsterdam", "1937-07-01"}, {"Europe/Amsterdam", "1916-05-01"}, {"Africa/Monrovia", "1972-01-07"},
	{"Europe/Paris", "1911-03-11"}, {"America/New_York", "1883-11-18"}, {"Asia/Kolkata", "1945-10-15"},
	{"Asia/Manila", "1844-12-31"}, {"America/Juneau", "1867-10-18"}, {"Pacific/Kwajalein", "1993-08-21"},
	{"Pacific/Kwajalein", "1969-10-01"}, {"Pacific/Apia", "1892-07-04"}, {"Asia/Singapore", "1933-01-01"},
	{"Africa/Nairobi", "1928-06-30"}, {"Asia/Singapore", "1981-12-31"}, {"Pacific/Honolulu", "1947-06-08"},
	{"Europe/Dublin", "1916-10-01"}, {"Antarctica/Troll", "2005-03-27"}, {"America/Guyana", "1975-08-01"},
}

// TestFireTimesAboutOddChanges walks second by second.
func TestFireTimesAboutOddChanges(t *testing.T) {
	t.Parallel()
	random, total := source(t)
	for _, c := range old {
		about, err := time.Parse(time.DateOnly, c.about)
		if err != nil {
			t.Fatal(err)
		}
		loc := location(t, c.zone)
		_, end := about.Add(-36 * time.Hour).In(loc).ZoneBounds()
		if end.IsZero() || end.After(about.Add(96*time.Hour)) {
			t.Errorf("%s does not change about %s, but at %v", c.zone, c.about, end)
		}
		w := walkZone(loc, end.Unix()-24*3600, end.Unix()+24*3600, 1)
		for range max(20, total/100) {
			compare(t, random, w, c.zone, anExpression(random))
		}
		for _, text := range []string{"* * * * *", "* 0-22 * * *", "* 0 * * *", "30 1-23 * * *", "*/20 */2 * * *"} {
			compare(t, random, w, c.zone, dense(text))
		}
	}
}

// compare returns how many fire times it compared.
func compare(t *testing.T, random *rand.Rand, w *walk, zone string, e expression) int {
	t.Helper()
	times, err := firetimes.Parse(firetimes.Spec{Cron: e.text, Zone: zone})
	if err != nil {
		t.Errorf("%q in %q: %v", e.text, zone, err)
		return 0
	}
	want := w.fires(e)
	at := w.from - 1
	for i := range want {
		next := times.Next(time.Unix(at, 0))
		if next.Unix() != want[i] || next.Nanosecond() != 0 {
			t.Errorf("%q in %q: after %s comes %s, want %s", e.text, zone, show(at), show(next.Unix()), show(want[i]))
			return i
		}
		if between := at + random.Int64N(want[i]-at); !times.Next(time.Unix(between, random.Int64N(1e9))).Equal(next) {
			t.Errorf("%q in %q: after %s does not come %s", e.text, zone, show(between), show(want[i]))
		}
		at = want[i]
	}
	if next := times.Next(time.Unix(at, 0)); !next.IsZero() && next.Unix() < w.to {
		t.Errorf("%q in %q: after %s comes %s, want none before %s", e.text, zone, show(at), show(next.Unix()), show(w.to))
	}
	checkShortest(t, e.text, zone, want)
	return len(want)
}

// checkShortest takes the bound from the refusal of a jitter of ten years and compares it with the intervals seen.
func checkShortest(t *testing.T, text, zone string, times []int64) {
	t.Helper()
	if len(times) < 2 || times[0] < time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix() {
		return
	}
	seen := time.Duration(1<<63 - 1)
	for i := 1; i < len(times); i++ {
		seen = min(seen, time.Duration(times[i]-times[i-1])*time.Second)
	}
	if _, err := firetimes.Parse(firetimes.Spec{Cron: text, Zone: zone, Jitter: seen}); err == nil {
		t.Errorf("%q in %q takes a jitter of %v, which is an interval between two fire times", text, zone, seen)
	}
}

func show(at int64) string { return time.Unix(at, 0).UTC().Format("Mon 2006-01-02 15:04:05 UTC") }

func location(t *testing.T, zone string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// source returns randomness that a failed test can be repeated with, and how many expressions to try.
func source(t *testing.T) (*rand.Rand, int) {
	t.Helper()
	total, seed := 200, rand.Uint64()
	for name, into := range map[string]func(uint64){
		"TOCSIN_FIRETIMES":      func(n uint64) { total = int(n) },
		"TOCSIN_FIRETIMES_SEED": func(n uint64) { seed = n },
	} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			into(n)
		}
	}
	t.Logf("TOCSIN_FIRETIMES=%d TOCSIN_FIRETIMES_SEED=%d repeats this", total, seed)
	return rand.New(rand.NewPCG(seed, 1)), total
}

// anExpression draws fields that meet changes of clocks often: hours about midnight and three, few minutes.
func anExpression(random *rand.Rand) expression {
	e := expression{}
	var texts [5]string
	texts[0], e.minutes, _ = aField(random, 0, 59, 25)
	texts[1], e.hours, _ = aField(random, 0, 23, 30)
	if random.IntN(3) == 0 {
		hour := []int{0, 1, 2, 3, 23}[random.IntN(5)]
		texts[1], e.hours = fmt.Sprint(hour), map[int]bool{hour: true}
	}
	texts[2], e.days, e.dayStar = aField(random, 1, 31, 60)
	texts[3], e.months, _ = aField(random, 1, 12, 75)
	texts[4], e.weekday, e.weekdayStar = aField(random, 0, 6, 60)
	e.text = strings.Join(texts[:], " ")
	if impossible(e) {
		return anExpression(random)
	}
	return e
}

// impossible reports whether no year has a day that matches, such as 30 February.
func impossible(e expression) bool {
	if e.dayStar || !e.weekdayStar {
		return false
	}
	for year := 2000; year < 2004; year++ {
		for at := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() == year; at = at.AddDate(0, 0, 1) {
			if e.days[at.Day()] && e.months[int(at.Month())] {
				return false
			}
		}
	}
	return true
}

// aField draws a list of values, ranges and steps; with the given chance in a hundred it is a star.
func aField(random *rand.Rand, least, most, stars int) (text string, set map[int]bool, star bool) {
	set = map[int]bool{}
	if random.IntN(100) < stars {
		add(set, least, most, 1)
		return []string{"*", "?", "*/1"}[random.IntN(3)], set, true
	}
	var items []string
	for range 1 + random.IntN(3)*random.IntN(2) {
		low := least + random.IntN(most-least+1)
		high, step := low+random.IntN(most-low+1), 1+random.IntN(most-least+1)
		switch random.IntN(4) {
		case 0, 1:
			items = append(items, fmt.Sprint(low))
			add(set, low, low, 1)
		case 2:
			items = append(items, fmt.Sprintf("%d-%d", low, high))
			add(set, low, high, 1)
		default:
			forms := []string{fmt.Sprintf("*/%d", max(step, 2)), fmt.Sprintf("%d-%d/%d", low, high, step), fmt.Sprintf("%d/%d", low, step)}
			i := random.IntN(3)
			items = append(items, forms[i])
			add(set, []int{least, low, low}[i], []int{most, high, most}[i], []int{max(step, 2), step, step}[i])
		}
	}
	return strings.Join(items, ","), set, false
}

func add(set map[int]bool, low, high, step int) {
	for i := low; i <= high; i += step {
		set[i] = true
	}
}

// dense reads the few expressions that are given as text: * or numbers in hours and minutes.
func dense(text string) expression {
	e := expression{text: text, minutes: map[int]bool{}, hours: map[int]bool{}, dayStar: true, weekdayStar: true, months: map[int]bool{}}
	add(e.months, 1, 12, 1)
	for i, set := range []map[int]bool{e.minutes, e.hours} {
		low, high, step := 0, []int{59, 23}[i], 1
		f := strings.Fields(text)[i]
		switch n, err := fmt.Sscanf(f, "%d-%d", &low, &high); {
		case n == 1 && err != nil:
			high = low
		case n == 0:
			_, _ = fmt.Sscanf(f, "*/%d", &step)
		}
		add(set, low, high, step)
	}
	return e
}

// TestNextIsMonotone checks that a later question never has an earlier answer, that an answer is no later than any that
// comes after it, and that the same question has the same answer.
func TestNextIsMonotone(t *testing.T) {
	t.Parallel()
	random, _ := source(t)
	for range 300 {
		zone := zones[random.IntN(len(zones))]
		e := anExpression(random)
		times, err := firetimes.Parse(firetimes.Spec{Cron: e.text, Zone: zone})
		if err != nil {
			t.Fatal(err)
		}
		asked := make([]int64, 50)
		for i := range asked {
			asked[i] = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC).Unix() + random.Int64N(150*365*24*3600)
		}
		slices.Sort(asked)
		var last time.Time
		for _, at := range asked {
			next := times.Next(time.Unix(at, 0))
			switch {
			case !next.After(time.Unix(at, 0)):
				t.Errorf("%q in %q: after %s comes %s", e.text, zone, show(at), next)
			case next.Before(last):
				t.Errorf("%q in %q: after %s comes %s, and earlier %s", e.text, zone, show(at), next, last)
			case !times.Next(next.Add(-1)).Equal(next) || !times.Next(time.Unix(at, 0)).Equal(next):
				t.Errorf("%q in %q: asked again, another answer than %s", e.text, zone, next)
			}
			last = next
		}
	}
}
