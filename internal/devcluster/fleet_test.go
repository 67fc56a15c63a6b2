package devcluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAFleetWorksUntilItIsStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	f, done := NewFleet(ctx), false
	f.Go("work", func(run context.Context) error {
		<-run.Done()
		done = true
		return nil
	})
	cancel() // of the caller: the work outlasts it
	if err := f.Err(); err != nil || f.run.Err() != nil {
		t.Errorf("the work has ended with its caller: %v", err)
	}
	if err := errors.Join(f.Stop(), f.Stop()); err != nil || !done {
		t.Errorf("%v, done %t", err, done)
	}
}

func TestAFleetTellsItsFirstError(t *testing.T) {
	t.Parallel()
	broken := errors.New("no answer")
	fail := func(context.Context) error { return broken }
	for name, tell := range map[string]func(*Fleet) error{
		"Await": func(f *Fleet) error { return f.Await(t.Context(), time.Hour, func() bool { return false }) },
		"Stop":  (*Fleet).Stop,
	} {
		f := NewFleet(t.Context())
		f.Go("worker", fail)
		f.Go("worker", fail)
		if err := tell(f); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "worker: ") {
			t.Errorf("%s: %v", name, err)
		}
		f.running.Wait()
		_ = f.Stop()
		if err := f.Err(); err != nil {
			t.Errorf("%s: once more %v", name, err)
		}
	}
}
