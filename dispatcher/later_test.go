package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// limited is a target that takes a number of calls or tasks a second, and says later to the others.
type limited struct {
	limit  func(time.Time) bool
	rest   time.Duration // that it asks for
	took   time.Duration // of a call
	jitter *rand.Rand    // a call takes up to twice as long; nil: it does not
	item   bool          // it counts tasks, not calls
	down   func() bool   // it says later to all; nil: never
	poison func(tocsin.Info) bool

	mu    sync.Mutex
	calls int
	sent  int // tasks
	taken int
	last  time.Time // that it took one
}

func (l *limited) Deliver(_ context.Context, tasks []tocsin.Info) []error {
	l.mu.Lock()
	took := l.took
	if l.jitter != nil {
		took = time.Duration(l.jitter.Float64() * 2 * float64(took))
	}
	l.mu.Unlock()
	time.Sleep(took)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	l.sent += len(tasks)
	now, errs := time.Now(), make([]error, len(tasks))
	ok := l.takes(now)
	for i, task := range tasks {
		if i > 0 && l.item {
			ok = l.takes(now)
		}
		if !ok || l.poison != nil && l.poison(task) {
			errs[i] = tocsin.RetryIn(l.rest, tired(l.rest))
			continue
		}
		l.taken++
		l.last = now
	}
	return errs
}

// asked is how many calls it has had.
func (l *limited) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

func (l *limited) takes(now time.Time) bool { return (l.down == nil || !l.down()) && l.limit(now) }

// evenly allows one call in each part of a second, as a token bucket of one does.
func evenly(each float64) func(time.Time) bool {
	l := rate.NewLimiter(rate.Limit(each), 1)
	return func(now time.Time) bool { return l.AllowN(now, 1) }
}

// aTenth allows a bucket of a tenth of a second.
func aTenth(each float64) func(time.Time) bool {
	l := rate.NewLimiter(rate.Limit(each), max(int(each/10), 1))
	return func(now time.Time) bool { return l.AllowN(now, 1) }
}

// inBursts allows a bucket of a second at once.
func inBursts(each float64) func(time.Time) bool {
	l := rate.NewLimiter(rate.Limit(each), max(int(each), 1))
	return func(now time.Time) bool { return l.AllowN(now, 1) }
}

// bySecond counts anew each second.
func bySecond(each float64) func(time.Time) bool {
	var second int64
	var n float64
	return func(now time.Time) bool {
		if now.Unix() != second {
			second, n = now.Unix(), 0
		}
		n++
		return n <= each
	}
}

// enough checks that no task has died or used an attempt, and how many calls and tasks it took.
func (l *limited) enough(r *rig, ids []tocsin.JobID, calls, sent int) {
	r.t.Helper()
	r.done(ids)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls > calls || l.sent > sent {
		r.t.Errorf("%d calls with %d tasks, want at most %d and %d", l.calls, l.sent, calls, sent)
	}
}

// wait waits until the target has taken n tasks.
func (l *limited) wait(most time.Duration, taken int) {
	for began := time.Now(); time.Since(began) < most && l.seen() < taken; {
		pass(time.Second)
	}
	pass(time.Second)
}

func (l *limited) seen() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// inReach has what is due again queued, as there is no scanner.
func inReach(sink Sink, size int) func(*Config) {
	return func(c *Config) {
		inBatches(sink, size)(c)
		c.LookAhead = 100 * time.Hour
	}
}

// byDefault is a policy with the default back-off, attempts and slots.
func byDefault() biztype.Policy {
	p := policy("order.close", 1)
	p.Timeout, p.Ladder = biztype.Duration(30*time.Second), nil
	return p
}

// A thousand tasks are due at once, and no one dies or uses an attempt. The time that they take is virtual.
func TestATargetThatSaysLaterGetsWhatItTakes(t *testing.T) {
	eachWay(t, testATargetThatSaysLaterGetsWhatItTakes)
}

