package webhook

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"code.dny.dev/ssrf"
)

const (
	dialTimeout = 5 * time.Second // at most
	idleTimeout = 90 * time.Second
	pingAfter   = 10 * time.Second // of silence on an HTTP/2 connection: a dead one must not take the next callbacks too
)

// newClient follows no redirect, uses no proxy, and dials only what the guard
// lets pass. The guard sees the address that is dialled, after the look-up, so
// a name that resolves to a private address is refused too.
func newClient(cfg SinkConfig) (*http.Client, error) {
	guard, err := newGuard(cfg.Allow)
	if err != nil {
		return nil, err
	}
	connect := min(dialTimeout, cfg.Timeout/3) // so that a receiver that can't be reached shows before the delivery times out
	dialer := &net.Dialer{Timeout: connect, Control: guard.Safe}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			TLSHandshakeTimeout: connect,
			ForceAttemptHTTP2:   true,
			HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: dialTimeout},
			MaxIdleConns:        cfg.Conns,
			MaxIdleConnsPerHost: cfg.Conns,
			IdleConnTimeout:     idleTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// newGuard allows public addresses on any port, and the named networks.
func newGuard(allow []string) (*ssrf.Guardian, error) {
	var v4, v6 []netip.Prefix
	for _, text := range allow {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("webhook: allowed network %q: want a CIDR such as 10.0.0.0/8", text)
		}
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix)
		} else {
			v6 = append(v6, prefix)
		}
	}
	return ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...)), nil
}
