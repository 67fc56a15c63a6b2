package upkeep

import (
	"context"
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
	const five, never = `want five fields such as "*/5 * * * *"`, "never fires within five years"
	for expression, want := range map[string]string{
		"*/5 * * * *": "", "@hourly": "", "@every 90s": "", "CRON_TZ=Asia/Shanghai 0 4 * * *": "", "0 0 29 2 *": "",
		"0 0 30 2 1": "", // of a day and a weekday, cron accepts either
		"":           five, "* * * *": five, "61 * * * *": "want values of 0-59", "*/90 * * * *": "has a step of 90", "@sometimes": "want one of @hourly",
		"@every soon": "want a duration", "@every 10ms": "want at least 1s", "every day": `write "@every 24h"`, "0 0 3 * * ?": `write "0 3 * * ?"`,
		"TZ=UTC": five, "CRON_TZ=Europe/Berlin": five, "CRON_TZ=\t@daily": five, "TZ=": five, "TZ=Nowhere @daily": "unknown time zone Nowhere",
		"0 0 30 2 *": never, "0 0 31 4,6,9,11 *": never, "CRON_TZ=Europe/Berlin 0 0 30 2 *": never,
	} {
		if _, err := ParseTimes(expression); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", expression, err)
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
