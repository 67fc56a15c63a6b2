package devtest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Relay is a way to a server that can be cut: a TCP proxy on an address of its own. Safe for concurrent use.
type Relay struct {
	Addr string // where it listens

	group sync.WaitGroup                                  // accept and what link returns
	link  func(client, server net.Conn) (up, back func()) // carry one connection each way, until either side ends

	mu       sync.Mutex
	target   string
	listener net.Listener // nil while it is cut
	conns    []net.Conn
}

// NewRelay starts a relay to the server at target, "127.0.0.1:port". It ends with the test.
func NewRelay(tb testing.TB, target string) *Relay {
	tb.Helper()
	return newRelay(tb, target, func(client, server net.Conn) (up, back func()) {
		return func() { _, _ = io.Copy(server, client) }, func() { _, _ = io.Copy(client, server) }
	})
}

func newRelay(tb testing.TB, target string, link func(client, server net.Conn) (up, back func())) *Relay {
	tb.Helper()
	r := &Relay{Addr: "127.0.0.1:0", target: target, link: link}
	r.Mend(tb)
	tb.Cleanup(func() {
		r.Cut()
		r.group.Wait()
	})
	return r
}

// Cut breaks all connections, and new ones are refused until Mend.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		_ = r.listener.Close()
		r.listener = nil
	}
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

// Mend makes a relay that was cut listen again, on the same address.
func (r *Relay) Mend(tb testing.TB) {
	tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	listener, err := net.Listen("tcp", r.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	r.Addr, r.listener = listener.Addr().String(), listener
	r.group.Go(func() { r.accept(listener) })
}

// LeadTo cuts the relay and mends it with another server behind it.
func (r *Relay) LeadTo(tb testing.TB, target string) {
	tb.Helper()
	r.Cut()
	r.aim(target)
	r.Mend(tb)
}

// aim makes new connections reach another server.
func (r *Relay) aim(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
}

func (r *Relay) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		target := r.target
		r.mu.Unlock()
		server, err := net.Dial("tcp", target)
		if err != nil {
			_ = client.Close()
			continue
		}
		r.carry(listener, client, server)
	}
}

// carry links both ways until either side ends, unless the relay has been cut since listener accepted client.
func (r *Relay) carry(listener net.Listener, client, server net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	both := []net.Conn{client, server}
	if r.listener != listener {
		closeAll(both)
		return
	}
	r.conns = append(r.conns, both...)
	up, back := r.link(client, server)
	r.group.Go(func() { up(); closeAll(both) })
	r.group.Go(func() { back(); closeAll(both) })
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}
