package main

import (
	"context"
	"errors"
	"testing"
)

// A relay whose page fails ends with that error; one whose page ends well, as it was not asked for, goes on.
func TestARelayEndsWithItsPage(t *testing.T) {
	t.Parallel()
	wrong := errors.New("the page is gone")
	err := beside(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return nil }, func(context.Context) error { return wrong })
	if !errors.Is(err, wrong) {
		t.Errorf("ended with %v", err)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	err = beside(t.Context(), func(ctx context.Context) error {
		close(begun)
		<-ended
		return ctx.Err()
	}, func(ctx context.Context) error {
		<-begun
		close(ended)
		return nil
	})
	if err != nil {
		t.Errorf("ended with %v", err)
	}
	shown := errors.New("shown until the work has ended")
	err = beside(t.Context(), func(context.Context) error { return nil }, func(ctx context.Context) error { <-ctx.Done(); return shown })
	if !errors.Is(err, shown) {
		t.Errorf("ended with %v", err)
	}
}
