package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"code.dny.dev/ssrf"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// reach is how far a request came that got no answer. It decides whether an attempt is counted, and whether the request is sent again.
type reach int

const (
	unknown  reach = iota // it was sent, wholly or in part, and may have arrived: an attempt
	arrived               // the receiver has read it: an attempt
	nowhere               // nothing of it arrived, or the receiver has said that it did not handle it: no attempt
	calledIn              // the delivery was called off: it says nothing of the receiver
)

// unanswered is a callback that got no answer.
type unanswered struct {
	why    string
	err    error
	missed bool // see reach.nowhere
}

func (u unanswered) Error() string { return "callback: " + u.why }

// Unwrap returns what the client said.
func (u unanswered) Unwrap() error { return u.err }

// NotReached reports that nothing of the request arrived.
func (u unanswered) NotReached() bool { return u.missed }

// FailureCause returns why there was none, as used in metrics.
func (u unanswered) FailureCause() string {
	return "unreachable"
}

// trip follows one request over its connection.
type trip struct {
	wire   *wire // nil: there is no connection yet
	reused bool  // an earlier request went over it
	from   int64 // wire.wrote before the request
	began  time.Time
}

// crossing is how long a request and the end of its kept connection, each on its way to the other side, may take.
const crossing = time.Second

// traced returns a context whose requests the trip follows.
func (t *trip) traced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { *t = trip{} },
		GotConn: func(got httptrace.GotConnInfo) {
			t.wire, t.reused, t.began = wireOf(got.Conn), got.Reused, time.Now()
			t.from = t.wire.wrote.Load()
		},
	})
}

// end returns how far the request came that ended with an error under ctx.
//
// A receiver that closes an idle connection while a request is on its way to it has not read the request, and TCP shows that: the end of
// a stream tells which bytes had arrived by then. If none of the request's had, it was not read. If some had, it may have been: a receiver that closes a
// connection with unread bytes resets it, but one that lingers, as Apache does, ends its own stream and drops what it has not read. It does so before it
// looks at the request, so an end that comes later than crossing is not of that kind. A reset itself tells nothing for sure. Nor does the end of a stream
// within TLS, after which bytes may have arrived.
func (t *trip) end(ctx context.Context, err error) reach {
	switch w := t.wire; {
	case errors.Is(ctx.Err(), context.Canceled):
		return calledIn
	case w == nil || w.wrote.Load() == t.from || refusedStream(err) != "" || otherProtocol(err) != "" || isAlert(err) || notBegun(err):
		return nowhere
	case ctx.Err() != nil || !w.ended.Load() && !errors.Is(err, io.EOF):
		return unknown
	default:
		acked, known := w.acknowledged()
		switch {
		case !known:
			return unknown
		case acked <= t.from:
			return nowhere
		case w.ended.Load() && !(t.reused && time.Since(t.began) < crossing):
			return arrived
		}
		return unknown
	}
}

// early reports whether an answer is none to the request: some receivers send 408 before they close an idle connection.
func (t *trip) early(answer *http.Response) bool {
	if answer.StatusCode != http.StatusRequestTimeout || !t.reused {
		return false
	}
	acked, known := t.wire.acknowledged()
	return known && acked <= t.from
}

// errIdleClosed is the end of a request after an early answer.
var errIdleClosed = errors.New("the receiver answered 408 and closed the idle connection")

// fail returns the error of a request that came so far, in words that name the cause.
func (t *trip) fail(err error, came reach) unanswered {
	return unanswered{why: t.words(err, came), err: err, missed: came == nowhere}
}

// words says why a request got no answer.
func (t *trip) words(err error, came reach) string {
	late, closed := errors.Is(err, context.DeadlineExceeded), closedByPeer(err)
	switch word := refusedStream(err); {
	case came == calledIn:
		return err.Error()
	case word != "":
		return "the receiver refused the request unread, by " + word + " of HTTP/2"
	case otherProtocol(err) != "":
		return otherProtocol(err)
	case t.wire == nil:
		return unconnected(err, late, closed)
	case isAlert(err):
		return "the receiver refused the connection: " + err.Error()
	case came == nowhere && late:
		return "nothing could be sent in time"
	case came == nowhere && t.reused:
		return "the receiver closed the idle connection before the request"
	case came == nowhere:
		return "the receiver closed the new connection before the request"
	case late:
		return "no answer in time"
	case closed && isWrite(err):
		return "the receiver closed the connection before it had all of the request"
	case closed && t.wire.ended.Load():
		return "the receiver closed the connection without an answer"
	case closed:
		return "the connection broke before there was an answer: " + err.Error()
	}
	return strings.NewReplacer("http2: Transport: cannot retry err [", "", "] after Request.Body was written; define Request.GetBody to avoid this error", "").Replace(err.Error())
}

