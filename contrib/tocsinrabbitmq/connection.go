package tocsinrabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tocsinhq/tocsin/internal/loop"
)

const (
	dialWithin  = 5 * time.Second  // for one address, with TLS and the handshake of AMQP
	closeWithin = time.Second      // for RabbitMQ's answer to a close; while it blocks publishers it gives none
	heartbeat   = 10 * time.Second // a connection that is silent for three of them is lost
	firstWait   = 100 * time.Millisecond
	longestWait = 2 * time.Second  // between two attempts to connect
	steady      = 10 * time.Second // a connection that lasted as long is replaced at once
	channels    = 128              // of a connection, for as many deliveries at once
)

// run keeps a connection, until Close.
func (m *Maker) run() {
	defer close(m.ended)
	wait := firstWait
	for {
		lasted, err := m.serve()
		if m.ctx.Err() != nil {
			return
		}
		m.limit.Of(m.log, "connection").Warn("there is no connection to RabbitMQ: it is tried again", "error", err)
		if lasted > steady {
			m.tell(nil) // deliveries wait for the new one
			wait = firstWait
			continue
		}
		m.tell(err)
		if loop.Wait(m.ctx, wait/2+rand.N(wait/2)) != nil { // not all nodes at once
			return
		}
		wait = min(2*wait, longestWait)
	}
}

// serve connects, and returns why there is no connection any more, and how long there was one. Nothing of it is left then.
func (m *Maker) serve() (lasted time.Duration, err error) {
	l, err := m.dial(m.ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	lost := l.NotifyClose(make(chan *amqp.Error, 1))
	blocked := l.NotifyBlocked(make(chan amqp.Blocking, 16))
	alive, end := context.WithCancel(m.ctx)
	var workers sync.WaitGroup
	var taken atomic.Int64
	for range channels {
		workers.Go(func() { (&worker{m: m, conn: l.Connection, taken: &taken}).work(alive) })
	}
	m.log.Info("connected to RabbitMQ", "address", l.host)
	m.tell(nil)
	err = m.watch(lost, blocked)
	lasted = time.Since(began)
	end()
	_ = l.CloseDeadline(time.Now().Add(closeWithin)) // it may be lost
	workers.Wait()
	return lasted, err
}

// watch returns when the connection is lost, or with Close.
func (m *Maker) watch(lost <-chan *amqp.Error, blocked <-chan amqp.Blocking) error {
	for {
		select {
		case <-m.ctx.Done():
			return m.ctx.Err()
		case e := <-lost:
			return m.lost(e)
		case b, open := <-blocked:
			switch {
			case !open:
				blocked = nil // lost says more
			case b.Active:
				m.tell(m.cfg.Errorf("RabbitMQ takes no messages until it has more memory or disk: %s", b.Reason))
			default:
				m.tell(nil)
			}
		}
	}
}

// link is a connection.
type link struct {
	*amqp.Connection
	socket net.Conn
	host   string
}

// dial connects to one of the addresses.
func (m *Maker) dial(ctx context.Context) (*link, error) {
	var all []string
	for _, i := range rand.Perm(len(m.hosts)) {
		l, err := m.dialHost(ctx, m.hosts[i])
		if err == nil {
			return l, nil
		}
		all = append(all, err.Error())
	}
	return nil, m.cfg.Errorf("%s", strings.Join(all, "; "))
}

func (m *Maker) dialHost(ctx context.Context, host string) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	socket, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, m.notReached(host, err)
	}
	free := context.AfterFunc(ctx, func() { _ = socket.Close() }) // the handshakes know no context
	conn, err := m.handshake(ctx, host, socket)
	if !free() {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = socket.Close()
		return nil, m.notReached(host, err)
	}
	return &link{conn, socket, host}, nil
}

func (m *Maker) handshake(ctx context.Context, host string, socket net.Conn) (*amqp.Connection, error) {
	var stream io.ReadWriteCloser = socket
	if m.cfg.TLS != nil {
		t := m.cfg.TLS.Clone()
		if t.ServerName == "" {
			t.ServerName, _, _ = net.SplitHostPort(host) // New has looked at it
		}
		client := tls.Client(socket, t)
		if err := client.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		stream = client
	}
	properties := amqp.NewConnectionProperties()
	properties["connection_name"] = "tocsin " + m.cfg.Name
	return amqp.Open(stream, amqp.Config{
		SASL:       []amqp.Authentication{&amqp.PlainAuth{Username: m.cfg.Username, Password: m.cfg.Password}},
		Vhost:      m.vhost,
		Heartbeat:  heartbeat,
		Locale:     "en_US",
		Properties: properties,
	})
}

// notReached says what to do about an error of dialHost. None has the password.
func (m *Maker) notReached(host string, err error) error {
	var closed *amqp.Error
	to := loop.Broker("RabbitMQ", "sink "+m.cfg.Name)
	switch {
	case errors.Is(err, amqp.ErrSASL):
		return fmt.Errorf("%s does not offer mechanism %s: allow it in its auth_mechanisms", host, plain)
	case errors.Is(err, amqp.ErrVhost) || errors.As(err, &closed) && closed.Code == amqp.NotAllowed:
		return fmt.Errorf("%s does not let user %s use vhost %s: add it, or give the user rights there (rabbitmqctl set_permissions): %w", host, m.cfg.Username, m.vhost, err)
	case closed != nil && closed.Code == amqp.AccessRefused:
		return fmt.Errorf("%s does not let user %s in: check the sink's username and password", host, m.cfg.Username)
	case closed != nil:
		return fmt.Errorf("%s does not answer as RabbitMQ: %s; %s", host, closed.Reason, to.Do(loop.WayClosed))
	}
	return fmt.Errorf("no connection to RabbitMQ at %s: %w; %s", host, err, to.Advice(err))
}

// lost says how a connection ended.
func (m *Maker) lost(e *amqp.Error) error {
	if e == nil {
		return m.cfg.Errorf("the connection to RabbitMQ was closed")
	}
	return m.cfg.Errorf("the connection to RabbitMQ was lost: %s", e.Reason)
}
