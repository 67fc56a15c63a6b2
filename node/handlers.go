package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/name"
)

// Handlers maps biz types to Go handlers. Fill it before New; it must not change
// afterwards. The zero value is empty and ready.
type Handlers struct {
	targets    map[string]dispatcher.Target
	versions   map[string]int  // of payloads, by biz type; without those that have none
	policies   []tocsin.Policy // that the biz types bring
	middleware []func(HandlerFunc) HandlerFunc
	callbacks  []func(HandlerFunc) HandlerFunc
}

// Handle registers the handler of one biz type. The handler is called concurrently,
// up to the policy's concurrency. It returns nil to complete the task, tocsin.Bury,
// tocsin.RetryIn or tocsin.Snooze for another outcome, and any other error to retry
// by the policy. A panic counts as an error.
//
// The handler's context ends at the delivery time-out, and the handler should return
// then. Until it returns it keeps its slot, and the task's next attempt in this
// process waits for it, for at most one more time-out.
//
// A payload that does not decode does not reach the handler. That is a failed
// attempt, retried by the policy: during a rolling deploy the next one may find a
// program that can read it. If the type has a Version, nodes with an older one leave
// its tasks to newer nodes, so that this does not happen.
//
// If Define was given a policy, the node stores it when it runs: see biztype.Bring.
//
// Handle panics if the handler is nil, if the type already has a handler, or if its
// name is not valid for a biz type: these are mistakes in the program, not in its
// input.
func Handle[T any](h *Handlers, biz tocsin.BizType[T], handler func(context.Context, *tocsin.Task[T]) error) {
	if handler == nil {
		panic(fmt.Sprintf("node: the handler of biz type %q is nil", biz.Name()))
	}
	HandleBatch(h, biz, 1, func(ctx context.Context, tasks []*tocsin.Task[T]) []error {
		return []error{handler(ctx, tasks[0])}
	})
}

// HandleBatch registers a handler that takes up to most tasks at once, of 1 to 1,048,576. It returns one
// error per task, in their order, each read as Handle's; nil means that all
// succeeded. A batch never waits for more tasks: it holds those that are due already.
//
// Tasks that failed are delivered again one by one, apart from new ones: a batch that
// failed as a whole, say by a panic, does not show which task was to blame. Once as
// many retries as a batch holds have succeeded in a row, retried tasks come in
// batches again. A task in the second half of its attempts, or one that has crashed a
// process, always comes alone. A biz type with attempts: 1 retries nothing: there, a
// panic is the end of its whole batch.
func HandleBatch[T any](h *Handlers, biz tocsin.BizType[T], most int, handler func(context.Context, []*tocsin.Task[T]) []error) {
	switch {
	case h == nil:
		panic(fmt.Sprintf("node: biz type %q is handled by nil Handlers", biz.Name()))
	case handler == nil:
		panic(fmt.Sprintf("node: the handler of biz type %q is nil", biz.Name()))
	}
	if err := name.CheckLower("node: no biz type is named", biz.Name()); err != nil {
		panic(err.Error())
	}
	if h.targets == nil {
		h.targets, h.versions = make(map[string]dispatcher.Target), make(map[string]int)
	}
	if _, taken := h.targets[biz.Name()]; taken {
		panic(fmt.Sprintf("node: biz type %q has two handlers", biz.Name()))
	}
	h.targets[biz.Name()] = dispatcher.Target{Batch: min(max(most, 1), 1<<20), Version: max(biz.PayloadVersion(), 1), Sink: typed[T]{biz, handler}}
	if v := biz.PayloadVersion(); v > 0 {
		h.versions[biz.Name()] = v
	}
	if p, ok := biz.Policy(); ok {
		h.policies = append(h.policies, p)
	}
}

// HandlerFunc delivers tasks of one biz type: one, or several if the type has a batch
// handler. It returns one error per task, in their order; nil means that all
// succeeded. It must not keep the slice of tasks after it has returned.
type HandlerFunc func(ctx context.Context, tasks []tocsin.Info) []error

// Use wraps all handlers, those registered before and those registered later. The
// first middleware is the outermost. It sees every delivery, before the payload is
// decoded, and what the handler returned; it may pass another context on, replace
// errors, or not call next at all. New calls each middleware once per biz type.
// Callbacks are not wrapped: see UseCallbacks. Nor is what goes to a message broker.
func (h *Handlers) Use(middleware ...func(next HandlerFunc) HandlerFunc) {
	h.middleware = appendTo(h.middleware, middleware)
}

// UseCallbacks wraps all HTTP callbacks of the node as Use wraps handlers. Each delivery
// is of one task, unless the type's webhook has a batch. The context that a middleware passes on may have headers for the
// request, from WithHeaders of package webhook. A middleware is called again for a
// biz type whose target or secrets have changed.
func (h *Handlers) UseCallbacks(middleware ...func(next HandlerFunc) HandlerFunc) {
	h.callbacks = appendTo(h.callbacks, middleware)
}

