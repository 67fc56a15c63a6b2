package tocsinnats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/sink"
)

// hung is how long one message may take to be sent. If it takes longer and its delivery ends, the connection hangs and is cut.
const hung = time.Second

// Codes of JetStream that nats.go has no names for.
const (
	accountFull    jetstream.ErrorCode = 10002
	storeFailed    jetstream.ErrorCode = 10077 // by its text that the stream is full, for instance
	messageTooBig  jetstream.ErrorCode = 10054
	headersTooBig  jetstream.ErrorCode = 10097
	sealed         jetstream.ErrorCode = 10109
	idInProcess    jetstream.ErrorCode = 10158 // the first sending of the id is not stored yet
	counters       jetstream.ErrorCode = 10169 // the stream takes nothing but counts
	firstOfServers                     = 500   // of Code: it begins those that are about the server, as in HTTP
	tooMany                            = 429   // of Code
)

// subject delivers to the subjects of one policy.
type subject struct {
	maker   *Maker
	route   *sink.Route
	timeout time.Duration // of a delivery
	room    *sink.Share   // of pending
}

// flight is a message that was sent, or why it was not.
type flight struct {
	future  jetstream.PubAckFuture
	watched context.Context
	err     error
}

// Deliver publishes the tasks and waits for the acks of the stream. A message that the stream had already is acknowledged too.
func (s *subject) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
	ctx, cancel := sink.Within(ctx)
	defer cancel()
	conn, err := s.maker.enter(ctx)
	if err != nil {
		return sink.All(len(tasks), s.maker.away(err))
	}
	defer s.maker.leave()
	stream, err := conn.publisher(s.timeout)
	if err != nil {
		return sink.All(len(tasks), s.maker.away(err))
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(conn.ctx, func() { end(context.Cause(conn.ctx)) })()
	errs := make([]error, 0, len(tasks))
	for len(errs) < len(tasks) {
		errs = append(errs, s.deliver(ctx, conn, stream, tasks[len(errs):])...)
	}
	return errs
}

// deliver sends as many messages as there is room for, at most atOnce, and waits for their acks. It returns no errors for the others.
func (s *subject) deliver(ctx context.Context, conn *session, stream jetstream.JetStream, tasks []tocsin.Info) []error {
	n := s.room.Take(ctx, min(len(tasks), atOnce))
	if n == 0 {
		return sink.All(len(tasks), s.maker.away(context.Cause(ctx)))
	}
	defer s.room.Give(n)
	tasks = tasks[:n]
	flights, release := s.send(ctx, conn, stream, tasks)
	defer release()
	errs := make([]error, len(tasks))
	for i, f := range flights {
		if f.err != nil {
			errs[i] = f.err
			continue
		}
		ack, err := f.wait()
		if err != nil {
			errs[i] = s.verdict(conn, f.future.Msg(), err)
			continue
		}
		tocsin.OutputOf(ctx, tasks[i].JobID, fmt.Sprintf("%s@%d", ack.Stream, ack.Sequence))
	}
	return errs
}

// send publishes the messages. The caller releases what watches their subjects.
func (s *subject) send(ctx context.Context, conn *session, stream jetstream.JetStream, tasks []tocsin.Info) (flights []flight, release func()) {
	sent, hangs := make(chan struct{}), time.NewTimer(hung)
	defer close(sent)
	defer context.AfterFunc(ctx, func() {
		select {
		case <-sent:
		case <-hangs.C:
			conn.cut() // nothing else ends a write that the server does not read
		}
	})()
	watched, releases := map[string]context.Context{}, []func(){}
	for _, task := range tasks {
		if ctx.Err() != nil {
			flights = append(flights, flight{err: s.maker.away(context.Cause(ctx))})
			continue
		}
		m, err := s.route.Message(task)
		if err != nil {
			flights = append(flights, flight{err: err})
			continue
		}
		msg, err := encode(m)
		if err != nil {
			flights = append(flights, flight{err: sink.Unfit(s.maker.cfg.Errorf("%w", err))})
			continue
		}
		if watched[msg.Subject] == nil {
			var done func()
			watched[msg.Subject], done = conn.watch(ctx, msg.Subject)
			releases = append(releases, done)
		}
		hangs.Reset(hung)
		future, err := stream.PublishMsgAsync(msg, jetstream.WithRetryAttempts(0))
		if err != nil {
			if broken := net.Error(nil); errors.As(err, &broken) {
				conn.cut() // a part of the message may have been sent
			}
			err = s.verdict(conn, msg, err)
		}
		flights = append(flights, flight{future, watched[msg.Subject], err})
	}
	return flights, func() {
		for _, done := range releases {
			done()
		}
	}
}

