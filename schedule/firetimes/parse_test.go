package firetimes_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// noon is a start in the table of refusals.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

type spec = firetimes.Spec

var refusals = map[string]struct {
	spec spec
	want string
}{
	"nothing":                       {spec{}, `cron expression "": it has 0 fields: want five fields such as "*/5 * * * *", a descriptor such as @daily, or "@every 90s"`},
	"30 February":                   {spec{Cron: "0 0 30 2 *"}, `cron expression "0 0 30 2 *" has no fire time within five years of 2000-01-01 00:00:00 UTC: change its day or month`},
	"31 of short months":            {spec{Cron: "0 0 31 4,6,9,11 *", Start: noon}, "within five years of 2026-05-01 12:00:00 UTC"},
	"a leap day too far":            {spec{Cron: "0 0 29 2 *", Anchor: noon.AddDate(71, 0, 0)}, "within five years of 2097-05-01 12:00:00 UTC"},
	"a period of ten years":         {spec{Cron: "@every 87600h", Anchor: noon}, "has no fire time within five years"},
	"nothing before the end":        {spec{Cron: "0 0 1 1 *", Start: noon, End: noon.AddDate(0, 1, 0)}, `has no fire time between start 2026-05-01 12:00:00 UTC and end 2026-06-01 12:00:00 UTC: set a later end`},
	"TZ":                            {spec{Cron: "TZ=Asia/Tokyo 0 0 * * *"}, `cron expression "TZ=Asia/Tokyo 0 0 * * *": it names a time zone: put the zone into the field zone`},
	"TZ that makes the parser fall": {spec{Cron: "TZ=Asia/Tokyo"}, "put the zone into the field zone"},
	"CRON_TZ":                       {spec{Cron: " CRON_TZ=UTC @daily"}, "put the zone into the field zone"},
	"Local":                         {spec{Cron: "@daily", Zone: "Local"}, `zone "Local" means another time zone on each machine: name an IANA time zone such as Europe/Berlin, or UTC`},
	"localtime":                     {spec{Cron: "@daily", Zone: "localtime"}, "means another time zone on each machine"},
	"leap seconds":                  {spec{Cron: "@daily", Zone: "right/Europe/Berlin"}, "counts leap seconds"},
	"a zone below the folder":       {spec{Cron: "@daily", Zone: "./right/Europe/Berlin"}, `zone "./right/Europe/Berlin" is unknown: name an IANA time zone such as Europe/Berlin, or UTC`},
	"the machine's zone":            {spec{Cron: "@daily", Zone: "./localtime"}, `zone "./localtime" is unknown`},
	"an empty part":                 {spec{Cron: "@daily", Zone: "Europe//Berlin"}, `zone "Europe//Berlin" is unknown`},
	"a slash at the end":            {spec{Cron: "@daily", Zone: "UTC/"}, `zone "UTC/" is unknown`},
	"a dot as a part":               {spec{Cron: "@daily", Zone: "Europe/./Berlin"}, `zone "Europe/./Berlin" is unknown`},
	"an unknown zone":               {spec{Cron: "@daily", Zone: "Europe/Berln"}, `zone "Europe/Berln" is unknown: name an IANA time zone such as Europe/Berlin, or UTC`},
	"an offset":                     {spec{Cron: "@daily", Zone: "UTC+8"}, "is unknown: name an IANA time zone"},
	"a path":                        {spec{Cron: "@daily", Zone: "../../etc/passwd"}, "is unknown"},
	"a zone of @every":              {spec{Cron: "@every 1m", Zone: "Mars"}, `zone "Mars" is unknown`},
	"a period under a second":       {spec{Cron: "@every 999ms"}, `cron expression "@every 999ms": period 999ms is under a second: want at least 1s`},
	"a negative period":             {spec{Cron: "@every -1h"}, "period -1h0m0s is under a second"},
	"a period in microseconds":      {spec{Cron: "@every 1000100us"}, "period 1.0001s is not in whole milliseconds: round it"},
	"a period without a unit":       {spec{Cron: "@every 90"}, `cron expression "@every 90": the period 90 has no unit: write "@every 90s"`},
	"a period without a space":      {spec{Cron: "@every5s"}, `cron expression "@every5s": no space before the period: write "@every 5s"`},
	"no period":                     {spec{Cron: "@every"}, "no period"},
	"six fields":                    {spec{Cron: "0 */5 * * * *"}, `the first of its six fields, "0", is seconds: leave it out: write "*/5 * * * *"`},
	"four fields":                   {spec{Cron: "* * * *"}, "it has 4 fields, and lacks day of week: want five fields"},
	"an unknown descriptor":         {spec{Cron: "@reboot"}, `cron expression "@reboot": there is no such descriptor: want one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or "@every 90s"`},
	"a terminal's control codes":    {spec{Cron: "@\x00\x1b[2J"}, `cron expression "@\x00\x1b[2J": there is no such descriptor`},
	"minute 60":                     {spec{Cron: "60 * * * *"}, `field minute has "60": want values of 0-59`},
	"Sunday as 7":                   {spec{Cron: "0 0 * * 7"}, `field day of week has "7": want values of 0-6 or sun-sat, Sunday is 0: 7 is Sunday in some crons and Saturday in others`},
	"a name":                        {spec{Cron: "0 0 * * freitag"}, `field day of week has "freitag": want values of 0-6 or sun-sat`},
	"names for minutes":             {spec{Cron: "jan * * * *"}, `field minute has "jan": want *, values of 0-59`},
	"the last day":                  {spec{Cron: "0 0 L * *"}, `field day of month has "L": the last days of a month have no sign here: write 28-31`},
	"an item left out":              {spec{Cron: ", * * * *"}, `field minute has "": want *`},
	"a star with an end":            {spec{Cron: "*-5 * * * *"}, `field minute has "*-5"`},
	"a sign":                        {spec{Cron: "+5 * * * *"}, `field minute has "+5"`},
	"a step beyond the field":       {spec{Cron: "*/90 * * * *"}, `field minute has a step of 90: want 1 to 60, or "@every" with a period`},
	"a step of none":                {spec{Cron: "*/0 * * * *"}, "field minute has a step of 0"},
	"backwards":                     {spec{Cron: "5-1 * * * *"}, "field minute has the range 5-1: want its lower value first, or two ranges"},
	"a week over its end":           {spec{Cron: "0 0 * * fri-mon"}, "field day of week has the range fri-mon: want its lower value first"},
	"day 0":                         {spec{Cron: "0 0 0 * *"}, `field day of month has "0": want values of 1-31`},
	"too large an hour":             {spec{Cron: "0 99999999999999999999 * * *"}, `field hour has "99999999999999999999"`},
	"too long":                      {spec{Cron: strings.Repeat("1,", 200) + "1 * * * *"}, "the cron expression has 409 characters: want at most 255"},
	"too long, of two bytes each":   {spec{Cron: strings.Repeat("ä", 300)}, "the cron expression has 300 characters: want at most 255"},
	"start at the end":              {spec{Cron: "@daily", Start: noon, End: noon}, "start 2026-05-01 12:00:00 UTC is not before end 2026-05-01 12:00:00 UTC: set an earlier start or a later end"},
	"a start beyond the calendar":   {spec{Cron: "@daily", Start: time.Unix(1<<50, 0)}, "is not in the years 1 to 9999: correct the start, end or anchor"},
	"an anchor beyond the calendar": {spec{Cron: "@every 1s", Anchor: time.Unix(-1<<60, 0)}, "is not in the years 1 to 9999"},
	"a negative jitter":             {spec{Cron: "@daily", Jitter: -1}, "jitter -1ns is negative: want 0 or more"},
	"a jitter in microseconds":      {spec{Cron: "@daily", Jitter: time.Microsecond}, "jitter 1µs is not in whole milliseconds: round it"},
	"a jitter of the period":        {spec{Cron: "@every 90s", Jitter: 90 * time.Second}, `jitter 1m30s is not below the shortest interval of "@every 90s", which may be 1m30s: set a shorter jitter`},
	"a jitter of the step":          {spec{Cron: "*/5 * * * *", Jitter: 5 * time.Minute}, "which may be 5m0s"},
	"a jitter over the hour's end":  {spec{Cron: "*/40 * * * *", Jitter: 20 * time.Minute}, "which may be 20m0s"},
	"a jitter over midnight":        {spec{Cron: "0 1,23 * * *", Jitter: 2 * time.Hour}, "which may be 2h0m0s"},
	"a jitter over a gap":           {spec{Cron: "59 1,2 * * *", Zone: "Europe/Berlin", Jitter: time.Minute}, "which may be 1m0s"},
	"a jitter over half an hour":    {spec{Cron: "45 * * * *", Zone: "Australia/Lord_Howe", Jitter: 30 * time.Minute}, "which may be 30m0s"},
	"a jitter of a short month":     {spec{Cron: "@monthly", Jitter: 28 * 24 * time.Hour}, "which may be 672h0m0s"},
	"a jitter of a summer day":      {spec{Cron: "@daily", Zone: "Europe/Berlin", Jitter: 23 * time.Hour}, "which may be 23h0m0s"},
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range refusals {
		_, err := firetimes.Parse(c.spec)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestParseTakes(t *testing.T) {
	t.Parallel()
	for _, s := range []firetimes.Spec{
		{Cron: "0 0 29 2 *"},
		{Cron: "0 0 30 2 1"}, // either day
		{Cron: "? ? ? ? ?"},
		{Cron: "*/60 */24 * * *"},
		{Cron: "0\t0  * * sun"},
		{Cron: "@every 1s", Jitter: 999 * time.Millisecond},
		{Cron: "@monthly", Jitter: 28*24*time.Hour - time.Millisecond},
		{Cron: "0 1,2,3 * * *", Zone: "Europe/Berlin", Jitter: 59 * time.Minute},
		{Cron: "0 * * * *", Zone: "Europe/Berlin", Jitter: 59 * time.Minute},
		{Cron: "@weekly", Zone: "Europe/Berlin", Jitter: 166 * time.Hour},
		{Cron: "@daily", Zone: "Asia/Calcutta"},
	} {
		parse(t, s)
	}
}

func TestOffsetIsAConstantBelowTheJitter(t *testing.T) {
	t.Parallel()
	const jitter = time.Minute
	var sum time.Duration
	seen := map[time.Duration]bool{}
	for seed := range uint64(2000) {
		s := firetimes.Spec{Cron: "@hourly", Jitter: jitter, Seed: seed}
		o := parse(t, s).Offset()
		if o < 0 || o >= jitter || o%time.Millisecond != 0 || o != parse(t, s).Offset() {
			t.Fatalf("seed %d: %v", seed, o)
		}
		seen[o], sum = true, sum+o
	}
	if mean := sum / 2000; len(seen) < 1900 || mean < 27*time.Second || mean > 33*time.Second {
		t.Errorf("%d different offsets, %v on average", len(seen), mean)
	}
	// Runs that were made have these times: the hash never changes.
	if o := parse(t, firetimes.Spec{Cron: "@hourly", Jitter: jitter, Seed: 1}).Offset(); o != 43_730*time.Millisecond {
		t.Errorf("seed 1: %v", o)
	}
	if o := parse(t, firetimes.Spec{Cron: "@hourly", Seed: 1}).Offset(); o != 0 {
		t.Errorf("without jitter: %v", o)
	}
}

func FuzzParse(f *testing.F) {
	for _, g := range golden {
		f.Add(g.cron, g.zone, int64(1e12), int64(0))
	}
	f.Add("@every 90s", "Local", int64(-1), int64(1000))
	f.Add("TZ=", "", int64(0), int64(0))
	f.Add("@\x00", "", int64(0), int64(0))
	f.Fuzz(func(t *testing.T, text, zone string, anchor, jitter int64) {
		s := firetimes.Spec{Cron: text, Zone: zone, Anchor: time.UnixMilli(anchor), Jitter: time.Duration(jitter), Seed: uint64(anchor)}
		times, err := firetimes.Parse(s)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("not one line: %q", err)
			}
			return
		}
		at := s.Anchor
		for range 20 {
			next := times.Next(at)
			if next.IsZero() {
				return
			}
			if !next.After(at) || next.Nanosecond()%1e6 != 0 || !times.Next(next.Add(-1)).Equal(next) {
				t.Fatalf("%q in %q: after %v comes %v", text, zone, at, next)
			}
			if o := times.Offset(); o < 0 || o > 0 && o >= s.Jitter {
				t.Fatalf("offset %v of %v", o, s.Jitter)
			}
			at = next
		}
	})
}
