package webhook

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
)

// course is one in which a request gets no answer.
type course struct {
	open    func(t *testing.T) *Sink // its receiver gives no answer
	text    string                   // part of the error
	counted bool                     // as an attempt
	within  time.Duration            // of the delivery; 0: 20 s
}

// ways are those of net (names, addresses, connecting), of crypto/tls, and of net/http: by a new connection and by a kept one, HTTP/1.1
// and HTTP/2. Servers, names and addresses are real. A proxy is not among them: callbacks use none, see TestNoProxyIsUsed.
var ways = map[string]course{
	"name: nobody has it":                  {open: to("http://nx.test"), text: "no such host"},
	"name: it has no address":              {open: to("http://empty.test"), text: "no such host"},
	"name: the server of names fails":      {open: to("http://servfail.test"), text: "lookup servfail.test"},
	"name: the server of names refuses":    {open: to("http://refused.test"), text: "lookup refused.test"},
	"name: the server of names is silent":  {open: to("http://silent.test"), text: "lookup silent.test"},
	"name: both of its addresses are dead": {open: toClosed("http://both.test:"), text: "connection refused"},

	"address: not allowed":          {open: forbidden("http://127.0.0.1:1"), text: "prohibited IP address: 127.0.0.1 is not a permitted destination (denied by: 127.0.0.0/8); if it is right, add its network to webhook.allow of the policy"},
	"address: not allowed, IPv6":    {open: forbidden("http://[::1]:1"), text: "; if it is right, add its network to webhook.allow of the policy"},
	"address: not allowed, by name": {open: forbidden("http://both.test"), text: "; if it is right, add its network to webhook.allow of the policy"},

	"connect: refused":          {open: toClosed("http://127.0.0.1:"), text: "connect: connection refused"},
	"connect: refused, IPv6":    {open: toClosed("http://[::1]:"), text: "dial tcp [::1]"},
	"connect: no route":         {open: to("http://255.255.255.255"), text: "dial tcp 255.255.255.255:80"},
	"connect: no answer":        {open: toFull, text: "i/o timeout"},
	"connect: no local address": {open: fromNowhere, text: "this machine opens no connection: "},

	"TLS: unknown CA":                   {open: toTLS(false, "", nil), text: "certificate signed by unknown authority"},
	"TLS: another name":                 {open: toTLS(true, "both.test", nil), text: "not both.test"},
	"TLS: expired":                      {open: toTLS(true, "", expire), text: "certificate has expired"},
	"TLS: an old version":               {open: toTLS(true, "", func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }), text: "protocol version not supported"},
	"TLS: a certificate is wanted":      {open: toTLS(true, "", func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }), text: "remote error: tls: certificate required"},
	"TLS: 1.2, a certificate is wanted": {open: toTLS(true, "", func(c *tls.Config) { c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12 }), text: "remote error: tls: "},
	"TLS: closed in the handshake":      {open: toRaw("https", hangUp), text: "the receiver closed the connection in the TLS handshake"},
	"TLS: reset in the handshake":       {open: toRaw("https", heard(reset)), text: "the receiver closed the connection in the TLS handshake"},
	"TLS: no end of the handshake":      {open: toRaw("https", func(net.Conn) {}), text: "TLS handshake timeout"},
	"TLS: the receiver has none":        {open: toTLSless, text: "the receiver has no TLS there: the URL must begin with http:"},
	"TLS: the URL has none":             {open: toRaw("http", heard(says("\x15\x03\x01\x00\x02\x02\x16"))), text: "the URL must begin with https"},

	"new: closed before the request":    {open: toClosing(hangUp), text: "the receiver closed the new connection before the request"},
	"new: reset before the request":     {open: toClosing(reset), text: "the receiver closed the new connection before the request"},
	"new: closed after the request":     {open: toRaw("http", heard(hangUp)), counted: true, text: "the receiver closed the connection without an answer"},
	"new: reset after the request":      {open: toRaw("http", heard(reset)), counted: true, text: "the connection broke before there was an answer"},
	"new: silent after the request":     {open: toRaw("http", func(net.Conn) {}), within: 2 * time.Second, counted: true, text: "no answer in time"},
	"new: an answer that is none":       {open: toRaw("http", heard(says("220 smtp ready\r\n"))), counted: true, text: "malformed HTTP"},
	"kept: closed before the request":   {open: toKept(false, hangUp), text: "connection refused"},
	"kept: reset before the request":    {open: toKept(false, reset), text: "connection refused"},
	"kept: 408 before the request":      {open: toKept(false, says("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n")), text: "connection refused"},
	"kept: closed after the request":    {open: toKept(true, hangUp), counted: true, text: "the receiver closed the connection without an answer"},
	"kept: reset after the request":     {open: toKept(true, reset), counted: true, text: "the connection broke before there was an answer"},
	"HTTP/2: without TLS, and only it":  {open: toRaw("http", heard(says("\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64\x00\x04\x00\x00\xff\xff\x00\x05\x00\x00\x40\x00"))), text: "the receiver speaks HTTP/2 only"},
	"HTTP/2: without TLS, and default":  {open: toRaw("http", heard(says(string(frameOf(4, 0))))), text: "the receiver speaks HTTP/2 only"},
	"HTTP/2: without TLS, going away":   {open: toRaw("http", heard(says(string(frameOf(7, 0, 0, 1))))), text: "the receiver speaks HTTP/2 only"},
	"HTTP/2: every stream is refused":   {open: toHTTP2(resetStream(7)), text: "the receiver refused the request unread, by REFUSED_STREAM of HTTP/2"},
	"HTTP/2: the receiver goes away":    {open: toHTTP2(goAway(0)), text: "the receiver refused the request unread, by GOAWAY of HTTP/2"},
	"HTTP/2: it goes away by an error":  {open: toHTTP2(goAway(11)), text: "the receiver refused the request unread, by GOAWAY of HTTP/2"},
	"HTTP/2: the stream breaks":         {open: toHTTP2(resetStream(2)), counted: true, text: "INTERNAL_ERROR; received from peer"},
	"HTTP/2: a protocol error":          {open: toHTTP2(resetStream(1)), counted: true, text: "callback: stream error: stream ID 1; PROTOCOL_ERROR; received from peer"},
	"HTTP/2: the connection is closed":  {open: toHTTP2(nil), counted: true, text: "callback: the"},
	"ours: the delivery's time is over": {open: toRaw("https", func(net.Conn) {}), within: time.Nanosecond, text: "no connection in time"},
}