// unconnected says why there was no connection.
func unconnected(err error, late, closed bool) string {
	var op *net.OpError
	var head tls.RecordHeaderError
	dialling := errors.As(err, &op) && op.Op == "dial"
	switch {
	case errors.Is(err, ssrf.ErrProhibitedIP):
		return err.Error() + notAllowed
	case dialling && loop.WayOf(err) == loop.WayHere:
		return "this machine opens no connection: " + err.Error()
	case errors.As(err, &head) && string(head.RecordHeader[:]) == "HTTP/":
		return "the receiver has no TLS there: the URL must begin with http:"
	case closed && !dialling:
		return "the receiver closed the connection in the TLS handshake: it may not speak TLS there"
	case late && !dialling && err == context.DeadlineExceeded:
		return "no connection in time"
	}
	return err.Error()
}

// isWrite reports whether the connection broke while the request was written.
func isWrite(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "write"
}

// halfAnswered says why an answer could not be read to its end.
func halfAnswered(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case closedByPeer(err):
		return "the receiver closed the connection before the end of its answer"
	}
	return err.Error()
}

// closedByPeer reports whether the receiver has ended the connection, or something on the way that speaks for it.
func closedByPeer(err error) bool {
	return loop.WayOf(err) == loop.WayClosed || strings.Contains(err.Error(), "server closed idle connection") || strings.Contains(err.Error(), "server sent GOAWAY and closed the connection")
}

// refusedStream returns by which word of HTTP/2 the receiver has said that it did not handle a request; "": it has not. RFC 9113, section
// 8.7, lets such a request be sent again. net/http has the word in the text of its error alone, as a request without GetBody can't be sent again by itself.
func refusedStream(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "cannot retry err [") && strings.Contains(text, "REFUSED_STREAM"):
		return "REFUSED_STREAM"
	case strings.Contains(text, "Transport received Server's graceful shutdown GOAWAY"), strings.Contains(text, "Transport received GOAWAY from server"):
		return "GOAWAY"
	}
	return ""
}

// notBegun reports that net/http has found a kept connection closed before it began with the request, and can't take another as there is no GetBody.
func notBegun(err error) bool {
	return strings.Contains(err.Error(), "cannot rewind body after connection loss")
}

// otherProtocol says which protocol a receiver has answered in that does not understand plain HTTP/1.1; "": it has not. Such an answer is an alert of TLS, or the
// first frame of HTTP/2: SETTINGS or GOAWAY of stream 0, whose length is below 256.
func otherProtocol(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, `malformed HTTP response "\x15\x03`):
		return "the receiver wants TLS: the URL must begin with https"
	case http2Form.MatchString(text):
		return "the receiver speaks HTTP/2 only, and that is used with TLS alone: have it take HTTP/1.1 too, or TLS, and begin the URL with https"
	}
	return ""
}

var http2Form = regexp.MustCompile(`malformed HTTP response "\\x00\\x00(\\x[0-9a-f]{2}|\\?.)(\\x04|\\a)\\x00\\x00\\x00\\x00\\x00`)

// isAlert reports whether the receiver's TLS has refused the connection. With TLS 1.3 a client may learn that after its first request: that the
// receiver wants a certificate, for instance.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// wire is a connection that knows how much of what was written has arrived at the other end.
type wire struct {
	net.Conn
	wrote atomic.Int64 // bytes
	ended atomic.Bool  // the other end has ended its stream in order

	mu    sync.Mutex
	over  bool  // one end has ended its stream, and these are as they were then:
	acked int64 // bytes that were acknowledged
	known bool
}

// wireOf returns the wire below a connection of newClient's.
func wireOf(c net.Conn) *wire {
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secured.NetConn()
	}
	return c.(*wire)
}

func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.wrote.Add(int64(n))
	return n, err
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err == io.EOF {
		w.note()
		w.ended.Store(true)
	}
	return n, err
}

// Close notes what was acknowledged: afterwards the kernel can't be asked.
func (w *wire) Close() error {
	w.note()
	return w.Conn.Close()
}

// note notes what is acknowledged when the first of the two ends has ended its stream.
func (w *wire) note() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.acked, w.known = acknowledged(w.Conn)
		w.over = true
	}
}

// acknowledged returns how many bytes the other end has acknowledged, or had when the connection was over. False: the platform does not say.
func (w *wire) acknowledged() (bytes int64, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		return acknowledged(w.Conn)
	}
	return w.acked, w.known
}
