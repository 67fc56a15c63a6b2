package assign

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// Time-outs of Dial and of the connections it makes.
const (
	defaultDialTimeout = 5 * time.Second
	aliveInterval      = 10 * time.Second // between pings of a silent connection; etcd cuts who pings more often than every 5 s
	aliveTimeout       = time.Second      // for the answer to one, and for the peer to acknowledge what is sent
	probeTimeout       = time.Second      // for finding out what is wrong
	connectTimeout     = 5 * time.Second  // for one attempt to connect
)

// reconnect is how long to wait between attempts to connect: not as long as between two renewals of the shortest lease.
// gRPC's own waits grow to two minutes: after a longer outage of etcd a node would come back long after the pause in which
// the others leave it its tables.
var reconnect = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}

// EtcdConfig says how to reach etcd.
type EtcdConfig struct {
	Endpoints          []string      // host:port, or a URL
	Username, Password string        // "" where etcd asks for none
	TLS                *tls.Config   // nil: plain text, unless an endpoint is an https URL
	Timeout            time.Duration // for etcd to answer; 0: 5 s
}

// ErrAway is in the error of Dial if no endpoint could be reached, or answered in time: etcd may come back by itself. Other
// errors, such as a wrong password, call for another config.
var ErrAway = errors.New("away")

// away marks an error as ErrAway, in the same words.
type away struct{ error }

// Unwrap returns both of its meanings.
func (a away) Unwrap() []error { return []error{ErrAway, a.error} }

// Dial makes a client and has one of the endpoints answer. The error is one line that names them, without the password.
// The client is safe for concurrent use, goes on by itself after an outage, logs nothing, and is the caller's to close.
func Dial(ctx context.Context, cfg EtcdConfig) (*clientv3.Client, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("etcd: no endpoints")
	}
	for _, endpoint := range cfg.Endpoints {
		if err := CheckEndpoint(endpoint); err != nil {
			return nil, advised{err, etcd.Do(loop.WayForm)}
		}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultDialTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	client, err := newClient(ctx, cfg)
	if err == nil {
		if err = answer(ctx, client); err == nil {
			return client, nil
		}
		_ = client.Close()
	}
	return nil, fmt.Errorf("etcd %s: %w", strings.Join(cfg.Endpoints, ", "), explain(cfg, err))
}

// newClient signs in at once where there is a user name; nothing else is asked of etcd. Connections are pinged only while
// a call or watch is under way on them (PermitWithoutStream is false): etcd permits no other pings, whatever their
// interval, and after three of them cuts the connection ("too_many_pings"). With several endpoints most connections are
// idle; that one is dead shows when it is used, as the kernel then waits no longer than aliveTimeout for acknowledgement.
func newClient(ctx context.Context, cfg EtcdConfig) (*clientv3.Client, error) {
	left := cfg.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		left = max(time.Until(deadline), time.Millisecond) // New ignores ctx
	}
	return clientv3.New(clientv3.Config{
		Endpoints: cfg.Endpoints, Username: cfg.Username, Password: cfg.Password, TLS: cfg.TLS,
		DialTimeout: left, DialKeepAliveTime: aliveInterval, DialKeepAliveTimeout: aliveTimeout,
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: connectTimeout})},
	})
}

// answer asks for a lease's state, which every user may: that there is no such lease is an answer too.
func answer(ctx context.Context, client *clientv3.Client) error {
	_, err := client.TimeToLive(ctx, 1)
	return err
}

// explain replaces a time-out, which is all that the client says, by why the first endpoint can't be reached.
func explain(cfg EtcdConfig, err error) error {
	if status.Code(err) == codes.Unavailable {
		return away{err}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		if Advice(err) == "" {
			err = advised{err, etcd.Advice(err)}
		}
		return err
	}
	conn, why := net.DialTimeout("tcp", hostOf(cfg.Endpoints[0]), probeTimeout)
	if why != nil {
		return away{advised{fmt.Errorf("not reachable: %w", why), etcd.Advice(why)}}
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(probeTimeout))
	if cfg.TLS != nil || strings.HasPrefix(cfg.Endpoints[0], "https:") {
		if why := refusedTLS(conn, cfg); why != nil {
			return why
		}
	} else if why := refusedPlain(conn, cfg.Endpoints[0]); why != nil {
		return why
	}
	return away{advised{fmt.Errorf("no answer in time: %w", err), doReach}}
}

// refusedTLS says why the two sides don't agree on TLS, if that is what is wrong.
func refusedTLS(conn net.Conn, cfg EtcdConfig) error {
	with := cfg.TLS.Clone()
	if with == nil {
		with = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	with.NextProtos = []string{"h2"}
	if with.ServerName == "" {
		with.ServerName, _, _ = net.SplitHostPort(hostOf(cfg.Endpoints[0]))
	}
	probe := tls.Client(conn, with)
	err := probe.Handshake()
	dropped := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	if err == nil {
		_, err = probe.Read(make([]byte, 1)) // a refusal of our certificate comes here
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if dropped || errors.As(err, new(tls.RecordHeaderError)) || errors.Is(err, io.EOF) {
		return advised{fmt.Errorf("the config asks for TLS, and it speaks none: %w", err), doPlain}
	}
	return advised{fmt.Errorf("no TLS with it: %w", err), etcd.Advice(err)}
}

// http2 begins what a client says. The server's first frame has the type of settings, at this offset.
const (
	http2       = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	frameType   = 3
	frameOfHTTP = 4
)

// refusedPlain says what answers in plain text, if it is not what gRPC runs on.
func refusedPlain(conn net.Conn, endpoint string) error {
	_, _ = io.WriteString(conn, http2)
	said := make([]byte, frameType+1)
	n, err := io.ReadFull(conn, said)
	if n == len(said) && said[frameType] == frameOfHTTP || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if speaksTLS(endpoint) {
		return advised{errors.New("it wants TLS, and the config gives none"), etcd.Do(loop.WaySecure)}
	}
	if n == 0 {
		return away{advised{fmt.Errorf("it closes each connection at once: %w", err), etcd.Do(loop.WayClosed)}}
	}
	return advised{fmt.Errorf("it answers %q, which is not HTTP/2", said[:n]), doOther}
}

// speaksTLS asks whether it does; nothing is told.
func speaksTLS(endpoint string) bool {
	conn, err := net.DialTimeout("tcp", hostOf(endpoint), probeTimeout)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(probeTimeout))
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
	return err == nil || errors.As(err, new(tls.AlertError))
}

// CheckEndpoint refuses what is neither host:port nor a URL with http or https and a port. etcd's client takes it, and fails to connect.
func CheckEndpoint(endpoint string) error {
	rest := endpoint
	if scheme, address, is := strings.Cut(endpoint, "://"); is && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")) {
		rest = strings.TrimSuffix(address, "/")
	}
	host, port, err := net.SplitHostPort(rest)
	if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || n == 0 || host == "" || strings.ContainsAny(host, "/@?#, \t") {
		return fmt.Errorf("etcd endpoint %q: want host:port, or a URL with http or https", endpoint)
	}
	return nil
}

// hostOf gives host:port of an endpoint.
func hostOf(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		return u.Host
	}
	return endpoint
}
