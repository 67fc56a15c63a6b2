package store

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
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
		var known bounds
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
			known = known.take(s)
			for _, after := range []time.Duration{0, time.Second} {
				pass(after, ppm)
				at, is := known.at(local), server.UnixMicro()
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

// TestAClockTellsThatThisProcessStoodStill: its monotonic clock with it, as a virtual machine does that is paused.
func TestAClockTellsThatThisProcessStoodStill(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		way := func(name string) time.Duration { return time.Duration(rapid.Int64Range(0, 3e9).Draw(rt, name)) }
		local, server := time.Now(), time.Now()
		read := func(there, back time.Duration) sample {
			s := sample{asked: local, answered: local.Add(there + back), micro: server.Add(there).UnixMicro()}
			local, server = s.answered, server.Add(there+back)
			return s
		}
		var c clock
		if c.take(read(way("there"), way("back"))) {
			rt.Fatal("the first reading tells it")
		}
		passed, slew := way("passed"), rapid.Int64Range(-500, 500).Draw(rt, "ppm")
		local, server = local.Add(passed), server.Add(passed+passed*time.Duration(slew)/1e6)
		there := way("there again")
		if c.take(read(there, way("back again"))) {
			rt.Fatal("it is told of a process that ran all the time")
		}
		still := time.Duration(rapid.Int64Range(8e9, 1e12).Draw(rt, "still")) // more than all the round trips can hide
		server = server.Add(still)
		if !c.take(read(way("there at last"), way("back at last"))) {
			rt.Fatalf("a pause of %s is not told", still)
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
		if got := (bounds{first, first}).take(second); got != (bounds{second, second}) {
			rt.Fatalf("a step back by %v was not seen by a reading of %v", step, again+andBack)
		}
	})
}

// A step back that the readings are too slow to show raises the estimate for a moment
// only: until recent is over and a reading was asked for after the step.
func TestAHiddenStepBackIsSoonOver(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		local := time.Now()
		server := local
		pass := func(name string, most time.Duration) {
			d := time.Duration(rapid.Int64Range(0, int64(most)).Draw(rt, name))
			local, server = local.Add(d), server.Add(d)
		}
		stepped := local.Add(-time.Hour)
		step := func() {
			back := time.Duration(rapid.Int64Range(0, 2e7).Draw(rt, "step back"))
			server, stepped = server.Add(-back), local
		}
		var known bounds
		for range rapid.IntRange(1, 40).Draw(rt, "readings") {
			s := sample{asked: local}
			pass("there", 20*time.Millisecond)
			s.micro = server.UnixMicro()
			if rapid.IntRange(0, 4).Draw(rt, "steps on the way") == 0 {
				step()
			}
			pass("back", 20*time.Millisecond)
			s.answered = local
			known = known.take(s)
			pass("pause", 60*time.Millisecond)
			at, is := known.at(local), server.UnixMicro()
			if at > is && s.asked.After(stepped) && local.Sub(stepped) > 50*time.Millisecond {
				rt.Fatalf("%v after a step back the estimate is %d µs ahead", local.Sub(stepped), at-is)
			}
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
		"a slow answer does not throw it back":  {read(9*time.Millisecond, 30*time.Millisecond, 10_011), false},
		"but once it is old":                    {read(40*time.Millisecond, 30*time.Millisecond, 10_041), true},
		"a quick answer betters it":             {read(9*time.Millisecond, time.Millisecond, 10_011), true},
		"a clock set back is believed":          {read(9*time.Millisecond, time.Millisecond, 5_000), true},
		"a clock set forward is believed":       {read(9*time.Millisecond, time.Millisecond, 50_000), true},
		"a step back hidden in the round trip":  {read(9*time.Millisecond, 30*time.Millisecond, 10_009), false},
		"a step back beyond what it could hide": {read(9*time.Millisecond, 30*time.Millisecond, 10_007), true},
	}
	for name, c := range cases {
		want := first
		if c.new {
			want = c.next
		}
		got := bounds{first, first}.take(c.next)
		if at := c.next.answered.Add(time.Millisecond); got.best != want || got.last != c.next || got.at(at) != want.at(at) {
			t.Errorf("%s: kept %+v", name, got)
		}
	}
}

// A clock that was set back is not lifted again by a reading of the time before, whose
// answer came, or was taken, later.
func TestAnAnswerUnderWayDoesNotUndoAStepBack(t *testing.T) {
	t.Parallel()
	at := func(milli int) time.Time { return epoch.Add(time.Duration(milli) * time.Millisecond) }
	after := sample{asked: at(5), answered: at(6), micro: 5_500}
	cases := map[string]struct {
		next sample
		new  bool
	}{
		"it was slow":                          {sample{asked: at(0), answered: at(9), micro: 60_000_000}, false},
		"it was taken late":                    {sample{asked: at(0), answered: at(1), micro: 60_000_000}, false},
		"one under way that fits betters it":   {sample{asked: at(5), answered: at(7), micro: 6_900}, true},
		"a clock set forward is believed then": {sample{asked: at(6), answered: at(7), micro: 60_000_000}, true},
		"and one set back twice":               {sample{asked: at(5), answered: at(7), micro: 1_000}, true},
	}
	for name, c := range cases {
		want := after
		if c.new {
			want = c.next
		}
		if got := (bounds{after, after}).take(c.next); got != (bounds{want, want}) {
			t.Errorf("%s: kept %+v", name, got)
		}
	}
}

var epoch = time.Now()

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

// A set back clock is noticed if the reading can't hide it, so a reading is no longer
// under way than its statement.
func TestWaitingForAConnectionIsNoPartOfAReading(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	sv := b.servers[0]
	sv.DB.SetMaxOpenConns(1)
	if _, err := b.Load(t.Context(), 0, []tocsin.JobID{id(0, 1)}); err != nil { // so that the connection is admitted
		t.Fatal(err)
	}
	only, err := sv.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sv.clock.known = bounds{}
	loaded := make(chan error)
	go func() {
		_, err := b.Load(t.Context(), 0, []tocsin.JobID{id(0, 1)})
		loaded <- err
	}()
	for sv.DB.Stats().WaitCount == 0 {
		time.Sleep(time.Millisecond)
	}
	freed := time.Now()
	if err := only.Close(); err != nil {
		t.Error(err)
	}
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	if asked := sv.clock.known.last.asked; asked.Before(freed) {
		t.Errorf("asked %v before there was a connection", freed.Sub(asked))
	}
}
