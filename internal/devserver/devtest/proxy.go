package devtest

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy is a Relay that breaks connections at a statement. Safe for concurrent use.
type Proxy struct {
	relay *Relay

	mu     sync.Mutex
	match  []byte // in the statement to break at; nil: none
	before bool   // the statement does not reach the server, else the answer does not reach the client
	left   int    // how many more packets are broken
	down   bool   // no new connections
	downAt bool   // refuses new connections from the break on
	broken int

	atBreak func() // called at the next break; nil: nothing

	heldAt []byte        // of the statement whose answer is held back; nil: none
	held   chan struct{} // closed when that was sent
	free   chan struct{} // closed when answers may go on
}

// NewProxy starts a proxy for the server of a DSN and returns the DSN that leads through it.
func NewProxy(tb testing.TB, dsn string) (*Proxy, string) {
	tb.Helper()
	target := address(dsn)
	if target == "" {
		tb.Skip("the test server is not reached by TCP")
	}
	p := &Proxy{}
	p.relay = newRelay(tb, target, func(client, server net.Conn) (up, back func()) {
		if p.isDown() {
			_ = client.Close()
		}
		l := &link{proxy: p, client: client, server: server}
		return l.up, l.answers
	})
	return p, strings.Replace(dsn, target, p.relay.Addr, 1)
}

// AtCommit matches a COMMIT sent on its own. Without its first byte it would also match the settings of a new session.
const AtCommit = "\x03COMMIT"

// BreakAt breaks the next n packets that hold the text: before they reach the server, or else before the answer reaches
// the client.
func (p *Proxy) BreakAt(text string, before bool, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.match, p.before, p.left = []byte(text), before, n
}

// DownAtBreak makes the proxy go down at the next break.
func (p *Proxy) DownAtBreak() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.downAt = true
}

// EndAfterBreak returns a context that ends d after the next break, however long it takes until then.
func (p *Proxy) EndAfterBreak(tb testing.TB, d time.Duration) context.Context {
	ctx, end := context.WithCancel(tb.Context())
	tb.Cleanup(end)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.atBreak = func() { time.AfterFunc(d, end) }
	return ctx
}

// SetDown refuses new connections, or accepts them again.
func (p *Proxy) SetDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

// HoldAt holds back the answer to the first packet that holds the text. held is closed when that was sent; the answer
// goes on after release.
func (p *Proxy) HoldAt(text string) (held <-chan struct{}, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heldAt, p.held, p.free = []byte(text), make(chan struct{}), make(chan struct{})
	return p.held, sync.OnceFunc(func() { close(p.free) })
}

// holds returns what the answer to b waits for; nil: nothing.
func (p *Proxy) holds(b []byte) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.heldAt == nil || !bytes.Contains(b, p.heldAt) {
		return nil
	}
	close(p.held)
	p.heldAt = nil
	return p.free
}

// Breaks returns how many connections the proxy broke.
func (p *Proxy) Breaks() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken
}

// LeadTo makes new connections reach the server of another DSN.
func (p *Proxy) LeadTo(dsn string) { p.relay.aim(address(dsn)) }

// address returns the part of a DSN in tcp(...), or "".
func address(dsn string) string {
	_, rest, _ := strings.Cut(dsn, "tcp(")
	address, _, _ := strings.Cut(rest, ")")
	return address
}

func (p *Proxy) isDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// link is one connection.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	mu             sync.Mutex
	cut            bool            // the next answer is not passed on
	wait           <-chan struct{} // the next answer is passed on when this is closed; nil: at once
}

// up carries what the client sends.
func (l *link) up() {
	buf := make([]byte, 1<<20)
	for {
		n, err := l.client.Read(buf)
		if err != nil {
			return
		}
		hit, before := l.proxy.hit(buf[:n])
		if hit && before {
			return
		}
		l.mu.Lock()
		l.cut = l.cut || hit
		if wait := l.proxy.holds(buf[:n]); wait != nil {
			l.wait = wait
		}
		l.mu.Unlock()
		if _, err := l.server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// answers carries what the server sends.
func (l *link) answers() {
	_, _ = io.Copy(writer(func(b []byte) (int, error) {
		l.mu.Lock()
		cut, wait := l.cut, l.wait
		l.mu.Unlock()
		if wait != nil {
			<-wait
		}
		if cut {
			return 0, io.ErrClosedPipe
		}
		return l.client.Write(b)
	}), onlyReader{l.server})
}

func (p *Proxy) hit(b []byte) (hit, before bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 || !bytes.Contains(b, p.match) {
		return false, false
	}
	p.left--
	p.broken++
	p.down = p.down || p.downAt
	if p.atBreak != nil {
		p.atBreak()
		p.atBreak = nil
	}
	return true, p.before
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

type onlyReader struct{ io.Reader }
