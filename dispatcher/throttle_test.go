package dispatcher

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// A limit of one tenant costs the others nothing: to a part of the tasks the target says later at any rate.
func TestALimitOfOneTenantSlowsNoOther(t *testing.T) { eachWay(t, testALimitOfOneTenantSlowsNoOther) }

func testALimitOfOneTenantSlowsNoOther(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		one        tocsin.JobID // task in so many
		rest, took time.Duration
	}{
		{100, time.Second, 3 * time.Millisecond},
		{100, 30 * time.Second, 3 * time.Millisecond},
		{100, 30 * time.Second, 200 * time.Millisecond},
		{20, 30 * time.Second, 3 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("1 in %d, %s, %s a call", c.one, c.rest, c.took), func(t *testing.T) {
			t.Parallel()
			g := &limited{limit: func(time.Time) bool { return true }, rest: c.rest, took: c.took, jitter: rand.New(rand.NewPCG(1, 2)),
				poison: func(i tocsin.Info) bool { return (i.JobID>>22)%c.one == 1 }}
			inBubbleWith(t, byDefault(), g, inReach(g, 1), func(r *rig) {
				all := 0
				for range 5 * 60 {
					for _, id := range r.dueNow(100) {
						if !g.poison(tocsin.Info{JobID: id}) {
							all++
						}
					}
					pass(time.Second)
				}
				if n := g.seen(); n < all*9/10 {
					t.Errorf("%d of %d tasks of the others were delivered", n, all)
				}
			})
		})
	}
}

// A slow target answers to each rate before the next one is tried.
func TestASlowTargetThatSaysLater(t *testing.T) { eachWay(t, testASlowTargetThatSaysLater) }

func testASlowTargetThatSaysLater(t *testing.T) {
	for name, limit := range map[string]func(float64) func(time.Time) bool{"evenly": evenly, "in bursts": inBursts} {
		t.Run(name, func(t *testing.T) {
			g := &limited{limit: limit(5), rest: time.Second, took: 5 * time.Second}
			inBubbleWith(t, byDefault(), g, inReach(g, 1), func(r *rig) {
				r.dueNow(1000)
				pass(2 * time.Minute)
				if n := g.seen(); n < 300 {
					t.Errorf("%d of 600 were taken", n)
				}
			})
		})
	}
}

// What a former target says shows nothing of the new one.
func TestALateAnswerOfAFormerTargetSlowsNoOther(t *testing.T) {
	eachWay(t, testALateAnswerOfAFormerTargetSlowsNoOther)
}

func testALateAnswerOfAFormerTargetSlowsNoOther(t *testing.T) {
	p := byDefault()
	p.Webhook = &tocsin.Webhook{URL: "https://old.example"}
	g := &limited{limit: func(time.Time) bool { return true }, rest: 30 * time.Second, took: 5 * time.Second}
	inBubbleWith(t, p, g, inReach(g, 1), func(r *rig) {
		began := time.Now()
		g.down = func() bool { return time.Since(began) < 6*time.Second }
		ids := r.dueNow(200)
		pass(time.Second)
		p.Webhook = &tocsin.Webhook{URL: "https://new.example"}
		r.SetPolicies([]biztype.Policy{p})
		pass(5 * time.Second)
		if l := r.laneReport(p.Name); l.State != Open || l.Rate != 0 || l.Running == 0 {
			t.Errorf("%+v", l)
		}
		pass(2 * time.Minute)
		r.done(ids)
	})
}

// Only what the target is through with shows that it takes more.
func TestWhatATargetTakes(t *testing.T) {
	for name, c := range map[string]struct {
		errs  []error
		taken int
		later bool
		part  bool
	}{
		"done":                  {[]error{nil}, 1, false, false},
		"buried":                {[]error{tocsin.Bury(errors.New("no"))}, 1, false, false},
		"put off":               {[]error{tocsin.Snooze(time.Hour)}, 1, false, false},
		"failed":                {[]error{errors.New("callback answered 500")}, 0, false, false},
		"not reached":           {[]error{absent{}}, 0, false, false},
		"later":                 {[]error{tired(time.Second)}, 0, true, false},
		"the first ones":        {[]error{nil, nil, tired(time.Second)}, 2, false, true},
		"fewer, but the first":  {[]error{nil, tired(time.Second), tired(time.Second)}, 1, false, true},
		"all but one of them":   {[]error{nil, tired(time.Second), nil}, 2, false, false},
		"a few here and there":  {[]error{tired(time.Second), tired(time.Second), nil}, 1, true, false},
		"later, and some fail":  {[]error{tired(time.Second), errors.New("no")}, 0, true, false},
		"no worker has time":    {[]error{ErrUntaken}, 0, false, false},
		"a worker has the task": {[]error{ErrLeased}, 0, false, false},
	} {
		var replies []reply
		for _, err := range c.errs {
			replies = append(replies, replyOf(err))
		}
		if f := find(replies); f.taken != c.taken || f.rest > 0 != c.later || f.part != c.part {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