// wait returns the ack, or why there is none. An ack that is there counts, even if the time is over.
func (f flight) wait() (*jetstream.PubAck, error) {
	select {
	case ack := <-f.future.Ok():
		return ack, nil
	case err := <-f.future.Err():
		return nil, err
	case <-f.watched.Done():
	}
	select {
	case ack := <-f.future.Ok():
		return ack, nil
	default:
		return nil, context.Cause(f.watched)
	}
}

// verdict says what becomes of a task whose message was not acknowledged.
func (s *subject) verdict(conn *session, msg *nats.Msg, err error) error {
	cfg, refused := s.maker.cfg, &jetstream.APIError{}
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return tocsin.Bury(cfg.Errorf("the message has %d bytes with its headers, more than max_payload of NATS allows", msg.Size()))
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return s.route.Unserved(cfg.Errorf("%w", noStream(msg.Subject)))
	case errors.Is(err, nats.ErrPermissionViolation):
		return s.route.Unserved(cfg.Errorf("%w", forbidden(msg.Subject)))
	case errors.Is(err, jetstream.ErrInvalidJSAck):
		return s.route.Unserved(cfg.Errorf("who answered on subject %s is no stream: create one that has the subject, and let nobody else answer", msg.Subject))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, jetstream.ErrAsyncPublishTimeout):
		return s.maker.away(fmt.Errorf("no ack for subject %s in time: see whether NATS is well, and that its stream has no_ack: false", msg.Subject))
	case !errors.As(err, &refused):
		return s.maker.away(cmp.Or(context.Cause(conn.ctx), err))
	case refused.ErrorCode == messageTooBig || refused.ErrorCode == headersTooBig:
		return tocsin.Bury(cfg.Errorf("the stream of subject %s refuses the message, of %d bytes with its headers: %s", msg.Subject, msg.Size(), refused.Description))
	}
	err = fmt.Errorf("the stream of subject %s refuses the message: %s (JetStream error %d)", msg.Subject, refused.Description, refused.ErrorCode)
	switch {
	case slices.Contains([]jetstream.ErrorCode{storeFailed, sealed, counters}, refused.ErrorCode):
		return s.route.Unserved(cfg.Errorf("%w", err))
	case refused.Code >= firstOfServers || refused.Code == tooMany || refused.ErrorCode == accountFull || refused.ErrorCode == idInProcess:
		return s.maker.away(err)
	}
	return cfg.Errorf("%w", err)
}

func noStream(subject string) error {
	return fmt.Errorf("no stream has subject %s: create one, with `nats stream add --subjects %s` for instance", subject, subject)
}

func forbidden(subject string) error {
	return fmt.Errorf("the user may not publish to subject %s: allow it in the server's permissions", subject)
}

// away is the error of tasks that NATS can't take now.
func (m *Maker) away(err error) error {
	at, to, fault := strings.Join(m.cfg.Addresses, ", "), loop.Broker("NATS", "sink "+m.cfg.Name), loop.WayOf(err)
	if errors.Is(err, nats.ErrSecureConnWanted) {
		fault = loop.WayPlain
	}
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		err = fmt.Errorf("NATS at %s refuses the user: check username, password and mechanism", at)
	case errors.Is(err, nats.ErrNoServers):
		err = fmt.Errorf("no server of NATS answers at %s: %s", at, to.Do(fault))
	case fault != loop.WaySilent:
		err = fmt.Errorf("no connection to NATS at %s: %w; %s", at, err, to.Do(fault))
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionClosed):
		err = fmt.Errorf("no connection to NATS at %s", at)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("NATS at %s does not answer in time", at)
	}
	return sink.Unavailable(m.cfg.Errorf("%w", err))
}
