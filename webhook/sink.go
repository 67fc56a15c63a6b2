package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"code.dny.dev/ssrf"
	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tocsinhq/tocsin"
)

// NodeHeader names the node that sent a callback.
const NodeHeader = "Tocsin-Node"

const (
	bodyCap = 64 << 10 // bytes of an answer that are read, so that its connection can be used again
	snippet = 120      // bytes of an answer that go into last_error

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
	client *http.Client
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
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	sign, err := parseSecrets(cfg.Secrets)
	if err != nil {
		return nil, err
	}
	client, err := newClient(cfg)
	return &Sink{cfg: cfg, sign: sign, client: client}, err
}

func (c SinkConfig) validate() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("webhook: want an absolute http or https URL")
	case len(c.Secrets) > maxSecrets:
		return fmt.Errorf("webhook: %d secrets, more than %d", len(c.Secrets), maxSecrets)
	}
	return nil
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
		return fmt.Errorf("callback: %w", err)
	}
	b, err := encode(body{Type: task.BizType, Timestamp: instant(now), Data: dataOf(task)})
	if err != nil {
		return err
	}
	answer, text, err := s.exchange(ctx, task.Key(), b, stored, now)
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
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) }, // once more, if a kept connection turned out to be closed before anything was written
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	trace(req, stored)
	if err := s.head(req, id, now, body); err != nil {
		return nil, nil, err
	}
	answer, err := s.client.Do(req)
	if err != nil {
		return nil, nil, shorten(err, connected.Load())
	}
	defer answer.Body.Close()
	if s.cfg.Batch > 0 && answer.StatusCode/100 == 2 {
		text, err := io.ReadAll(io.LimitReader(answer.Body, batchCap+1))
		if err != nil {
			return nil, nil, shorten(err, true)
		}
		return answer, text, nil
	}
	defer time.AfterFunc(bodyWait, cancel).Stop()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, bodyCap))
	return answer, text, nil
}

// head sets the headers and signs with every secret.
func (s *Sink) head(req *http.Request, id string, now time.Time, body []byte) error {
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "tocsin")
	if s.cfg.Node != "" {
		req.Header.Set(NodeHeader, s.cfg.Node)
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

// shorten drops what the client says of method and URL: the policy has both.
func shorten(err error, connected bool) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		if !strings.HasPrefix(err.Error(), "Post ") {
			break
		}
		err = inner
	}
	return unanswered{err, connected}
}

// unanswered is a callback that got no answer.
type unanswered struct {
	err       error
	connected bool // something of the request may have been sent
}

func (u unanswered) Error() string {
	if u.err == context.DeadlineExceeded {
		return "callback: no answer in time"
	}
	return "callback: " + u.err.Error()
}

// Unwrap returns why there was none.
func (u unanswered) Unwrap() error { return u.err }

// NotReached reports that nothing was sent: there was no connection. A refused address is the policy's fault, and a
// delivery that was called off says nothing of the receiver.
func (u unanswered) NotReached() bool {
	return !u.connected && u.FailureCause() == unreachable && !errors.Is(u.err, context.Canceled)
}

// unreachable is the cause of a callback that got no answer.
const unreachable = "unreachable"

// FailureCause returns why there was none, as used in metrics.
func (u unanswered) FailureCause() string {
	for _, refusal := range []error{ssrf.ErrProhibitedNetwork, ssrf.ErrProhibitedPort, ssrf.ErrProhibitedIP, ssrf.ErrInvalidHostPort} {
		if errors.Is(u.err, refusal) {
			return "refused_address"
		}
	}
	return unreachable
}
