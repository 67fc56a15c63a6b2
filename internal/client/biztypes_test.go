package client

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A call that needs a biz type while another call's reading of the names hangs ends with its own context.
func TestACallDoesNotWaitForTheReadingOfAnother(t *testing.T) {
	t.Parallel()
	reading, free := make(chan struct{}), make(chan struct{})
	b := &BizTypes{reads: make(chan struct{}, 1)}
	b.read = func(context.Context) (map[string]uint64, error) {
		close(reading)
		<-free
		return nil, nil
	}
	first := make(chan error, 1)
	go func() { first <- b.Refresh(t.Context()) }()
	<-reading
	ctx, end := context.WithCancel(t.Context())
	end()
	second := make(chan error, 1)
	go func() {
		b.askAgain(ctx)
		_, err := b.number(ctx, "order.close")
		second <- err
	}()
	select {
	case err := <-second:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the other call")
	}
	close(free)
	if err := <-first; err != nil {
		t.Error(err)
	}
}
