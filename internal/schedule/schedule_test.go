package schedule

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEachWorksAtItsTimesAndNeverSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Parse("@every 1m")
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

func TestParseSaysWhatARightExpressionLooksLike(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"*/5 * * * *", "@hourly", "@every 90s", "CRON_TZ=Asia/Shanghai 0 4 * * *"} {
		if _, err := Parse(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "* * * *", "61 * * * *", "@sometimes"} {
		if _, err := Parse(bad); err == nil || !strings.Contains(err.Error(), `want five fields such as "*/5 * * * *"`) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestEachEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	end()
	often, err := Parse("* * * * *")
	if err != nil {
		t.Fatal(err)
	}
	Each(ctx, often, func(context.Context) { t.Error("it works on after the end") })
}
