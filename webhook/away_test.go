package webhook

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tocsinhq/tocsin"
)

// notReached is what the dispatcher asks an error.
func notReached(err error) bool {
	var told interface{ NotReached() bool }
	return errors.As(err, &told) && told.NotReached()
}

// listen returns the address of a listener that hands its connections to serve.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			serve(c)
		}
	}()
	return l.Addr().String()
}

// A kept connection that breaks under a request may have brought it: that is a failed attempt. Once the receiver is gone,
// and its connections with it, nothing is sent.
func TestARequestOnAKeptConnectionThatBreaksMayHaveArrived(t *testing.T) {
	t.Parallel()
	var last bool
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if last {
			panic(http.ErrAbortHandler)
		}
		last = true
	}))
	s := openSink(t, SinkConfig{URL: receiver.URL, Allow: loopback})
	deliver := func() error { return s.Deliver(t.Context(), []tocsin.Info{nth(1)})[0] }
	if err := deliver(); err != nil {
		t.Fatal(err)
	}
	if err := deliver(); err == nil || notReached(err) {
		t.Errorf("a request that was read: %v", err)
	}
	receiver.Close()
	if err := deliver(); !notReached(err) {
		t.Errorf("afterwards: %v", err)
	}
}

// A delivery that is called off while it connects says nothing of the receiver.
func TestACallbackThatIsCalledOffSaysNothingOfItsReceiver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	address := listen(t, func(net.Conn) { cancel(tocsin.ErrCancelled) }) // in the handshake
	s := openSink(t, SinkConfig{URL: "https://" + address, Allow: loopback})
	if err := s.Deliver(ctx, []tocsin.Info{nth(1)})[0]; !errors.Is(err, tocsin.ErrCancelled) || notReached(err) {
		t.Errorf("got %v", err)
	}
}
