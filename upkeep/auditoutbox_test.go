package upkeep

import (
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/store"
)

func TestAMissingTaskIsLostOnlyIfNoPurgeCanHaveRemovedIt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	policy := func(retention, changed time.Duration) biztype.Stored {
		return biztype.Stored{Policy: biztype.Policy{Retention: biztype.Duration(retention)}, Changed: now.Add(-changed)}
	}
	for name, c := range map[string]struct {
		policies []biztype.Stored
		age      time.Duration // of the move
		want     bool
	}{
		"moved a moment ago":                         {[]biztype.Stored{policy(0, 24*time.Hour)}, time.Second, true},
		"moved longer ago than the retention":        {[]biztype.Stored{policy(time.Hour, 24*time.Hour)}, 61 * time.Minute, false},
		"moved almost the retention ago":             {[]biztype.Stored{policy(time.Hour, 24*time.Hour)}, 59*time.Minute + time.Second, false},
		"moved a little less than the retention ago": {[]biztype.Stored{policy(time.Hour, 24*time.Hour)}, 58 * time.Minute, true},
		"a retention below the margin":               {[]biztype.Stored{policy(time.Minute, 24*time.Hour)}, 0, false},
		"the shortest of several counts":             {[]biztype.Stored{policy(0, 24*time.Hour), policy(time.Minute, 24*time.Hour)}, 0, false},
		"a policy was changed before that":           {[]biztype.Stored{policy(0, 24*time.Hour), policy(0, 59*time.Minute)}, time.Second, false},
		"a policy was changed long before that":      {[]biztype.Stored{policy(0, 24*time.Hour), policy(0, 62*time.Minute)}, time.Minute, true},
		"a policy was changed after that":            {[]biztype.Stored{policy(0, time.Second)}, time.Minute, false},
		"no policy":                                  {nil, time.Second, false},
	} {
		p := &outboxPart{OutboxConfig: OutboxConfig{Policies: c.policies}}
		if got := p.kept()(store.Relayed{Age: c.age, Moved: now.Add(-c.age)}); got != c.want {
			t.Errorf("%s: lost %t", name, got)
		}
	}
}

func TestHowLongARowMayWait(t *testing.T) {
	t.Parallel()
	policy := func(timeout time.Duration) biztype.Stored {
		return biztype.Stored{Policy: biztype.Policy{Timeout: biztype.Duration(timeout)}}
	}
	for _, c := range []struct {
		policies []biztype.Stored
		want     time.Duration
	}{
		{nil, 5 * time.Minute},
		{[]biztype.Stored{policy(time.Second)}, 5 * time.Minute},
		{[]biztype.Stored{policy(10 * time.Minute), policy(time.Second)}, 21 * time.Minute},
	} {
		if got := olderOf(c.policies); got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}
