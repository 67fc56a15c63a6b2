package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/whsec"
)

// DefaultMaxBody is more than any payload needs, escaped.
const DefaultMaxBody = 1 << 20

// Config of a Receiver. Secrets must be set, or Unsigned.
type Config struct {
	Secrets  []string // "whsec_..." as the nodes have it; a callback that any of them has signed is accepted
	Unsigned bool     // accepts callbacks of a biz type without secrets; anybody can then send one
	MaxBody  int64    // bytes; 0: DefaultMaxBody
	Done     Done     // nil: a callback that comes again is handled again
	Seen     Seen     // of all processes that get the callbacks; nil: each process refuses the copies of what it got itself. Not asked if Unsigned

	// Failed is called with each error of the function, of Done, and of a callback that is refused, which has no
	// Task. It is called concurrently. nil: the sender alone is told.
	Failed func(context.Context, Task, error)
}

// Done knows which callbacks were handled, by Key. It is called concurrently. NewMemory
// makes one for a single process.
type Done interface {
	Has(ctx context.Context, key string) (bool, error)
	Put(ctx context.Context, key string) error // after the function has returned nil
}

// Task is the task of a callback.
type Task struct {
	Key            string // "<job_id>.<version>": the same for each delivery until the task is rescheduled, or redriven with a new key
	JobID          tocsin.JobID
	BizID          uint64
	BizKey         string // the business key that BizID is made of; "": BizID is the key
	BizType        string
	ActionTime     time.Time // when this attempt fell due, UTC
	DueTime        time.Time // when the task was to start at first, UTC
	Attempt        int       // 1 for the first
	Payload        string    // as it was added
	PayloadVersion int       // with which the task was added; 0: the first one, or none
	Headers        tocsin.Headers
	Schedule       string    // the schedule whose run the task is; "": it is none
	FireTime       time.Time // the fire time that the run is for, without jitter, UTC; zero: for none, as of a run by hand
	Node           string    // that sent the callback
}

// Receiver is an http.Handler for callbacks. Safe for concurrent use.
type Receiver struct {
	cfg    Config
	verify []*standard.Webhook
	handle func(context.Context, Task) error
}

// New checks the config. handle is called for each callback that is accepted,
// concurrently. Its context ends when the sender gives up: at the time-out of the biz
// type's policy.
func New(cfg Config, handle func(context.Context, Task) error) (*Receiver, error) {
	switch {
	case handle == nil:
		return nil, errors.New("webhook: the function is nil")
	case len(cfg.Secrets) == 0 && !cfg.Unsigned:
		return nil, errors.New("webhook: no secrets: set Secrets to those of the biz type's webhook, or Unsigned")
	case len(cfg.Secrets) > 0 && cfg.Unsigned:
		return nil, errors.New("webhook: Secrets and Unsigned exclude each other")
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = DefaultMaxBody
	}
	if cfg.Seen == nil {
		cfg.Seen = &recent{ids: make(map[int64]map[string]bool)}
	}
	r := &Receiver{cfg: cfg, handle: handle}
	for i, secret := range cfg.Secrets {
		w, err := whsec.Parse(secret)
		if err != nil {
			return nil, fmt.Errorf("webhook: secret %d: %w", i+1, err)
		}
		r.verify = append(r.verify, w)
	}
	return r, nil
}