// Only what the receiver may have got counts as an attempt, and the error names the cause.
func TestARequestThatDidNotArriveIsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if w.within == 0 {
				w.within = 20 * time.Second
			}
			s := w.open(t)
			ctx, cancel := context.WithTimeout(t.Context(), w.within)
			defer cancel()
			err := s.Deliver(ctx, tasks(1))[0]
			if err == nil || notReached(err) == w.counted || !strings.Contains(err.Error(), w.text) || strings.Contains(err.Error(), "token") {
				t.Errorf("not reached: %v, by %v; want %v, by %q", notReached(err), err, !w.counted, w.text)
			}
			var told interface{ FailureCause() string }
			if !errors.As(err, &told) || told.FailureCause() != "unreachable" {
				t.Errorf("got %v (%T), want the cause unreachable", err, err)
			}
			if verb, in, _ := tocsin.AsOutcome(err); verb != tocsin.Retried || in != -1 {
				t.Errorf("%s in %s", verb, in)
			}
			if late := w.text == "no answer in time"; late && !errors.Is(err, context.DeadlineExceeded) { // the dispatcher counts it as a time-out
				t.Errorf("it does not tell that the time was over: %v", err)
			}
		})
	}
}

// A name with a dead address beside one that answers is reached.
func TestOneAddressOfANameIsEnough(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	url := strings.Replace(receiver.URL, "127.0.0.1", "both.test", 1)
	for _, allow := range [][]string{loopback, loopback[:1]} { // the IPv6 address refuses, or is not allowed
		if err := openSink(t, SinkConfig{URL: url, Allow: allow}).Deliver(t.Context(), tasks(1))[0]; err != nil {
			t.Errorf("allowed %v: %v", allow, err)
		}
	}
}

// A proxy could refuse a request, or lose it: then its ways belong among those above.
func TestNoProxyIsUsed(t *testing.T) {
	t.Parallel()
	if s := open(t, "http://127.0.0.1:1"); s.client.Proxy != nil {
		t.Error("callbacks go through a proxy")
	}
}

