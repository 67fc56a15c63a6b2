package node

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/sink"
)

// link is a target that may be away, hang or panic, and counts what it got.
type link struct {
	away, hangs, panics bool
	refuses             bool // the first task of each delivery, without asking the target
	takes               time.Duration

	mu   sync.Mutex
	got  int
	left time.Duration // of the last delivery, when it came here
}

func (l *link) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
	deadline, _ := ctx.Deadline()
	l.mu.Lock()
	l.left = time.Until(deadline)
	l.mu.Unlock()
	switch {
	case l.hangs:
		<-ctx.Done()
		return sink.All(len(tasks), sink.Unavailable(ctx.Err()))
	case l.panics:
		panic("a fault of the sink")
	case l.away:
		errs := sink.All(len(tasks), sink.Unavailable(errors.New("connection refused")))
		if l.refuses {
			errs[0] = sink.Unfit(errors.New("no header"))
		}
		return errs
	}
	select {
	case <-time.After(l.takes):
	case <-ctx.Done():
		return sink.All(len(tasks), ctx.Err())
	}
	l.mu.Lock()
	l.got += len(tasks)
	l.mu.Unlock()
	return make([]error, len(tasks))
}

// pair delivers by a broker, and by a second link.
func pair(first, second dispatcher.Sink, after time.Duration) *links {
	return &links{
		first: first, second: second, after: after, halves: true, log: slog.New(slog.DiscardHandler),
		taken: newLinkMetrics(nil).taken.WithLabelValues("x"),
	}
}

// deliver makes one delivery of two tasks with a time-out of 10 s, and reports whether it was made.
func deliver(l *links) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return l.Deliver(ctx, make([]tocsin.Info, 2))[0] == nil
}

func TestTheSecondLinkDeliversOnlyWhileTheFirstIsAwayForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, second link
		l := pair(&first, &second, 30*time.Second)
		if !deliver(l) || first.got != 2 || second.got != 0 {
			t.Fatalf("both are up: %d and %d tasks", first.got, second.got)
		}
		first.away = true
		for range 30 {
			if deliver(l) {
				t.Fatal("the second link delivered before the first one was away for 30 s")
			}
			time.Sleep(time.Second)
		}
		if !deliver(l) || second.got != 2 {
			t.Fatalf("away for 30 s: the second link got %d tasks", second.got)
		}
		first.away, first.hangs = false, true
		time.Sleep(2 * time.Second)
		began := time.Now()
		if !deliver(l) || second.got != 4 || time.Since(began) != 5*time.Second {
			t.Fatalf("a try of a first link that hangs took %s of 10 s; %d tasks went by the second one", time.Since(began), second.got)
		}
		began = time.Now()
		if !deliver(l) || second.got != 6 || time.Since(began) != 0 {
			t.Fatalf("beside a try, %d tasks after %s", second.got, time.Since(began))
		}
		first.hangs = false
		time.Sleep(longestTry)
		if !deliver(l) || first.got != 4 || second.got != 6 {
			t.Fatalf("the first link is back, and got %d tasks, the second one %d", first.got, second.got)
		}
		first.away = true
		if deliver(l) {
			t.Fatal("the second link delivered at once when the first one went away again")
		}
	})
}

func TestTasksWaitWhileBothLinksAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := link{away: true}, link{away: true}
		l := pair(&first, &second, time.Second)
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := l.Deliver(ctx, make([]tocsin.Info, 1))[0]; !sink.IsUnavailable(err) {
				t.Fatalf("got %v, want Unavailable", err)
			}
			cancel()
			time.Sleep(500 * time.Millisecond)
		}
		second.away = false
		if !deliver(l) || second.got != 2 {
			t.Fatalf("the second link is back, and got %d tasks", second.got)
		}
	})
}

func TestATaskThatIsRefusedUnsentDoesNotMakeTheFirstLinkAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := link{away: true, refuses: true}, link{}
		l := pair(&first, &second, 30*time.Second)
		for range 40 {
			l.Deliver(t.Context(), make([]tocsin.Info, 2))
			l.Deliver(t.Context(), make([]tocsin.Info, 1)) // of such a task alone
			time.Sleep(time.Second)
		}
		if second.got == 0 {
			t.Error("the second link got nothing")
		}
	})
}

func TestTheSecondLinkHasHalfOfTheTimeIfABrokerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := link{hangs: true}, link{}
		if !deliver(pair(&first, &second, 0)) || second.left != 5*time.Second {
			t.Errorf("of 10 s, the second link had %s", second.left)
		}
	})
}

