package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"code.dny.dev/ssrf"
	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
)

// NodeHeader names the node that sent a callback.
const NodeHeader = "Tocsin-Node"

const (
	bodyCap = 64 << 10        // bytes of an answer that are read, so that its connection can be used again
	snippet = tocsin.MaxError // characters of an answer that go into last_error

	outputCap = 4 * tocsin.MaxOutput // bytes of an answer that hold as many characters as a run's output may have

	bodyWait = time.Second // for the rest of an answer whose status is known; then its connection is closed

	maxSecrets = 2 // the new one and the one it replaces
)

// SinkConfig says where callbacks go and how.
type SinkConfig struct {
	URL     string        // http or https
	Secrets []string      // whsec_ and the base64 of 24 bytes or more; at most two, each signs; none: unsigned
	Allow   []string      // private CIDRs that may be dialled
	Node    string        // sent as NodeHeader; "" sends none
	Conns   int           // idle connections kept; 0: 64
	Timeout time.Duration // of a delivery: connecting may take a part of it; 0: 30 s
	Batch   int           // tasks of one request at most, in its batch form; 0: the form of one task
}

// Sink posts tasks to one URL. Safe for concurrent use.
type Sink struct {
	cfg    SinkConfig
	sign   []*standard.Webhook
	client *http.Transport
	fresh  *http.Transport // keeps no connections
}

// NewSink checks the config. It connects to nothing.
func NewSink(cfg SinkConfig) (*Sink, error) {
	defaults := tocsin.Policy{}.WithDefaults()
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaults.Timeout.D()
	}
	if cfg.Conns <= 0 {
		cfg.Conns = defaults.Concurrency
	}
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("webhook: want an absolute http or https URL")
	case len(cfg.Secrets) > maxSecrets:
		return nil, fmt.Errorf("webhook: %d secrets, more than %d", len(cfg.Secrets), maxSecrets)
	}
	sign, err := parseSecrets(cfg.Secrets)
	if err != nil {
		return nil, err
	}
	guard, err := newGuard(cfg.Allow)
	return &Sink{cfg: cfg, sign: sign, client: newClient(cfg, guard, true), fresh: newClient(cfg, guard, false)}, err
}

// FromPolicy makes the sink of a webhook policy. secret gives the values of the
// secrets that the policy names; see Secrets.
func FromPolicy(p tocsin.Policy, node string, secret func(name string) (string, error)) (*Sink, error) {
	if p.Webhook == nil {
		return nil, fmt.Errorf("biz type %s has no webhook", p.Name)
	}
	cfg := SinkConfig{URL: p.Webhook.URL, Allow: p.Webhook.Allow, Batch: p.Webhook.Batch, Node: node, Conns: p.WithDefaults().Concurrency, Timeout: p.WithDefaults().Timeout.D()}
	for _, name := range p.Webhook.Secrets {
		value, err := secret(name)
		if err != nil {
			return nil, fmt.Errorf("biz type %s: %w", p.Name, err)
		}
		cfg.Secrets = append(cfg.Secrets, value)
	}
	s, err := NewSink(cfg)
	if err != nil {
		return nil, fmt.Errorf("biz type %s: %w", p.Name, err)
	}
	return s, nil
}

// Deliver posts the tasks, one after another or in batches, and returns one error each.
func (s *Sink) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
	errs := make([]error, len(tasks))
	if s.cfg.Batch > 0 {
		s.postBatches(ctx, tasks, errs)
		return errs
	}
	for i, task := range tasks {
		errs[i] = s.post(ctx, task)
	}
	return errs
}

// Close gives idle connections back. Deliveries under way go on.
func (s *Sink) Close() { s.client.CloseIdleConnections() }

func (s *Sink) post(ctx context.Context, task tocsin.Info) error {
	now := time.Now()
	stored, err := task.Headers.All()
	if err != nil {
		return unsent{err}
	}
	answer, text, err := s.exchange(ctx, task.Key(), Body(task, now), stored, now)
	if err != nil {
		return err
	}
	err = verdict(answer, text, now)
	keep(ctx, task, string(text), err)
	return err
}

// keep stores what a receiver said of a task as the output of the attempt, unless the error says it all.
func keep(ctx context.Context, task tocsin.Info, text string, err error) {
	if err == nil || len(text) > snippet {
		tocsin.OutputOf(ctx, task.JobID, strings.TrimSpace(text[:min(len(text), outputCap)]))
	}
}

// exchange posts a body under an id, signed, and returns the answer with its text. Of one task, and of a refusal, the status
// alone decides, and not much of the text is read. The text of a batch has the results.
func (s *Sink) exchange(ctx context.Context, id string, body []byte, stored map[string]string, now time.Time) (*http.Response, []byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var t trip
	req, err := http.NewRequestWithContext(t.traced(ctx), http.MethodPost, s.cfg.URL, nil)
	if err != nil {
		return nil, nil, err
	}
	trace(req, stored)
	if err := s.head(req, id, now, body); err != nil {
		return nil, nil, err
	}
	answer, err := s.do(req, &t, body)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	if s.cfg.Batch > 0 && answer.StatusCode/100 == 2 {
		text, err := io.ReadAll(io.LimitReader(answer.Body, batchCap+1))
		if err != nil {
			return nil, nil, unanswered{why: halfAnswered(err), err: err}
		}
		return answer, text, nil
	}
	if answer.StatusCode == http.StatusSwitchingProtocols { // the body is the connection itself, whose reading no context ends
		return answer, nil, nil
	}
	defer time.AfterFunc(bodyWait, cancel).Stop()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, bodyCap))
	return answer, text, nil
}