func appendTo(all, middleware []func(HandlerFunc) HandlerFunc) []func(HandlerFunc) HandlerFunc {
	for _, m := range middleware {
		if m == nil {
			panic("node: a middleware is nil")
		}
	}
	return append(all, middleware...)
}

// wrapped returns the handlers with the middleware around each target.
func (h *Handlers) wrapped() *Handlers {
	all := maps.Clone(h.targets)
	for name, t := range all {
		t.Sink = wrap(t.Sink, h.middleware)
		all[name] = t
	}
	return &Handlers{targets: all, versions: h.versions, policies: h.policies, callbacks: h.callbacks}
}

// wrap puts the middleware around a target, the first outermost.
func wrap(target dispatcher.Sink, middleware []func(HandlerFunc) HandlerFunc) dispatcher.Sink {
	if len(middleware) == 0 {
		return target
	}
	f := HandlerFunc(target.Deliver)
	for _, m := range slices.Backward(middleware) {
		f = m(f)
	}
	return delivery(f)
}

// delivery is a HandlerFunc as a dispatcher.Sink.
type delivery HandlerFunc

// Deliver implements dispatcher.Sink.
func (f delivery) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
	errs := f(ctx, tasks)
	if errs == nil {
		errs = make([]error, len(tasks))
	}
	return errs
}

// Tasks returns the tasks that are being delivered under a handler's context, or one
// derived from it: one, or those of a batch, with their payloads as they are stored.
// So a logger can say which task a line concerns. It returns nil for any other
// context, and once the handler has returned.
func Tasks(ctx context.Context) []tocsin.Info { return dispatcher.Tasks(ctx) }

// names lists the biz types that have a handler, sorted.
func (h *Handlers) names() []string { return slices.Sorted(maps.Keys(h.targets)) }

// typed decodes payloads for one typed handler.
type typed[T any] struct {
	biz     tocsin.BizType[T]
	handler func(context.Context, []*tocsin.Task[T]) []error
}

// Deliver hands over the tasks whose payload decodes and gives one error a task.
func (s typed[T]) Deliver(ctx context.Context, infos []tocsin.Info) []error {
	errs := make([]error, len(infos))
	tasks := make([]*tocsin.Task[T], 0, len(infos))
	at := make([]int, 0, len(infos))
	for i, info := range infos {
		task, err := s.biz.Decode(info)
		if err != nil {
			errs[i] = err // not Bury: the next attempt may find a handler that can read it
			continue
		}
		tasks, at = append(tasks, &task), append(at, i)
	}
	if len(tasks) == 0 {
		return errs
	}
	got := s.handler(ctx, tasks)
	for k, i := range at {
		switch {
		case got == nil: // success of all
		case k < len(got):
			errs[i] = got[k]
		default:
			errs[i] = short(len(got), len(at))
		}
	}
	return errs
}

// short fails the tasks that a batch handler returned no error for.
func short(got, tasks int) error {
	plural := "s"
	if got == 1 {
		plural = ""
	}
	return fmt.Errorf("the batch handler returned %d error%s for %d tasks: return one per task, or nil", got, plural, tasks)
}

// LogAttrs returns what a log line of a delivery should name: biz_type, job_id, biz_id,
// biz_key (if the task has one) and attempt (the first is 1) of the task under a
// handler's context, or one derived from it. For a batch of several tasks these are
// biz_type, tasks (their number) and job_ids. It returns nil for any other context, and
// once the handler has returned.
func LogAttrs(ctx context.Context) []slog.Attr {
	tasks := Tasks(ctx)
	if len(tasks) == 0 {
		return nil
	}
	t := tasks[0]
	if len(tasks) == 1 {
		attrs := []slog.Attr{slog.String("biz_type", t.BizType), slog.String("job_id", t.JobID.String()), slog.Uint64("biz_id", t.BizID)}
		if t.BizKey != "" {
			attrs = append(attrs, slog.String("biz_key", t.BizKey))
		}
		return append(attrs, slog.Int("attempt", t.Attempts+1))
	}
	ids := make([]string, len(tasks))
	for i, t := range tasks {
		ids[i] = t.JobID.String()
	}
	return []slog.Attr{slog.String("biz_type", t.BizType), slog.Int("tasks", len(tasks)), slog.Any("job_ids", ids)}
}

// LogHandler passes lines to next, with LogAttrs if they are logged with a handler's
// context: after slog.SetDefault(slog.New(node.LogHandler(h))), a line of
// slog.InfoContext names the task that it concerns.
func LogHandler(next slog.Handler) slog.Handler { return logHandler{next} }

type logHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, line slog.Record) error {
	if attrs := LogAttrs(ctx); attrs != nil {
		line = line.Clone()
		line.AddAttrs(attrs...)
	}
	return h.Handler.Handle(ctx, line)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.Handler.WithGroup(name)}
}
