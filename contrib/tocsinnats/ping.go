package tocsinnats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
)

const (
	namesOfStreams = "$JS.API.STREAM.NAMES" // what nats.go asks for the stream of a subject
	aboutUser      = "$SYS.REQ.USER.INFO"

	pingWithin = 5 * time.Second
	userWithin = time.Second // servers before 2.10 do not answer
)

// Ping connects, and asks NATS whether a stream has the policy's subject and whether the user may publish to it. If the user lacks the right
// to ask, Ping reports no fault: deliveries do not need that right. It publishes nothing.
func (m *Maker) Ping(ctx context.Context, p tocsin.Policy) error {
	route, err := sink.NewRoute(m.cfg, p, checkSubject)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pingWithin)
	defer cancel()
	s, err := m.enter(ctx)
	if err != nil {
		return m.away(err)
	}
	defer m.leave()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(s.ctx, func() { end(context.Cause(s.ctx)) })()
	if !route.Fixed() {
		return nil
	}
	if err := s.hasStream(ctx, route.Topic()); err != nil {
		return m.away(err)
	}
	if !s.mayPublish(ctx, route.Topic()) {
		return m.away(forbidden(route.Topic()))
	}
	return nil
}

// hasStream returns an error if no stream has the subject.
func (s *session) hasStream(ctx context.Context, subject string) error {
	watched, release := s.watch(ctx, namesOfStreams)
	defer release()
	_, err := s.stream.StreamNameBySubject(watched, subject)
	switch cause := context.Cause(watched); {
	case err == nil || errors.Is(cause, nats.ErrPermissionViolation):
		return nil
	case cause != nil:
		return cause
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return noStream(subject)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return errors.New("JetStream is not enabled on the server, or not for the user's account: enable it")
	default:
		return cmp.Or(context.Cause(s.ctx), fmt.Errorf("ask for the stream of subject %s: %w", subject, err))
	}
}

// mayPublish reports whether the user's permissions have the subject, as far as the server tells them.
func (s *session) mayPublish(ctx context.Context, subject string) bool {
	ctx, cancel := context.WithTimeout(ctx, userWithin)
	defer cancel()
	watched, release := s.watch(ctx, aboutUser)
	defer release()
	answer, err := s.conn.RequestWithContext(watched, aboutUser, nil)
	var user struct {
		Data struct {
			Permissions struct {
				Publish struct{ Allow, Deny []string }
			}
		}
	}
	if err != nil || json.Unmarshal(answer.Data, &user) != nil {
		return true
	}
	publish, has := user.Data.Permissions.Publish, func(pattern string) bool { return covers(pattern, subject) }
	return (len(publish.Allow) == 0 || slices.ContainsFunc(publish.Allow, has)) && !slices.ContainsFunc(publish.Deny, has)
}
