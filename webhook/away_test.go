package webhook

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
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
	for name, c := range map[string]struct {
		url   string
		allow []string
		want  bool
	}{
		"a refused connection":             {"http://" + closed.Addr().String(), loopback, true},
		"a name that nobody has":           {"http://nobody.invalid", loopback, true},
		"a certificate that is not known":  {self.URL, loopback, true},
		"no TLS":                           {"https://" + listen(t, func(c net.Conn) { _ = c.Close() }), loopback, true},
		"a TLS handshake without an end":   {"https://" + refusing, loopback, true},
		"an address that is not allowed":   {"http://" + closed.Addr().String(), nil, false},
		"a connection that closes at once": {"http://" + listen(t, func(c net.Conn) { _ = c.Close() }), loopback, false},
		"no answer":                        {"http://" + refusing, loopback, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := NewSink(SinkConfig{URL: c.url, Allow: c.allow, Timeout: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err = s.Deliver(ctx, []tocsin.Info{nth(1)})[0]
			if err == nil || notReached(err) != c.want {
				t.Errorf("it did not reach the receiver: %v, by %v", notReached(err), err)
			}
			if !c.want {
				return
			}
			if ctx.Err() != nil {
				t.Errorf("it came too late, at the end of the delivery: %v", err)
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
	s, err := NewSink(SinkConfig{URL: receiver.URL, Allow: loopback})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
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
	ctx, cancel := context.WithCancel(t.Context())
	address := listen(t, func(net.Conn) { cancel() }) // in the handshake
	s, err := NewSink(SinkConfig{URL: "https://" + address, Allow: loopback})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Deliver(ctx, []tocsin.Info{nth(1)})[0]; !errors.Is(err, context.Canceled) || notReached(err) {
		t.Errorf("got %v", err)
	}
}

func TestAReceiverTellsHowLongItWantsToRest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		after  string
		want   time.Duration
	}{
		"too many requests":        {429, "5", 5 * time.Second},
		"unavailable":              {503, "5", 5 * time.Second},
		"unavailable, not told":    {503, "", 0},
		"a failure of this task":   {500, "5", 0},
		"a time-out of this task":  {408, "5", 0},
		"unavailable, but at once": {503, "0", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := post(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				w.WriteHeader(c.status)
			}, SinkConfig{Allow: loopback})
			var told interface{ RestFor() time.Duration }
			if !errors.As(err, &told) || told.RestFor() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
