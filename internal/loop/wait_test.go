package loop

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAWaitLastsNoLongerThanItsContext(t *testing.T) {
	for name, c := range map[string]struct {
		d, end time.Duration // the wait, and the end of its context
		took   time.Duration
		want   error
	}{
		"the time passes":       {d: time.Minute, end: time.Hour, took: time.Minute},
		"the context ends":      {d: time.Hour, end: time.Minute, took: time.Minute, want: context.DeadlineExceeded},
		"there is no time left": {d: -time.Minute, end: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.end)
				defer cancel()
				began := time.Now()
				if err := Wait(ctx, c.d); !errors.Is(err, c.want) || time.Since(began) != c.took {
					t.Errorf("%v after %s, want %v after %s", err, time.Since(began), c.want, c.took)
				}
			})
		})
	}
}

func TestAWaitUntilATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(time.Minute)
		if err := WaitUntil(t.Context(), at); err != nil || !time.Now().Equal(at) {
			t.Errorf("%v, %s after it", err, time.Since(at))
		}
	})
}
