package tocsinnats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/sink"
)

const (
	atOnce   = 500             // messages of one delivery that wait for acks
	pending  = 4096            // messages of all deliveries that do; a stream refuses more than 10,000
	lastAcks = 2 * time.Second // how long Close waits for acks
)

var errClosed = errors.New("it is closed")

// Maker makes the sinks of policies for one NATS server or cluster. It implements sink.Maker.
type Maker struct {
	cfg  sink.Config
	auth []nats.Option
	room *sink.Room // of pending

	deliveries sync.WaitGroup // added to under mu, while not closed
	opening    sync.WaitGroup // likewise

	mu     sync.Mutex
	closed bool
	latest *session // nil: none yet
}

// New checks the config. It connects to nothing.
func New(cfg sink.Config) (*Maker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	for _, address := range cfg.Addresses {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" || strings.ContainsAny(address, "/@,") {
			return nil, fmt.Errorf("sink %s has an address that is not host:port, such as nats.internal:4222", cfg.Name)
		}
	}
	auth, err := authentication(cfg)
	if err != nil {
		return nil, err
	}
	cfg.Logger = loop.Logger(cfg.Logger)
	return &Maker{cfg: cfg, auth: auth, room: sink.NewRoom(pending)}, nil
}

// authentication returns what proves to the server who connects.
func authentication(cfg sink.Config) ([]nats.Option, error) {
	switch {
	case cfg.Mechanism == "" && cfg.Username == "":
		return nil, nil
	case cfg.Mechanism == "":
		return []nats.Option{nats.UserInfo(cfg.Username, cfg.Password)}, nil
	case cfg.Mechanism == "token" && cfg.Password != "":
		return []nats.Option{nats.Token(cfg.Password)}, nil
	case cfg.Mechanism == "token":
		return nil, fmt.Errorf("sink %s has mechanism token and no password, which would be the token", cfg.Name)
	case cfg.Mechanism != "nkey":
		return nil, cfg.Errorf("NATS has no mechanism %q: name token or nkey, or none for username and password", cfg.Mechanism)
	}
	pair, err := nkeys.FromSeed([]byte(cfg.Password))
	if err != nil {
		return nil, fmt.Errorf("sink %s has mechanism nkey, and its password is not the seed of a user, which begins with SU", cfg.Name)
	}
	if public, err := pair.PublicKey(); err != nil || public != cfg.Username {
		return nil, fmt.Errorf("sink %s has mechanism nkey, and its username is not the public key of its password", cfg.Name)
	}
	return []nats.Option{nats.Nkey(cfg.Username, pair.Sign)}, nil
}

// Sink makes the sink of a policy. It connects to nothing.
func (m *Maker) Sink(p tocsin.Policy) (sink.Sink, error) {
	route, err := sink.NewRoute(m.cfg, p, checkSubject)
	if err != nil {
		return nil, err
	}
	return &subject{m, route, p.WithDefaults().Timeout.D(), m.room.Share()}, nil
}

// Close gives deliveries under way a little time for their acks, ends them, and closes the connection. Sinks return Unavailable from
// then on.
func (m *Maker) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	s := m.latest
	m.mu.Unlock()
	if s == nil {
		return nil
	}
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		m.deliveries.Wait()
	}()
	limit := time.NewTimer(lastAcks)
	defer limit.Stop()
	select {
	case <-delivered:
	case <-limit.C:
	case <-ctx.Done():
	}
	s.end(errClosed)
	<-delivered
	m.opening.Wait()
	if s.conn != nil {
		s.cut() // nothing is left to be sent, and nats.go would wait for a server that does not read
		s.conn.Close()
	}
	<-s.gone
	return nil
}

// enter returns the connection, which the first caller opens, as the first one does after it was given up. The caller calls leave.
func (m *Maker) enter(ctx context.Context) (*session, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, errClosed
	}
	if m.latest == nil || m.latest.ctx.Err() != nil {
		m.latest = m.open(m.latest)
	}
	s := m.latest
	m.deliveries.Add(1)
	m.mu.Unlock()
	select {
	case <-s.opened:
		if s.ctx.Err() == nil {
			return s, nil
		}
	case <-ctx.Done():
	}
	m.leave()
	if s.ctx.Err() != nil {
		return nil, context.Cause(s.ctx)
	}
	return nil, context.Cause(ctx)
}

func (m *Maker) leave() { m.deliveries.Done() }
