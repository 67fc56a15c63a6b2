package main

import (
	"testing"
	"time"
)

func TestDueTimesAreRoundedUpToTheSecond(t *testing.T) {
	t.Parallel()
	base := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, c := range []struct{ due, want time.Time }{
		{base, base},
		{base.Add(time.Nanosecond), base.Add(time.Second)},
		{base.Add(999 * time.Millisecond), base.Add(time.Second)},
	} {
		if got := wholeSecond(c.due); !got.Equal(c.want) {
			t.Errorf("%s became %s", c.due, got)
		}
	}
	if past := time.Now().Add(-time.Minute); !wholeSecond(past).Equal(past) {
		t.Error("what is due is put off")
	}
}
