package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/sink"
)

// link is a target that may be away, hang or panic, and counts what it got.
type link struct {
	away, hangs, panics bool
	refuses             bool // the first task of each delivery, without asking the target
	got                 int
}

func (l *link) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
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
	l.got += len(tasks)
	return make([]error, len(tasks))
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
		l := &links{first: &first, second: &second, after: 30 * time.Second, log: slog.New(slog.DiscardHandler)}
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
		l := &links{first: &first, second: &second, after: time.Second, log: slog.New(slog.DiscardHandler)}
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
		l := &links{first: &first, second: &second, after: 30 * time.Second, log: slog.New(slog.DiscardHandler)}
		for range 40 {
			l.Deliver(t.Context(), make([]tocsin.Info, 2))
			l.turn(time.Now(), false, []error{sink.Unfit(errors.New("no header"))}) // a delivery of such a task alone
			time.Sleep(time.Second)
		}
		if second.got == 0 {
			t.Error("the second link got nothing")
		}
	})
}

func TestAFirstLinkThatPanicsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := link{away: true}, link{}
		l := &links{first: &first, second: &second, log: slog.New(slog.DiscardHandler)}
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
		before := &links{first: &first, second: &second, log: slog.New(slog.DiscardHandler)}
		deliver(before)
		l := &links{first: &first, second: &second, after: time.Hour, log: before.log}
		l.goOn(before)
		if !deliver(l) || second.got != 4 {
			t.Errorf("the second link got %d tasks", second.got)
		}
	})
}

func TestABrokerThatGoesAwayHasFewRowsInHand(t *testing.T) {
	p := biztype.Policy{Name: "order.close", Number: 1, Sink: &tocsin.Sink{Name: "orders-kafka"}}.WithDefaults()
	if n := batchOf(p) * p.Concurrency; n > 512 {
		t.Errorf("%d rows of one biz type go back in each node", n)
	}
}
