package store

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The estimate never passes the server's clock, for any round trips and any slew of
// the server's clock, and a fast reading brings it close.
func TestClockIsALowerBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		local := time.Now()
		server := local.Add(time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(rt, "ahead")))
		pass := func(d time.Duration, ppm int64) { // the server's clock is faster than ours by ppm
			local, server = local.Add(d), server.Add(d+d*time.Duration(ppm)/1e6)
		}
		var best sample
		for range rapid.IntRange(1, 20).Draw(rt, "measurements") {
			ppm := rapid.Int64Range(-500, 500).Draw(rt, "slew")
			pass(time.Duration(rapid.Int64Range(0, 2e9).Draw(rt, "pause")), ppm)
			there := time.Duration(rapid.Int64Range(0, 3e8).Draw(rt, "there"))
			back := time.Duration(rapid.Int64Range(0, 3e8).Draw(rt, "back"))
			s := sample{asked: local}
			pass(there, ppm)
			s.micro = server.UnixMicro()
			pass(back, ppm)
			s.answered = local
			best = better(best, s)
			for _, after := range []time.Duration{0, time.Second} {
				pass(after, ppm)
				at, is := best.at(local), server.UnixMicro()
				if at > is {
					rt.Fatalf("estimate %d is ahead of the server's %d", at, is)
				}
				if lag := time.Duration(is-at) * time.Microsecond; lag > back+back/500+2*time.Millisecond {
					rt.Fatalf("estimate %d is %v behind %d, more than the way back of %v and what clocks part in a second", at, lag, is, back)
				}
			}
		}
	})
}

// A step back of the server's clock by more than two round trips is believed at the
// next reading.
func TestClockBelievesAStepBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		local, server := time.Now(), time.Now()
		read := func(there, back time.Duration) sample {
			return sample{asked: local, answered: local.Add(there + back), micro: server.Add(there).UnixMicro()}
		}
		way := func(name string) time.Duration {
			return time.Duration(rapid.Int64Range(0, 5e6).Draw(rt, name))
		}
		there, back, again, andBack := way("there"), way("back"), way("again"), way("and back")
		first := read(there, back)
		loosened := time.Second / drift // a step back by no more than this stays hidden
		step := back + again + andBack + loosened + 10*time.Microsecond + time.Duration(rapid.Int64Range(0, 120e9).Draw(rt, "beyond"))
		local, server = local.Add(time.Second), server.Add(time.Second-step)
		second := read(again, andBack)
		if got := better(first, second); got != second {
			rt.Fatalf("a step back by %v was not seen by a reading of %v", step, again+andBack)
		}
	})
}

func TestClockKeepsTheBetterReading(t *testing.T) {
	t.Parallel()
	at := time.Now()
	read := func(after, trip time.Duration, milli int64) sample {
		return sample{asked: at.Add(after), answered: at.Add(after + trip), micro: milli * 1000}
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
		"after a minute of drift a slow one is": {read(61*time.Second, 50*time.Millisecond, 71_000), true},
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
