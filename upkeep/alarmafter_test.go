package upkeep

import (
	"fmt"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/store"
)

func TestWhenTheNextAlarmMayComeAndWhatItCounts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	alarm := func(created, until time.Duration) *store.Row {
		text := fmt.Sprintf(`{"kind":"dead","biz_type":"a","until":%q}`, now.Add(until).Format(time.RFC3339Nano))
		return &store.Row{Info: tocsin.Info{Created: now.Add(created), Payload: text}}
	}
	for name, c := range map[string]struct {
		latest *store.Row
		key    time.Duration // from now
		since  time.Duration
		wait   time.Duration
	}{
		"there is none":                       {nil, -time.Duration(now.UnixNano()), -time.Duration(now.UnixNano()), 0},
		"a minute ago":                        {alarm(-time.Minute, -62*time.Second), -62 * time.Second, -62 * time.Second, 4 * time.Minute},
		"just now":                            {alarm(0, -2*time.Second), -2 * time.Second, -2 * time.Second, 5 * time.Minute},
		"long ago":                            {alarm(-time.Hour, -time.Hour), -time.Hour, -time.Hour, -55 * time.Minute},
		"a task of somebody else":             {&store.Row{Info: tocsin.Info{Created: now.Add(-time.Hour), Payload: "x"}}, -time.Hour, -time.Hour, -55 * time.Minute},
		"the clock was set back an hour":      {alarm(time.Hour, time.Hour-2*time.Second), time.Hour - 2*time.Second, -5 * time.Minute, 0},
		"and an alarm came after that":        {alarm(-time.Minute, time.Hour), time.Hour, -5 * time.Minute, 4 * time.Minute},
		"just now, by a clock a little ahead": {alarm(time.Second, -time.Second), -time.Second, -time.Second, 5*time.Minute + time.Second},
	} {
		l := &link{policy: biztype.Policy{Alarm: &biztype.Alarm{To: "b", AtMostEvery: biztype.Duration(5 * time.Minute)}}, now: now.UnixMilli()}
		l.after(c.latest)
		if l.key != now.Add(c.key).UnixMilli() || l.since != now.Add(c.since).UnixMilli() || l.wait != c.wait {
			t.Errorf("%s: key %d, since %d, wait %s", name, l.key-l.now, l.since-l.now, l.wait)
		}
		if next := l.until(lag); next.UnixMilli() <= l.key {
			t.Errorf("%s: until %s does not follow the one before", name, next)
		}
	}
}