func TestAWebhookThatIsBackAndSlowHasAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := link{away: true}, link{}
		l := pair(&first, &second, 0)
		l.halves = false
		deliver(l)
		first.away, first.takes = false, 6*time.Second
		time.Sleep(2 * firstTry)
		if !deliver(l) || first.got != 2 {
			t.Errorf("the first link got %d tasks", first.got)
		}
	})
}

func TestADeliveryThatIsCalledOffShowsNothingOfTheFirstLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := link{hangs: true}, link{}
		l := pair(&first, &second, 30*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		l.Deliver(ctx, make([]tocsin.Info, 2))
		time.Sleep(time.Hour)
		if deliver(l) || second.got != 0 {
			t.Errorf("at the first miss, the second link got %d tasks", second.got)
		}
	})
}

// while makes a delivery that ends during others.
func while(t *testing.T, l *links) {
	var ends sync.WaitGroup
	ends.Go(func() { deliver(l) })
	t.Cleanup(ends.Wait)
	synctest.Wait()
}

func TestDeliveriesUnderWayNeitherPutOffATryNorLetASecondOneBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := link{hangs: true}, link{}
		l := pair(&first, &second, 0)
		for range 6 {
			while(t, l)
		}
		time.Sleep(1500 * time.Millisecond)
		while(t, l)
		time.Sleep(4500 * time.Millisecond) // the six ended a second ago
		first.left = 0
		if while(t, l); first.left != 5*time.Second {
			t.Error("a second later, no delivery tries the first link")
		}
		time.Sleep(time.Second) // the seventh has ended
		began := time.Now()
		if !deliver(l) || time.Since(began) != 0 {
			t.Errorf("beside the try, a delivery took %s", time.Since(began))
		}
	})
}

func TestAFirstLinkThatPanicsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := link{away: true}, link{}
		l := pair(&first, &second, 0)
		if !deliver(l) || second.got != 2 {
			t.Fatalf("with no time to wait, the second link got %d tasks", second.got)
		}
		first.panics = true
		time.Sleep(2 * firstTry)
		func() {
			defer func() { _ = recover() }()
			deliver(l)
		}()
		first.panics, first.away = false, false
		if !deliver(l) || first.got != 2 {
			t.Errorf("the first link got %d tasks", first.got)
		}
	})
}

func TestAPairWithTheSameFirstLinkGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := link{away: true}, link{}
		before := pair(&first, &second, 0)
		deliver(before)
		l := pair(&first, &second, time.Hour)
		l.goOn(before)
		if !deliver(l) || second.got != 4 {
			t.Errorf("the second link got %d tasks", second.got)
		}
	})
}

// broker is a maker of one link.
type broker struct{ sink.Maker }

func (broker) Sink(tocsin.Policy) (sink.Sink, error) { return &link{}, nil }

func TestANodeTellsWhyItDeliversWithoutAFallback(t *testing.T) {
	t.Parallel()
	env := map[string]string{}
	r, d := newDesk(t, Config{Sinks: map[string]sink.Maker{"kafka": broker{}}, Getenv: func(name string) string { return env[name] }}, new(devtest.Log))
	hook := remind("A").Webhook
	to := func(name string, number uint64, first *biztype.Sink, second tocsin.Fallback) biztype.Policy {
		return biztype.Policy{Name: name, Number: number, Sink: first, Fallback: &second}
	}
	kafka, rabbit := &biztype.Sink{Name: "kafka"}, &biztype.Sink{Name: "rabbit"}
	policies := []biztype.Policy{
		to("both", 1, kafka, tocsin.Fallback{Sink: kafka}), to("sink", 2, kafka, tocsin.Fallback{Sink: rabbit}),
		to("secret", 3, kafka, tocsin.Fallback{Webhook: hook}), to("first", 4, rabbit, tocsin.Fallback{Sink: kafka}), remind("B"),
	}
	r.set(t.Context(), policies)
	single := r.targets.single(policies)
	if len(single) != 2 || single["sink"] != "biz type sink: no sink is named rabbit where this node runs: add it to the sinks of the config" || !strings.Contains(single["secret"], "variable A") {
		t.Errorf("without a fallback: %v", single)
	}
	if d.lacks("sink")+d.lacks("secret") != "" || !strings.Contains(d.lacks("first"), "no sink is named rabbit") {
		t.Errorf("lacks %v", d.last().Lacks)
	}
	env["A"] = goodSecret
	r.look(t.Context())
	delete(env, "A") // what was read before is used on
	r.look(t.Context())
	if single := r.targets.single(policies); len(single) != 1 {
		t.Errorf("with the secret, without a fallback: %v", single)
	}
}
