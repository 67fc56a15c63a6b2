package upkeep

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEachWorksAtItsTimesAndNeverSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := ParseTimes("@every 1m")
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		start, times := time.Now(), []time.Duration{}
		Each(ctx, s, func(context.Context) {
			times = append(times, time.Since(start).Round(time.Second))
			switch len(times) {
			case 1:
				time.Sleep(90 * time.Second) // outlasts the next time
			case 3:
				end()
			}
		})
		if len(times) != 3 || times[0] != time.Minute || times[1] != 3*time.Minute+30*time.Second || times[2] != 4*time.Minute+30*time.Second {
			t.Errorf("worked at %v", times)
		}
	})
}

func TestParseTimesSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	const five, never = `: want five fields such as "*/5 * * * *", or "@every 1m"`, " never fires within five years"
	for expression, want := range map[string]string{
		"*/5 * * * *": "", "@hourly": "", "@every 90s": "", "CRON_TZ=Asia/Shanghai 0 4 * * *": "", "0 0 29 2 *": "",
		"0 0 30 2 1": "", // of a day and a weekday, cron accepts either
		"":           five, "* * * *": five, "61 * * * *": five, "@sometimes": five, "@every soon": five, "every day": five,
		"TZ=UTC": five, "CRON_TZ=Europe/Berlin": five, "CRON_TZ=\t@daily": five, "TZ=": five,
		"0 0 30 2 *": never, "0 0 31 4,6,9,11 *": never, "CRON_TZ=Europe/Berlin 0 0 30 2 *": never,
	} {
		got := ""
		if _, err := ParseTimes(expression); err != nil {
			got = strings.TrimPrefix(err.Error(), fmt.Sprintf("cron expression %q", expression))
		}
		if got != want && (want != five || !strings.HasSuffix(got, five)) { // the parser's own words come before
			t.Errorf("%q: %q", expression, got)
		}
	}
}

func TestEachEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	end()
	often, err := ParseTimes("* * * * *")
	if err != nil {
		t.Fatal(err)
	}
	Each(ctx, often, func(context.Context) { t.Error("it works on after the end") })
}

// twice is a schedule with two times.
type twice struct{ left int }

func (s *twice) Next(now time.Time) time.Time {
	if s.left--; s.left < 0 {
		return time.Time{}
	}
	return now.Add(time.Minute)
}

func TestEachWaitsForItsContextWhenThereIsNoNextTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(t.Context(), time.Hour)
		defer end()
		times := 0
		Each(ctx, &twice{left: 2}, func(context.Context) { times++ })
		if times != 2 || ctx.Err() == nil {
			t.Errorf("worked %d times, its context: %v", times, ctx.Err())
		}
	})
}
