package webhook

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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

// A delivery counts as not reached only if nothing of it can have been sent.
func TestACallbackTellsWhetherItReachedItsReceiver(t *testing.T) {
	t.Parallel()
	refusing := listen(t, func(net.Conn) {})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	self := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(self.Close)
	private := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("an address was called that is not allowed") }))
	t.Cleanup(private.Close)
	for name, c := range map[string]struct {
		url   string
		allow []string
		want  bool
		cause string
		text  string // part of the error
	}{
		"a refused connection":             {"http://" + closed.Addr().String(), loopback, true, unreachable, ""},
		"a name that nobody has":           {"http://nobody.invalid", loopback, true, unreachable, ""},
		"a certificate that is not known":  {self.URL, loopback, true, unreachable, ""},
		"no TLS":                           {"https://" + listen(t, func(c net.Conn) { _ = c.Close() }), loopback, true, unreachable, ""},
		"a TLS handshake without an end":   {"https://" + refusing, loopback, true, unreachable, ""},
		"an address that is not allowed":   {private.URL, []string{"10.0.0.0/8"}, false, "refused_address", "prohibited"},
		"a connection that closes at once": {"http://" + listen(t, func(c net.Conn) { _ = c.Close() }), loopback, false, unreachable, ""},
		"no answer":                        {"http://" + refusing, loopback, false, unreachable, "callback: no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openSink(t, SinkConfig{URL: c.url + "/hook?token=secret", Allow: c.allow, Timeout: 10 * time.Second})
			late := name == "no answer"
			within := 10 * time.Second
			if late {
				within = 3 * time.Second // enough to connect
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			err := s.Deliver(ctx, []tocsin.Info{nth(1)})[0]
			if err == nil || notReached(err) != c.want {
				t.Errorf("it did not reach the receiver: %v, by %v", notReached(err), err)
			}
			verb, in, reason := tocsin.AsOutcome(err)
			if verb != tocsin.Retried || in != -1 || !strings.Contains(reason, c.text) || strings.Contains(reason, "token") {
				t.Errorf("%s in %s, %q", verb, in, reason)
			}
			var told interface{ FailureCause() string }
			if !errors.As(err, &told) || told.FailureCause() != c.cause {
				t.Errorf("got %v (%T), want the cause %s", err, err, c.cause)
			}
			if late && !errors.Is(err, context.DeadlineExceeded) || late != (ctx.Err() != nil) { // the dispatcher counts the one as a time-out
				t.Errorf("it came at the end of the delivery: %t, by %v", ctx.Err() != nil, err)
			}
		})
	}
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
