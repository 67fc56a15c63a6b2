package history

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/store"
)

// fake is a server that answers as a test says. Its one database is 0.
type fake struct {
	answer func(ctx context.Context, runs []*store.Run) (sent bool, err error)
}

func (f fake) RecordRuns(ctx context.Context, _ int, runs []*store.Run) (bool, error) {
	return f.answer(ctx, runs)
}

func (fake) RunsIn(tocsin.JobID) int { return 0 }

// inBubble runs a recorder beside f, which ends it by calling stop.
func inBubble(t *testing.T, answer func(context.Context, []*store.Run) (bool, error), f func(s *site, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t, log: &lockedLog{}}
		var err error
		if s.Recorder, err = New(Config{Runs: fake{answer}, Servers: []string{"db1"}, QueueBytes: 3000 * perRun}); err != nil {
			t.Fatal(err)
		}
		f(s, s.start())
	})
}

// pass lets d go by, and waits until all that happens at its end has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestABatchWaitsForItsServerAndTheQueueFills(t *testing.T) {
	var back atomic.Bool
	var writes atomic.Int32
	inBubble(t, func(context.Context, []*store.Run) (bool, error) {
		if writes.Add(1); !back.Load() {
			return false, driver.ErrInvalidConn
		}
		return true, nil
	}, func(s *site, stop func()) {
		s.Record(0, runs(2000))
		pass(time.Minute)
		s.Record(0, runs(3500))
		s.want(0, 500, 0)
		if n := writes.Load(); n > 30 {
			t.Errorf("%d tries in a minute", n)
		}
		back.Store(true)
		pass(10 * time.Second)
		s.want(5000, 500, 0)
		stop()
	})
}

func TestABatchThatMayBeStoredIsNotSentAgain(t *testing.T) {
	var writes atomic.Int32
	inBubble(t, func(context.Context, []*store.Run) (bool, error) {
		writes.Add(1)
		return true, driver.ErrInvalidConn
	}, func(s *site, stop func()) {
		s.Record(0, runs(10))
		pass(time.Minute)
		s.want(0, 0, 10)
		if n := writes.Load(); n != 1 {
			t.Errorf("sent %d times", n)
		}
		stop()
	})
}

func TestTheEndWaitsTwoSecondsForAServerThatHangs(t *testing.T) {
	inBubble(t, func(ctx context.Context, _ []*store.Run) (bool, error) {
		<-ctx.Done()
		return false, ctx.Err()
	}, func(s *site, stop func()) {
		s.Record(0, runs(2500))
		time.Sleep(time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took != endWithin {
			t.Errorf("ended after %s", took)
		}
		s.want(0, 2500, 0)
	})
}

func TestABurstComesBeforeItsHistory(t *testing.T) {
	var writes []time.Time
	inBubble(t, func(context.Context, []*store.Run) (bool, error) {
		writes = append(writes, time.Now())
		time.Sleep(100 * time.Millisecond)
		return true, nil
	}, func(s *site, stop func()) {
		began := time.Now()
		s.Record(0, runs(1))
		time.Sleep(time.Second)
		s.Record(0, runs(1))
		s.Record(0, runs(3000)) // no room for one
		time.Sleep(time.Minute)
		stop()
		var at []time.Duration
		for _, w := range writes {
			at = append(at, w.Sub(began))
		}
		// alone: after the linger; a full batch at once; what is left of it, a third of the queue, after a pause as long as that took
		want := []time.Duration{200 * time.Millisecond, time.Second, 1400 * time.Millisecond}
		if len(at) != 3 || at[0] != want[0] || at[1] != want[1] || at[2] != want[2] {
			t.Errorf("written at %v, want %v", at, want)
		}
		s.want(3000+1, 1, 0)
	})
}

func TestAnErrorOfTheBatchIsNoEndlessHalving(t *testing.T) {
	var writes atomic.Int32
	inBubble(t, func(context.Context, []*store.Run) (bool, error) {
		writes.Add(1)
		return false, errors.New("unknown column")
	}, func(s *site, stop func()) {
		s.Record(0, runs(2000))
		time.Sleep(time.Minute)
		stop()
		s.want(0, 0, 2000)
		if n := writes.Load(); n > 40 {
			t.Errorf("%d statements for a table that takes nothing", n)
		}
	})
}