// ServeHTTP answers one callback.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx := req.Context()
	task, body, status, err := r.read(w, req)
	if err != nil {
		r.failed(ctx, Task{}, err)
		http.Error(w, err.Error(), status)
		return
	}
	if r.cfg.Done != nil {
		done, err := r.cfg.Done.Has(ctx, task.Key)
		if err != nil {
			r.failed(ctx, task, err)
			http.Error(w, "whether it was handled is not known", http.StatusServiceUnavailable)
			return
		}
		if done {
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	if status, err := r.replayed(ctx, body, req.Header); err != nil {
		r.failed(ctx, task, err)
		http.Error(w, "a copy of a callback, or whether it is one is not known", status)
		return
	}
	if err := r.handle(ctx, task); err != nil {
		r.failed(ctx, task, err)
		answer(w, err)
		return
	}
	if r.cfg.Done != nil {
		r.failed(ctx, task, r.cfg.Done.Put(context.WithoutCancel(ctx), task.Key)) // it is handled all the same
	}
	w.WriteHeader(http.StatusNoContent)
}

// replayed returns an error, and the status of the refusal, for a copy of a callback that came before. A node signs each attempt anew.
func (r *Receiver) replayed(ctx context.Context, body []byte, header http.Header) (status int, err error) {
	if r.cfg.Unsigned {
		return 0, nil
	}
	id, until := signature(body, header)
	isNew, err := r.cfg.Seen.Add(ctx, id, until)
	switch {
	case err != nil:
		return http.StatusServiceUnavailable, err
	case !isNew:
		return http.StatusConflict, errors.New("a copy of a callback that came before: somebody, or a proxy, sent it again")
	}
	return 0, nil
}

func (r *Receiver) failed(ctx context.Context, task Task, err error) {
	if err != nil && r.cfg.Failed != nil {
		r.cfg.Failed(ctx, task, err)
	}
}

// read verifies and decodes a callback. The status is that of the refusal.
func (r *Receiver) read(w http.ResponseWriter, req *http.Request) (task Task, body []byte, status int, err error) {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return task, nil, http.StatusMethodNotAllowed, fmt.Errorf("a callback is a POST, not a %s", req.Method)
	}
	body, err = io.ReadAll(http.MaxBytesReader(w, req.Body, r.cfg.MaxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return task, nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return task, nil, http.StatusBadRequest, fmt.Errorf("read the body: %w", err)
	}
	if err := r.signed(body, req.Header); err != nil {
		return task, nil, http.StatusUnauthorized, err
	}
	if task, err = decode(body); err != nil {
		return Task{}, nil, http.StatusBadRequest, err
	}
	task.Key, task.Node = req.Header.Get(standard.HeaderWebhookID), req.Header.Get("Tocsin-Node")
	if task.Key == "" {
		return Task{}, nil, http.StatusBadRequest, errors.New("the header " + standard.HeaderWebhookID + " is missing")
	}
	return task, body, 0, nil
}

// signed returns nil if one of the secrets has signed the callback within the last five minutes.
func (r *Receiver) signed(body []byte, header http.Header) (err error) {
	for _, w := range r.verify {
		if err = w.Verify(body, header); err == nil {
			return nil
		}
	}
	return err
}

// decode reads the body of a callback.
func decode(body []byte) (Task, error) {
	var b struct {
		Data struct {
			JobID      tocsin.JobID   `json:"job_id"`
			BizID      uint64         `json:"biz_id,string"`
			BizKey     string         `json:"biz_key"`
			BizType    string         `json:"biz_type"`
			ActionTime time.Time      `json:"action_time"`
			DueTime    time.Time      `json:"due_time"`
			Attempt    int            `json:"attempt"`
			Payload    string         `json:"attribute"`
			Version    int            `json:"payload_version"`
			Headers    tocsin.Headers `json:"headers"`
			Schedule   string         `json:"schedule"`
			FireTime   time.Time      `json:"fire_time"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return Task{}, fmt.Errorf("the body is no callback of Tocsin: %w", err)
	}
	d := b.Data
	if d.JobID == 0 || d.BizType == "" {
		return Task{}, errors.New("the body is no callback of Tocsin: want data.job_id and data.biz_type")
	}
	return Task{
		JobID: d.JobID, BizID: d.BizID, BizKey: d.BizKey, BizType: d.BizType, ActionTime: d.ActionTime, DueTime: d.DueTime,
		Attempt: d.Attempt, Payload: d.Payload, PayloadVersion: d.Version, Headers: d.Headers, Schedule: d.Schedule, FireTime: d.FireTime,
	}, nil
}

// answer tells the node what the function's error asks for.
func answer(w http.ResponseWriter, err error) {
	verb, in, reason := tocsin.AsOutcome(err)
	if reason == "" {
		reason = "later"
	}
	switch {
	case verb == tocsin.Buried:
		http.Error(w, reason, http.StatusGone)
	case in >= 0:
		w.Header().Set("Retry-After", strconv.FormatFloat(math.Ceil(in.Seconds()), 'f', 0, 64))
		http.Error(w, reason, http.StatusServiceUnavailable)
	default:
		http.Error(w, reason, http.StatusInternalServerError)
	}
}
