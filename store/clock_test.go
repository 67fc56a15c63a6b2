package store

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The estimate never passes the server's clock, whatever the round trips, and a
// fast one brings it near.
func TestClockIsALowerBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		local := time.Now()
		ahead := time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(rt, "ahead"))
		var best sample
		for range rapid.IntRange(1, 20).Draw(rt, "measurements") {
			local = local.Add(time.Duration(rapid.Int64Range(0, 2e10).Draw(rt, "pause")))
			there := time.Duration(rapid.Int64Range(0, 3e8).Draw(rt, "there"))
			back := time.Duration(rapid.Int64Range(0, 3e8).Draw(rt, "back"))
			s := sample{asked: local, answered: local.Add(there + back), milli: local.Add(there + ahead).UnixMilli()}
			local = s.answered
			best = better(best, s)
			for _, after := range []time.Duration{0, time.Second} {
				at, server := best.at(local.Add(after)), local.Add(after+ahead).UnixMilli()
				if at > server {
					rt.Fatalf("estimate %d is ahead of the server's %d", at, server)
				}
				if server-at > back.Milliseconds()+2 {
					rt.Fatalf("estimate %d is more than the way back of %v behind %d", at, back, server)
				}
			}
		}
	})
}

func TestClockKeepsTheBetterReading(t *testing.T) {
	t.Parallel()
	at := time.Now()
	read := func(after, trip time.Duration, milli int64) sample {
		return sample{asked: at.Add(after), answered: at.Add(after + trip), milli: milli}
	}
	first := read(0, time.Millisecond, 10_000)
	cases := map[string]struct {
		next sample
		new  bool
	}{
		"a slow answer does not throw it back":  {read(time.Second, 50*time.Millisecond, 11_001), false},
		"a quick answer betters it":             {read(time.Second, time.Millisecond, 11_001), true},
		"a clock set back is believed":          {read(time.Second, time.Millisecond, 5_000), true},
		"a clock set forward is believed":       {read(time.Second, time.Millisecond, 50_000), true},
		"after a minute any reading is better":  {read(61*time.Second, 50*time.Millisecond, 71_001), true},
		"a step back hidden in the round trip":  {read(time.Second, 50*time.Millisecond, 10_999), false},
		"a step back beyond what it could hide": {read(time.Second, 50*time.Millisecond, 10_940), true},
	}
	for name, c := range cases {
		want := first
		if c.new {
			want = c.next
		}
		if got := better(first, c.next); got != want {
			t.Errorf("%s: kept %+v", name, got)
		}
	}
}

func TestNowFollowsTheServer(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	if now := b.Now(0); now != 0 {
		t.Errorf("before the first measurement: %d", now)
	}
	offset, err := b.Measure(t.Context(), 0)
	if err != nil || offset.RoundTrip <= 0 || offset.Ahead.Abs() > offset.RoundTrip+5*time.Millisecond {
		t.Errorf("%+v, %v", offset, err) // the test's server is on this machine
	}
	estimate := b.Now(0)
	if server := b.clock(); estimate > server || server-estimate > 1000 {
		t.Errorf("estimate %d, server %d", estimate, server)
	}
}
