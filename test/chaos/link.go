package chaos

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"
)

// link is the way of one process to one server. Several faults may be in force at
// once; it is mended when the last has ended.
type link struct {
	proxy   *toxiproxy.Proxy // nil: the process connects to the server itself
	address string           // where the process connects to

	mu     sync.Mutex
	faults int
	toxic  []string // names of those in force
}

// upstream is where it leads to.
func (l *link) upstream() string { return l.proxy.Upstream }

// openLink makes the way to a port, through one of the proxies, or without one if there are none.
func openLink(proxies *toxiproxy.ApiServer, name string, port int) (*link, error) {
	if proxies == nil {
		return &link{address: upstream(port)}, nil
	}
	p := toxiproxy.NewProxy(proxies, name, "127.0.0.1:0", upstream(port))
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("proxy %s: %w", name, err)
	}
	return &link{proxy: p, address: p.Listen}, nil
}

func upstream(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// begin puts a fault in force, on top of others.
func (l *link) begin(harm func(*link) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults++
	return harm(l)
}

// end takes the faults away if this was the last.
func (l *link) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.faults--; l.faults > 0 {
		return nil
	}
	return l.mend()
}

// cut lets nothing through any more, in both directions; connections stay open
// and new ones are accepted, as with a network that drops packets.
func (l *link) cut() error { return l.add("timeout", `{"timeout": 0}`, "upstream", "downstream") }

// slow delays every packet of the answers.
func (l *link) slow(by time.Duration) error {
	return l.add("latency", fmt.Sprintf(`{"latency": %d}`, by.Milliseconds()), "downstream")
}

// halve ends each connection in the middle of an answer: the first bytes of it come through, and the sender is not told.
func (l *link) halve() error { return l.add("limit_data", `{"bytes": 700}`, "downstream") }

// reset breaks each connection, with RST, at its next packet.
func (l *link) reset() error { return l.add("reset_peer", `{"timeout": 0}`, "upstream", "downstream") }

// add is called under l.mu.
func (l *link) add(kind, attributes string, streams ...string) error {
	for _, stream := range streams {
		name := kind + "_" + stream
		if slices.Contains(l.toxic, name) {
			continue
		}
		text := fmt.Sprintf(`{"name": %q, "type": %q, "stream": %q, "attributes": %s}`, name, kind, stream, attributes)
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
			return fmt.Errorf("proxy %s: %s: %w", l.proxy.Name, kind, err)
		}
		l.toxic = append(l.toxic, name)
	}
	return nil
}

// mend takes every fault away. Called under l.mu.
func (l *link) mend() error {
	for _, name := range l.toxic {
		if err := l.proxy.Toxics.RemoveToxic(context.Background(), name); err != nil {
			return fmt.Errorf("proxy %s: mend %s: %w", l.proxy.Name, name, err)
		}
	}
	l.toxic = nil
	return nil
}

// move breaks all connections and sends new ones to another port.
func (l *link) move(port int) error {
	return l.proxy.Update(&toxiproxy.Proxy{Listen: l.proxy.Listen, Upstream: upstream(port), Enabled: true})
}

// close ends the proxy and its connections.
func (l *link) close() {
	if l.proxy != nil {
		l.proxy.Stop()
	}
}