func testATargetThatSaysLaterGetsWhatItTakes(t *testing.T) {
	for name, limit := range map[string]func(float64) func(time.Time) bool{"evenly": evenly, "a tenth": aTenth, "in bursts": inBursts, "by the second": bySecond} {
		for _, each := range []float64{1, 10, 100} {
			for _, slots := range []int{1, 64} {
				for _, size := range []int{1, 100} {
					t.Run(fmt.Sprintf("%g a second %s, %d slots, %d in a call", each, name, slots, size), func(t *testing.T) {
						p := byDefault()
						p.Concurrency = slots
						g := &limited{rest: time.Second, took: 3 * time.Millisecond, jitter: rand.New(rand.NewPCG(1, 2))}
						inBubbleWith(t, p, g, inReach(g, size), func(r *rig) {
							g.limit = limit(each)
							ids, began := r.dueNow(1000), time.Now()
							g.wait(time.Hour, len(ids))
							g.enough(r, ids, 2*len(ids)/min(size, 10), 4*len(ids))
							t.Logf("%d calls, %d tasks sent, the last one after %s", g.calls, g.sent, g.last.Sub(began).Round(time.Millisecond))
							if most := time.Duration(3 * 1000 / each * float64(time.Second)); g.last.Sub(began) > most {
								t.Errorf("the last one was taken after %s, want at most %s", g.last.Sub(began), most)
							}
						})
					})
				}
			}
		}
	}
}

func TestTwoNodesShareWhatATargetTakes(t *testing.T) { eachWay(t, testTwoNodesShareWhatATargetTakes) }

func testTwoNodesShareWhatATargetTakes(t *testing.T) {
	for _, each := range []float64{1, 10, 100} {
		t.Run(fmt.Sprint(each), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &limited{limit: evenly(each), rest: time.Second, took: 3 * time.Millisecond}
				var rigs [2]*rig
				var ids [2][]tocsin.JobID
				for i := range rigs {
					r := newRig(t, nil, inReach(g, 1))
					r.SetPolicies([]biztype.Policy{byDefault()})
					r.run()
					rigs[i], ids[i] = r, r.dueNow(500)
				}
				g.wait(time.Hour, 1000)
				for i, r := range rigs {
					g.enough(r, ids[i], 2000, 2000)
					r.finish()
				}
			})
		})
	}
}

// A target that takes a part of each call gets as many tasks in a call as it takes.
func TestATargetThatTakesAPartOfACall(t *testing.T) { eachWay(t, testATargetThatTakesAPartOfACall) }

func testATargetThatTakesAPartOfACall(t *testing.T) {
	for each, most := range map[float64]int{1: 4500, 10: 4000, 100: 3500} {
		t.Run(fmt.Sprint(each), func(t *testing.T) {
			g := &limited{rest: time.Second, took: 3 * time.Millisecond, item: true}
			inBubbleWith(t, byDefault(), g, inReach(g, 100), func(r *rig) {
				g.limit = inBursts(each)
				ids := r.dueNow(1000)
				g.wait(time.Hour, len(ids))
				g.enough(r, ids, 2000, most)
			})
		})
	}
}

func TestATargetThatSaidLaterToAllIsSoonAtFullSpeed(t *testing.T) {
	eachWay(t, testATargetThatSaidLaterToAllIsSoonAtFullSpeed)
}

func testATargetThatSaidLaterToAllIsSoonAtFullSpeed(t *testing.T) {
	for _, rest := range []time.Duration{time.Second, 30 * time.Second} {
		t.Run(rest.String(), func(t *testing.T) {
			g := &limited{limit: func(time.Time) bool { return true }, rest: rest, took: 3 * time.Millisecond}
			inBubbleWith(t, byDefault(), g, inReach(g, 1), func(r *rig) {
				began := time.Now()
				g.mu.Lock()
				g.down = func() bool { return time.Since(began) < 2*time.Minute }
				g.mu.Unlock()
				ids := r.dueNow(5000)
				pass(2*time.Minute - time.Millisecond)
				if n := g.asked(); n > 120 {
					t.Errorf("%d calls while it was down", n)
				}
				pass(30 * time.Second) // a rest, and the rate doubles and doubles
				before := g.seen()
				more := r.dueNow(10000)
				g.wait(time.Hour, len(ids)+len(more))
				g.enough(r, append(ids, more...), 15500, 15500)
				if l := r.laneReport("order.close"); l.State != Open || l.Rate != 0 {
					t.Errorf("%d were taken after half a minute, and in the end: %+v", before, l)
				}
			})
		})
	}
}

func TestAnotherTargetIsNotThrottled(t *testing.T) { eachWay(t, testAnotherTargetIsNotThrottled) }