// resends is how often a request is sent again of which nothing arrived: an idle connection that is used next may be closed too. The last time it
// has a new connection of its own.
const resends = 4

// do sends a request until there is an answer, or none can be expected. It alone decides what is sent again: net/http would repeat
// whatever has an idempotency key, also what a receiver has read and ended over, by one connection after the other, and would wait for up to 31 s over a
// receiver that refuses streams.
func (s *Sink) do(req *http.Request, t *trip, body []byte) (*http.Response, error) {
	by := s.client
	var first error // of a sending that may have arrived, after which it was sent again
	for sent := 1; ; sent++ {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body)) // and no GetBody
		answer, err := by.RoundTrip(req)
		if err == nil && !t.early(answer) {
			return answer, nil
		}
		came := nowhere
		if err == nil {
			_ = answer.Body.Close()
			err = errIdleClosed
		} else {
			came = t.end(req.Context(), err)
		}
		switch retry := t.reused || refusedStream(err) != ""; {
		case came == nowhere && retry && sent <= resends:
			if sent == resends {
				by = s.fresh
			}
		case came == unknown && t.reused && first == nil && closedByPeer(err):
			first = t.fail(err, unknown)
			resent(req.Context())
			by = s.fresh // as other kept connections may be as old
		case came == nowhere && first != nil:
			return nil, first
		default:
			return nil, t.fail(err, came)
		}
		req = req.Clone(req.Context()) // the client may hold on to the one before
	}
}

// resent counts that a request is sent again that may have arrived.
func resent(ctx context.Context) {
	if count, ok := ctx.Value(client.ResentKey).(func()); ok {
		count()
	}
}

// head sets the headers and signs with every secret.
func (s *Sink) head(req *http.Request, id string, now time.Time, body []byte) error {
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "tocsin")
	if s.cfg.Node != "" {
		req.Header.Set(NodeHeader, s.cfg.Node)
	}
	if user := req.URL.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	req.Header.Set(standard.HeaderWebhookID, id)
	req.Header.Set(standard.HeaderWebhookTimestamp, fmt.Sprint(now.Unix()))
	signatures := make([]string, len(s.sign))
	for i, w := range s.sign {
		signature, err := w.Sign(id, now, body)
		if err != nil {
			return fmt.Errorf("sign: %w", err)
		}
		signatures[i] = signature
	}
	if len(signatures) > 0 {
		req.Header.Set(standard.HeaderWebhookSignature, strings.Join(signatures, " "))
	}
	return nil
}

// unsent is why the receiver was not asked about a task.
type unsent struct{ err error }

func (u unsent) Error() string { return "callback: " + u.err.Error() }
func (u unsent) Unwrap() error { return u.err }

// Unsent reports that the receiver was not asked: the task has failed, and nothing is learnt of the receiver.
func (u unsent) Unsent() bool { return true }

const (
	dialTimeout = 5 * time.Second // at most
	idleTimeout = 90 * time.Second
	pingAfter   = 10 * time.Second // of silence on an HTTP/2 connection: a dead one must not take the next callbacks too
)

// newClient follows no redirect, as an http.Client would even to tell where it points, uses no proxy, and dials only what the guard
// lets pass. The guard sees the address that is dialled, after the look-up, so
// a name that resolves to a private address is refused too.
func newClient(cfg SinkConfig, guard *ssrf.Guardian, keep bool) *http.Transport {
	connect := min(dialTimeout, cfg.Timeout/3) // so that a receiver that can't be reached shows before the delivery times out
	dialer := &net.Dialer{Timeout: connect, Control: guard.Safe}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &wire{Conn: c}, nil
		},
		TLSHandshakeTimeout: connect,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: dialTimeout},
		MaxIdleConns:        cfg.Conns,
		MaxIdleConnsPerHost: cfg.Conns,
		IdleConnTimeout:     idleTimeout,
		DisableKeepAlives:   !keep,
	}
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

// notAllowed follows why an address is not dialled.
const notAllowed = "; if it is right, add its network to webhook.allow of the policy"

// Forbidden returns why callbacks may not go to the IP address that a webhook's URL names; nil if they may, or it names a host.
func Forbidden(w tocsin.Webhook) error {
	guard, err := newGuard(w.Allow)
	u, bad := url.Parse(w.URL)
	if err = cmp.Or(err, bad); err != nil {
		return err
	}
	address, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil
	}
	if err := guard.SafeAddr(address.Unmap()); err != nil {
		return fmt.Errorf("%w%s", err, notAllowed)
	}
	return nil
}

// The headers of W3C Trace Context, in a task's headers and in a request.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
)

// What of a task's own context is passed on: others than tracers may have written it.
var (
	parentForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	stateForm  = regexp.MustCompile(`^[ -~]{1,512}$`)
)

type headersKey struct{}

// WithHeaders returns a context under which Deliver sends these headers too. Those that
// every callback has, such as its signature, stay as they are.
func WithHeaders(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, headersKey{}, h)
}

// trace sets the headers of WithHeaders. Unless traceparent is among them, it sets the
// trace context with which the task was added, if it has one.
func trace(req *http.Request, stored map[string]string) {
	given, _ := req.Context().Value(headersKey{}).(http.Header)
	maps.Copy(req.Header, given)
	if req.Header.Get(traceParent) != "" || !parentForm.MatchString(stored[traceParent]) {
		return
	}
	req.Header.Set(traceParent, stored[traceParent])
	if state := stored[traceState]; stateForm.MatchString(state) {
		req.Header.Set(traceState, state)
	}
}
