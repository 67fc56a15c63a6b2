package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
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
	handle func(context.Context, []Task) []error
}

// New checks the config. handle is called for each callback that is accepted,
// concurrently, and for each task of a batch, one after another. Its context ends when
// the sender gives up: at the time-out of the biz type's policy.
func New(cfg Config, handle func(context.Context, Task) error) (*Receiver, error) {
	if handle == nil {
		return NewBatch(cfg, nil)
	}
	return NewBatch(cfg, func(ctx context.Context, tasks []Task) []error {
		errs := make([]error, len(tasks))
		for i, task := range tasks {
			if errs[i] = ctx.Err(); errs[i] == nil { // else the node has given up
				errs[i] = guarded(ctx, tasks[i:i+1], func() []error { return []error{handle(ctx, task)} })[0]
			}
		}
		return errs
	})
}

// NewBatch is New for biz types whose webhook has a batch. handle returns one error per
// task, in their order; nil means that all succeeded. A callback of one task is a
// batch of one, so that a policy may change from one form to the other.
func NewBatch(cfg Config, handle func(context.Context, []Task) []error) (*Receiver, error) {
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
	verify, err := parseSecrets(cfg.Secrets)
	if err != nil {
		return nil, err
	}
	return &Receiver{cfg: cfg, handle: handle, verify: verify}, nil
}

// ServeHTTP answers one callback.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx := req.Context()
	c, status, err := r.read(w, req)
	if err != nil {
		r.failed(ctx, Task{}, err)
		http.Error(w, err.Error(), status)
		return
	}
	errs := make([]error, len(c.tasks))
	var tasks []Task
	var at []int // places of the tasks that are not done
	for i, task := range c.tasks {
		done, err := r.done(ctx, task)
		if errs[i] = err; err == nil && !done {
			tasks, at = append(tasks, task), append(at, i)
		}
	}
	if len(tasks) > 0 {
		if status, err := r.replayed(ctx, c.body, req.Header); err != nil {
			for _, task := range tasks {
				r.failed(ctx, task, err)
			}
			http.Error(w, "a copy of a callback, or whether it is one is not known", status)
			return
		}
		for k, err := range r.call(ctx, tasks) {
			errs[at[k]] = err
		}
	}
	if c.batch {
		replyBatch(w, c.tasks, errs)
		return
	}
	reply(w, errs[0])
}

// errNotKnown is the answer if Done can't tell.
var errNotKnown = errors.New("whether it was handled is not known")

// done reports whether the task was handled before.
func (r *Receiver) done(ctx context.Context, task Task) (bool, error) {
	if r.cfg.Done == nil {
		return false, nil
	}
	done, err := r.cfg.Done.Has(ctx, task.Key)
	if err != nil {
		r.failed(ctx, task, err)
		return false, errNotKnown
	}
	return done, nil
}

// call has tasks handled, and returns an error for each.
func (r *Receiver) call(ctx context.Context, tasks []Task) []error {
	got := guarded(ctx, tasks, func() []error { return r.handle(ctx, slices.Clone(tasks)) })
	errs := make([]error, len(tasks))
	copied := copy(errs, got)
	for i, task := range tasks {
		if got != nil && i >= copied {
			errs[i] = fmt.Errorf("the function returned %d errors for %d tasks: return one per task, or nil", len(got), len(tasks))
		}
		if errs[i] != nil {
			r.failed(ctx, task, errs[i])
		} else if r.cfg.Done != nil {
			r.failed(ctx, task, r.cfg.Done.Put(context.WithoutCancel(ctx), task.Key)) // it is handled all the same
		}
	}
	return errs
}

// guarded calls a function for tasks. A panic is the error of all of them: the sender is told more than that its connection broke.
func guarded(ctx context.Context, tasks []Task, call func() []error) (errs []error) {
	defer func() {
		switch p := recover(); {
		case p == http.ErrAbortHandler:
			panic(p)
		case p != nil:
			slog.ErrorContext(ctx, "receiver panicked", "biz_type", tasks[0].BizType, "job_id", tasks[0].JobID.String(), "panic", p, "stack", string(debug.Stack()))
			errs = slices.Repeat([]error{errors.New(client.PanicWords(p))}, len(tasks))
		}
	}()
	return call()
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

// callback is what a node sent.
type callback struct {
	tasks []Task
	batch bool // of the batch form, perhaps with one task
	body  []byte
}

// read verifies and decodes a callback. The status is that of the refusal.
func (r *Receiver) read(w http.ResponseWriter, req *http.Request) (c callback, status int, err error) {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return c, http.StatusMethodNotAllowed, fmt.Errorf("a callback is a POST, not a %s", req.Method)
	}
	c.body, err = io.ReadAll(http.MaxBytesReader(w, req.Body, r.cfg.MaxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return c, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return c, http.StatusBadRequest, fmt.Errorf("read the body: %w", err)
	}
	if err := r.signed(c.body, req.Header); err != nil {
		return c, http.StatusUnauthorized, err
	}
	id := req.Header.Get(standard.HeaderWebhookID)
	if id == "" {
		return c, http.StatusBadRequest, errors.New("the header " + standard.HeaderWebhookID + " is missing")
	}
	if err := c.decode(id, req.Header.Get(NodeHeader)); err != nil {
		return c, http.StatusBadRequest, err
	}
	return c, 0, nil
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