// A receiver that closes idle connections just as requests come does not cost an attempt, and handles no request twice unless that is counted.
func TestAReceiverMayCloseIdleConnections(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*httptest.Server){
		"HTTP":   (*httptest.Server).Start,
		"HTTPS":  (*httptest.Server).StartTLS,
		"HTTP/2": func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const idle, waves, wide = 20 * time.Millisecond, 25, 16
			var handled, again, delivered atomic.Int64
			receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				handled.Add(1)
			}))
			receiver.Config.IdleTimeout, receiver.Config.ErrorLog = idle, quiet
			start(receiver)
			t.Cleanup(receiver.Close)
			s := trust(openSink(t, SinkConfig{URL: receiver.URL, Allow: loopback}), receiver)
			ctx := context.WithValue(t.Context(), client.ResentKey, func() { again.Add(1) })
			next := time.NewTicker(idle)
			defer next.Stop()
			for range waves {
				<-next.C
				var all sync.WaitGroup
				for range wide {
					all.Go(func() {
						if err := s.Deliver(ctx, tasks(1))[0]; err == nil {
							delivered.Add(1)
						} else if !notReached(err) {
							t.Error(err)
						}
					})
				}
				all.Wait()
			}
			t.Logf("%d of %d delivered, %d handled, %d sent again though they may have arrived", delivered.Load(), waves*wide, handled.Load(), again.Load())
			if h, d := handled.Load(), delivered.Load(); h < d || h > d+again.Load() || d < waves*wide*9/10 {
				t.Errorf("%d handled, %d delivered of %d, and %d sent again that may have arrived", h, d, waves*wide, again.Load())
			}
		})
	}
}

// What a receiver ends over is not sent once more within an attempt, unless the end may be that of an idle connection.
func TestARequestThatWasReadIsNotSentAgain(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if calls.Add(1) > 1 {
			time.Sleep(crossing)
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(receiver.Close)
	s := open(t, receiver.URL)
	for range 2 {
		_ = s.Deliver(t.Context(), tasks(1))
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

// A receiver that lingers ends its stream, and drops what has arrived and is not read yet, as Apache does with an idle connection.
func TestARequestThatALingeringReceiverDropsIsSentAgain(t *testing.T) {
	t.Parallel()
	var handled, again atomic.Int64
	second := make(chan struct{}) // a second request has arrived at a kept connection
	var once sync.Once
	address := listen(t, func(c net.Conn) {
		go func() {
			defer c.Close()
			read := bufio.NewReader(c)
			if r, err := http.ReadRequest(read); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				handled.Add(1)
				_, _ = c.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
				_, _ = read.Peek(1)
				once.Do(func() { close(second) })
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
			}
		}()
	})
	s := open(t, "http://"+address)
	ctx := context.WithValue(t.Context(), client.ResentKey, func() { again.Add(1) })
	for range 2 {
		if err := s.Deliver(ctx, tasks(1))[0]; err != nil {
			t.Error(err)
		}
	}
	<-second
	if handled.Load() != 2 || again.Load() != 1 {
		t.Errorf("%d handled, %d sent again", handled.Load(), again.Load())
	}
}

// The limit of open files is that of a process, so another one runs out of them.
func TestTooManyOpenFilesAreNoAttempt(t *testing.T) {
	t.Parallel()
	const child = "TOCSIN_TEST_FEW_FILES"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 32, Max: 32}); err != nil {
		t.Fatal(err)
	}
	s := open(t, "http://127.0.0.1:1")
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		defer f.Close()
	}
	if err := s.Deliver(t.Context(), tasks(1))[0]; !notReached(err) || !strings.Contains(err.Error(), "this machine opens no connection: ") {
		t.Errorf("got %v", err)
	}
}

// A 408 that comes before anything of the request has arrived is the end of an idle connection; a later one is an answer.
func TestA408BeforeTheRequestIsNoAnswer(t *testing.T) {
	t.Parallel()
	read := make(chan error)
	plain, err := net.Dial("tcp", listen(t, func(c net.Conn) {
		_, err := c.Read(make([]byte, 1))
		_, _ = c.Write([]byte{1}) // acknowledges it
		read <- err
	}))
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Conn: plain}
	defer w.Close()
	at := trip{wire: w, reused: true}
	timedOut, fine := &http.Response{StatusCode: http.StatusRequestTimeout}, &http.Response{StatusCode: http.StatusOK}
	if !at.early(timedOut) || at.early(fine) || (&trip{wire: w}).early(timedOut) {
		t.Error("before the request: want 408 on a kept connection to be early, and nothing else")
	}
	if _, err := w.Write([]byte{1}); err != nil || <-read != nil {
		t.Fatal(err)
	}
	if _, err := w.Read(make([]byte, 1)); err != nil || at.early(timedOut) {
		t.Errorf("after the request: %v, a 408 is early", err)
	}
}