func testAnotherTargetIsNotThrottled(t *testing.T) {
	g := &limited{limit: evenly(1), rest: 30 * time.Second, took: 3 * time.Millisecond}
	p := byDefault()
	p.Webhook = &tocsin.Webhook{URL: "https://old.example"}
	inBubbleWith(t, p, g, inReach(g, 1), func(r *rig) {
		ids := r.dueNow(1000)
		pass(2 * time.Minute)
		g.mu.Lock()
		g.limit = func(time.Time) bool { return true }
		g.mu.Unlock()
		p.Webhook = &tocsin.Webhook{URL: "https://new.example"}
		r.SetPolicies([]biztype.Policy{p})
		pass(2 * time.Second)
		more := r.dueNow(1000)
		pass(3 * time.Second)
		if l := r.laneReport("order.close"); l.State != Open || l.Queued > len(ids) || l.Rate != 0 {
			t.Errorf("%+v", l)
		}
		pass(time.Hour)
		r.done(append(ids, more...))
	})
}

func TestATaskThatIsAlwaysToldLaterEndsAndHoldsUpNoOther(t *testing.T) {
	eachWay(t, testATaskThatIsAlwaysToldLaterEndsAndHoldsUpNoOther)
}

func testATaskThatIsAlwaysToldLaterEndsAndHoldsUpNoOther(t *testing.T) {
	g := &limited{limit: func(time.Time) bool { return true }, rest: time.Second, took: 3 * time.Millisecond, poison: func(i tocsin.Info) bool { return i.BizID == 1<<40 }}
	inBubbleWith(t, byDefault(), g, inReach(g, 1), func(r *rig) {
		poison := r.insert(0, 1, 0)
		r.store.change(poison, func(row *store.Row) { row.BizID = 1 << 40 })
		r.offer(poison)
		for i := range 100 {
			ids := r.dueNow(100)
			pass(4 * time.Second) // the first "later" rests for a second, and the rate has to grow once
			g.enough(r, ids, 1<<20, 1<<20)
			if n := g.seen(); n != 100*(i+1) {
				t.Fatalf("%d tasks of %d were delivered within 4 s", n, 100*(i+1))
			}
			pass(26 * time.Second)
		}
		if row := r.store.row(poison); row.Status != tocsin.Pending || row.Attempts != 0 || !strings.HasPrefix(row.LastError, "told later ") {
			t.Errorf("%s after %d attempts: %s", row.Status, row.Attempts, row.LastError)
		}
		calls := g.asked()
		pass(laterFor)
		if row := r.store.row(poison); row.Attempts == 0 {
			t.Errorf("no attempt after a day: %s", row.LastError)
		}
		pass(8 * time.Hour)
		if row := r.store.row(poison); row.Status != tocsin.Dead || row.Attempts != 16 || row.LastError != "callback answered 503" {
			t.Errorf("%s after %d attempts: %s", row.Status, row.Attempts, row.LastError)
		}
		if n := g.asked() - calls; n > 3000 {
			t.Errorf("%d calls for one task in a day", n)
		}
	})
}

