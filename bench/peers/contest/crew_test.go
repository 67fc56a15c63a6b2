package contest

import (
	"context"
	"errors"
	"testing"
)

func TestACrewWorksUntilItsEndAndBeginsAnew(t *testing.T) {
	t.Parallel()
	var c Crew
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		run := c.Begin(ctx)
		done := false
		c.Go(func() error { <-run.Done(); done = true; return nil })
		cancel() // of who called: the work outlasts it
		if run.Err() != nil {
			t.Error("the work has ended with its caller")
		}
		if err := c.End(); err != nil || !done {
			t.Errorf("%v, done %t", err, done)
		}
	}
	if err := c.End(); err != nil {
		t.Error(err)
	}
}

func TestACrewTellsWhoFailed(t *testing.T) {
	t.Parallel()
	var c Crew
	c.Begin(t.Context())
	broken := errors.New("no answer")
	c.Go(func() error { return broken })
	if err := c.End(); !errors.Is(err, broken) || !errors.Is(c.Failure(), broken) {
		t.Errorf("%v, then %v", err, c.Failure())
	}
}
