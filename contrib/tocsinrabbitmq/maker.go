package tocsinrabbitmq

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/sink"
)

// plain is the only mechanism: RabbitMQ offers it by default.
const plain = "PLAIN"

// Maker makes the sinks of one RabbitMQ, which share its connection. It implements sink.Maker.
type Maker struct {
	cfg   sink.Config
	hosts []string // host:port
	vhost string
	log   *slog.Logger
	limit loop.LogLimit

	room  *sink.Room // of channels
	jobs  chan job   // taken by a worker that has nothing to do
	ctx   context.Context
	stop  context.CancelFunc
	ended chan struct{} // closed when run has returned, or will never run

	mu      sync.Mutex
	started bool
	why     error         // why nothing can be sent; nil: it can, or a connection is being made
	changed chan struct{} // closed when why changes
}

// New returns the maker of the sinks of one RabbitMQ, or one line that says what is wrong. It connects to nothing.
func New(cfg sink.Config) (*Maker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Mechanism != "" && cfg.Mechanism != plain {
		return nil, cfg.Errorf("mechanism %q: RabbitMQ takes %s, which is the default", cfg.Mechanism, plain)
	}
	if cfg.Username == "" {
		cfg.Username, cfg.Password = "guest", "guest" // RabbitMQ's own default, for clients on its machine
	}
	m := &Maker{
		cfg: cfg, log: loop.Logger(cfg.Logger).With("sink", cfg.Name),
		room: sink.NewRoom(channels), jobs: make(chan job), ended: make(chan struct{}), changed: make(chan struct{}),
	}
	for i, address := range cfg.Addresses {
		host, vhost, named := strings.Cut(address, "/")
		if !named {
			vhost = "/"
		}
		if _, port, err := net.SplitHostPort(host); err != nil || port == "" || vhost == "" || strings.ContainsAny(host, "@ ") {
			return nil, cfg.Errorf("address %d is not host:port or host:port/vhost, without a scheme, username or password", i+1)
		}
		if i > 0 && vhost != m.vhost {
			return nil, cfg.Errorf("its addresses have vhost %s and vhost %s: give all of them the same, or make two sinks", m.vhost, vhost)
		}
		m.hosts, m.vhost = append(m.hosts, host), vhost
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m, nil
}

// Sink implements sink.Maker.
func (m *Maker) Sink(p tocsin.Policy) (sink.Sink, error) {
	route, err := sink.NewRoute(m.cfg, p, fits)
	if err != nil {
		return nil, err
	}
	return &publisher{m, route, m.room.Share()}, nil
}

// fits returns an error for a topic that is too long for a routing key.
func fits(topic string) error { return short("a routing key", topic) }

// short returns an error for a text that is too long for AMQP. The client closes the connection of all policies over such a text.
func short(what, text string) error {
	if len(text) > maxShort {
		return fmt.Errorf("%s has %d bytes, and RabbitMQ takes %d", what, len(text), maxShort)
	}
	return nil
}

// maxShort is the most bytes of a short string of AMQP.
const maxShort = 255

// Close implements sink.Maker.
func (m *Maker) Close(ctx context.Context) error {
	m.stop()
	m.mu.Lock()
	if !m.started {
		m.started = true
		close(m.ended)
	}
	m.mu.Unlock()
	m.tell(nil)
	select {
	case <-m.ended:
		return nil
	case <-ctx.Done():
		return m.cfg.Errorf("its connection has not ended: %w", context.Cause(ctx))
	}
}

// use makes sure that there is, or will be, a connection.
func (m *Maker) use() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.started {
		m.started = true
		go m.run() // Close waits for it
	}
}

// tell sets why nothing can be sent. From Close on that is the reason.
func (m *Maker) tell(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		why = m.isClosed()
	}
	m.why = why
	close(m.changed)
	m.changed = make(chan struct{})
}

// state returns why nothing can be sent, if so, and a channel that is closed when that changes.
func (m *Maker) state() (changed <-chan struct{}, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed, m.why
}

func (m *Maker) isClosed() error { return m.cfg.Errorf("it is closed") }