// The time since which a task was told so outlives the process, and is that of its present due time.
func TestToldLaterIsReadFromTheRow(t *testing.T) {
	p := biztype.Policy{Attempts: 3}.WithDefaults()
	due := time.Date(2026, 11, 22, 8, 0, 0, 123e6, time.UTC)
	half := func() float64 { return .5 }
	for name, c := range map[string]struct {
		last   string
		past   time.Duration // since due
		asked  time.Duration
		tries  int
		verb   tocsin.Verb
		reason string
		wait   time.Duration
	}{
		"the first time":              {"", 0, 0, 0, tocsin.Snoozed, "told later 1x since 2026-11-22T08:00:01Z: no", 3750 * time.Millisecond},
		"it asks for more":            {"", 0, time.Hour, 0, tocsin.Snoozed, "told later 1x since 2026-11-22T08:00:01Z: no", time.Hour},
		"the third time":              {"told later 2x since 2026-11-22T08:00:01Z: busy", time.Hour, 0, 0, tocsin.Snoozed, "told later 3x since 2026-11-22T08:00:01Z: no", 15 * time.Second},
		"the hundredth time":          {"told later 99x since 2026-11-22T08:00:01Z: busy", time.Hour, 0, 0, tocsin.Snoozed, "told later 100x since 2026-11-22T08:00:01Z: no", mostLater},
		"after a failure":             {"callback answered 500", time.Hour, 0, 1, tocsin.Snoozed, "told later 1x since 2026-11-22T09:00:01Z: no", 7500 * time.Millisecond},
		"before it was rescheduled":   {"told later 9x since 2026-11-22T07:59:59Z: busy", 0, 0, 0, tocsin.Snoozed, "told later 1x since 2026-11-22T08:00:01Z: no", 3750 * time.Millisecond},
		"for a day":                   {"told later 99x since 2026-11-22T08:00:01Z: busy", laterFor + time.Second, 0, 0, tocsin.Retried, "told later 100x since 2026-11-22T08:00:01Z: no", mostLater},
		"for a day, the last attempt": {"told later 99x since 2026-11-22T08:00:01Z: busy", laterFor + time.Second, 0, 2, tocsin.Buried, "no", 0},
		"words of a handler":          {"told later 2x since yesterday: busy", 0, 0, 0, tocsin.Snoozed, "told later 1x since 2026-11-22T08:00:01Z: no", 3750 * time.Millisecond},
	} {
		row := store.Row{Info: tocsin.Info{DueTime: due, LastError: c.last, Attempts: c.tries}}
		now := due.Add(c.past).UnixMilli()
		end := endingOf(p, &row, reply{verb: tocsin.Retried, in: c.asked, rest: time.Second, reason: "no"}, now, half)
		wait := time.Duration(end.next-now) * time.Millisecond
		if c.verb == tocsin.Buried {
			wait = 0
		}
		if end.verb != c.verb || end.reason != c.reason || wait != c.wait {
			t.Errorf("%s: %s in %s, %q", name, end.verb, wait, end.reason)
		}
	}
}

// What a target says of the time makes the next attempt later than the policy has it, never sooner: all calls by which it may say so.
func TestNoWordOfATargetIsSoonerThanThePolicy(t *testing.T) {
	p := biztype.Policy{}.WithDefaults()
	first := 2500 * time.Millisecond // half of the back-off's base
	no := errors.New("no")
	for name, c := range map[string]struct {
		err  error
		verb tocsin.Verb
		want time.Duration
	}{
		"an error":               {no, tocsin.Retried, first},
		"RetryIn(0)":             {tocsin.RetryIn(0, no), tocsin.Retried, first},
		"RetryIn below 0":        {tocsin.RetryIn(-time.Hour, no), tocsin.Retried, first},
		"RetryIn(1ms)":           {tocsin.RetryIn(time.Millisecond, no), tocsin.Retried, first},
		"RetryIn(1h)":            {tocsin.RetryIn(time.Hour, no), tocsin.Retried, time.Hour},
		"RetryIn beyond all":     {tocsin.RetryIn(math.MaxInt64, no), tocsin.Retried, maxPutOff},
		"Snooze(0)":              {tocsin.Snooze(0), tocsin.Snoozed, leastSnooze},
		"Snooze below 0":         {tocsin.Snooze(-time.Hour), tocsin.Snoozed, leastSnooze},
		"Snooze(1h)":             {tocsin.Snooze(time.Hour), tocsin.Snoozed, time.Hour},
		"RestFor of 0":           {tired(0), tocsin.Retried, first},
		"RestFor below 0":        {tired(-time.Hour), tocsin.Retried, first},
		"RestFor(1ms)":           {tired(time.Millisecond), tocsin.Snoozed, first},
		"RestFor, and RetryIn 0": {tocsin.RetryIn(0, tired(time.Second)), tocsin.Snoozed, first},
		"RestFor, and RetryIn":   {tocsin.RetryIn(time.Hour, tired(time.Second)), tocsin.Snoozed, time.Hour},
	} {
		for _, end := range []store.Outcome{
			EndingOf(p, &store.Row{}, c.err, 1000), // also of the workers of a pull type
			EndingOf(p, &store.Row{Info: tocsin.Info{Attempts: 14}}, c.err, 1000),
		} {
			wait := time.Duration(end.Next-1000) * time.Millisecond
			least := c.want
			if end.Attempts > 0 && end.Verb == tocsin.Retried {
				least = max(least, 30*time.Minute) // half of the longest
			}
			if end.Verb != c.verb || wait < least || c.want > time.Minute && wait != max(c.want, least) && end.Attempts == 0 {
				t.Errorf("%s after %d attempts: %s in %s", name, end.Attempts, end.Verb, wait)
			}
		}
	}
}
