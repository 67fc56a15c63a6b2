package tocsinnats

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	dialWithin = 2 * time.Second        // of one server, and again for its greeting
	redial     = 500 * time.Millisecond // between two rounds over all servers
	pingEvery  = 10 * time.Second       // a server that does not answer two of them is given up
)

var errInbox = errors.New("the user may not subscribe to its inbox, where acks come: allow it to subscribe to _INBOX.>")

// session is a connection, which nats.go opens again when it breaks. It ends with the Maker, or when nats.go stops trying, for instance
// after a password was refused twice.
type session struct {
	ctx    context.Context // ends with the session, and its cause says why
	end    context.CancelCauseFunc
	opened chan struct{} // closed when conn and stream are set, or the session has ended
	gone   chan struct{} // closed when nats.go has closed conn, or there will be none
	conn   *nats.Conn
	stream jetstream.JetStream // for questions
	log    *slog.Logger

	mu         sync.Mutex
	stop       func() // ends the dialling, or the connection that was dialled; nil: neither yet
	watches    map[*watch]struct{}
	publishers map[time.Duration]jetstream.JetStream // by the time-out of deliveries
}

// watch is a wait for what is published to a subject.
type watch struct {
	subject string
	end     context.CancelCauseFunc
}

// open begins a session once the last one, if any, is gone. m.mu is held.
func (m *Maker) open(last *session) *session {
	s := &session{
		opened: make(chan struct{}), gone: make(chan struct{}), log: m.cfg.Logger.With("sink", m.cfg.Name),
		watches: map[*watch]struct{}{}, publishers: map[time.Duration]jetstream.JetStream{},
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	m.opening.Go(func() {
		defer close(s.opened)
		if last != nil {
			<-last.gone
		}
		defer context.AfterFunc(s.ctx, s.cut)()
		conn, err := nats.Connect(strings.Join(m.cfg.Addresses, ","), m.options(s)...)
		if err != nil {
			s.end(err)
			close(s.gone)
			return
		}
		s.conn = conn
		if s.stream, err = jetstream.New(conn); err != nil {
			s.end(err)
			conn.Close()
		}
	})
	return s
}

// options are those of the connection. Without a buffer for the time between two connections, a message is either sent or refused.
func (m *Maker) options(s *session) []nats.Option {
	options := append([]nats.Option{
		nats.Name("tocsin " + m.cfg.Name), nats.SetCustomDialer(s), nats.SkipHostLookup(), nats.Timeout(dialWithin), nats.ReconnectOnFlusherError(),
		nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(redial), nats.PingInterval(pingEvery),
		nats.ErrorHandler(s.fault),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if s.ctx.Err() == nil {
				s.log.Warn("lost the connection to NATS", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { s.log.Info("connected to NATS again") }),
		nats.ClosedHandler(func(conn *nats.Conn) {
			s.end(cmp.Or(conn.LastError(), nats.ErrConnectionClosed))
			close(s.gone)
		}),
	}, m.auth...)
	if m.cfg.TLS != nil {
		options = append(options, nats.Secure(m.cfg.TLS))
	}
	return options
}

// Dial connects for nats.go.
func (s *session) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, dialWithin)
	defer cancel()
	s.stops(cancel)
	wire, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s.stops(func() { _ = wire.Close() })
	if s.ctx.Err() != nil {
		s.cut()
	}
	return wire, nil
}

func (s *session) stops(stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = stop
}

// cut breaks the connection, which nats.go then opens again unless it was closed. While nats.go dials, or writes to a server that
// reads nothing, it holds a lock for which all deliveries wait, and only this ends that in time.
func (s *session) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
	}
}

// publisher returns the publisher for deliveries with this time-out. nats.go keeps a message without an ack until the time-out, which it
// sets for a publisher and not for a message. The publisher has no limit of its own: Maker.room is the limit.
func (s *session) publisher(timeout time.Duration) (jetstream.JetStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.publishers[timeout] == nil {
		stream, err := jetstream.New(s.conn, jetstream.WithPublishAsyncTimeout(timeout), jetstream.WithPublishAsyncMaxPending(math.MaxInt))
		if err != nil {
			return nil, err
		}
		s.publishers[timeout] = stream
	}
	return s.publishers[timeout], nil
}

// watch returns a context that also ends when the server forbids to publish to the subject. It is to be released.
func (s *session) watch(ctx context.Context, subject string) (watched context.Context, release func()) {
	watched, end := context.WithCancelCause(ctx)
	w := &watch{subject, end}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w] = struct{}{}
	return watched, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, w)
		end(nil)
	}
}

// fault takes what the server says apart from answers. Of a message that may not be published it names only the subject, and of a
// right only a text.
func (s *session) fault(conn *nats.Conn, _ *nats.Subscription, err error) {
	switch text := err.Error(); {
	case !errors.Is(err, nats.ErrPermissionViolation):
		s.log.Warn("NATS reports an error", "error", err)
	case strings.Contains(text, "Subscription to"):
		s.end(errInbox)
		conn.Close()
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		for w := range s.watches {
			if strings.HasSuffix(text, "Publish to "+strconv.Quote(w.subject)) {
				w.end(err)
			}
		}
	}
}
