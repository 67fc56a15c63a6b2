package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/webhook"
)

// readWithin is how long the secrets are waited for: a directory or vault that hangs must hold up nothing else.
const readWithin = 5 * time.Second

// targets finds where the tasks of a policy go: a webhook if it names one, else
// the Go handler of its name. Safe for concurrent use.
type targets struct {
	cfg      Config
	secrets  webhook.Secrets
	handlers *Handlers
	mine     func(biztype.Policy) bool
	limit    loop.LogLimit
	reading  chan struct{} // 1 slot, taken while secrets are read

	mu       sync.Mutex
	values   map[string]secret   // as last read, by name
	webhooks map[string]callback // by policy name
	changes  int                 // of webhooks and outdated, so far
	outdated map[string]error    // biz types that newer nodes deliver, with the reasons
}

// secret is what was read under a name.
type secret struct {
	value string
	err   error
}

// callback is a callback's sink and the settings it was made from.
type callback struct {
	*webhook.Sink
	wrapped dispatcher.Sink // in the middleware of callbacks
	key     string
	values  []string // of its secrets
	stale   error    // why the secrets can no longer be read; nil: they can
}

func newTargets(cfg Config, h *Handlers, mine func(biztype.Policy) bool) *targets {
	return &targets{
		cfg: cfg, secrets: webhook.Secrets{Dir: cfg.SecretsDir, Getenv: cfg.Getenv}, handlers: h, mine: mine,
		reading: make(chan struct{}, 1), values: map[string]secret{}, webhooks: map[string]callback{},
	}
}

// of gives the target of a policy; false where this process can't deliver it.
func (t *targets) of(p biztype.Policy) (dispatcher.Target, bool) {
	target, err := t.find(p)
	return target, err == nil
}

// find returns the target of a policy, or an error that says why there is none here.
func (t *targets) find(p biztype.Policy) (dispatcher.Target, error) {
	switch {
	case !t.mine(p):
		return dispatcher.Target{}, fmt.Errorf("biz type %s belongs to group %s", p.Name, p.WithDefaults().Group)
	case p.Webhook != nil:
		sink, err := t.webhook(p)
		return dispatcher.Target{Sink: sink, Batch: p.Webhook.Batch}, err
	}
	target, ok := t.handlers.targets[p.Name]
	if err := t.left(p.Name); err != nil {
		return target, err
	}
	if !ok {
		return target, fmt.Errorf("biz type %s has no handler in this program: add one, or have its policy name another group", p.Name)
	}
	return target, nil
}

// read reads the secrets that the policies name. It returns when they are read, when ctx
// ends, or after readWithin; what was read before then stays in use. Nothing can cut off
// a reading: one that hangs goes on, and no other begins before it has ended.
func (t *targets) read(ctx context.Context, policies []biztype.Policy) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	done := make(chan struct{})
	select {
	case <-ctx.Done():
	case t.reading <- struct{}{}:
		go func() {
			defer close(done)
			t.readAll(policies)
			<-t.reading
		}()
	}
	select {
	case <-done:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.limit.Of(t.cfg.Logger, "reading").Warn("the secrets of callbacks can't be read in time: going on with what was read before",
				"timeout", readWithin.String())
		}
	}
}

func (t *targets) readAll(policies []biztype.Policy) {
	values := make(map[string]secret)
	for _, p := range policies {
		if p.Webhook == nil || !t.mine(p) {
			continue
		}
		for _, name := range p.Webhook.Secrets {
			value, err := t.secrets.Value(name)
			values[name] = secret{value, err}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.Copy(t.values, values)
}

// webhook returns the sink of a policy. It is the same sink as before unless target,
// concurrency or secrets have changed, so that connections stay open. If the last try
// to read the secrets failed, say while a file was being written, the former ones stay
// in use.
func (t *targets) webhook(p biztype.Policy) (dispatcher.Sink, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := callback{key: fmt.Sprint(*p.Webhook, p.Concurrency, p.Timeout)}
	old, known := t.webhooks[p.Name]
	var err error
	c.Sink, err = webhook.FromPolicy(p, t.cfg.Name, func(name string) (string, error) {
		last, read := t.values[name]
		if !read {
			return "", fmt.Errorf("the webhook's secret %s has not been read yet", name)
		}
		c.values = append(c.values, last.value)
		return last.value, last.err
	})
	same := known && old.key == c.key
	if same && (err != nil || slices.Equal(old.values, c.values)) {
		old.stale = err
		t.webhooks[p.Name] = old
		return old.wrapped, nil
	}
	if known {
		old.Close()
		delete(t.webhooks, p.Name)
		t.changes++
	}
	if err != nil {
		return nil, err
	}
	c.wrapped = wrap(c.Sink, t.handlers.callbacks)
	t.webhooks[p.Name] = c
	t.changes++
	return c.wrapped, nil
}

// reload checks all policies again, lets go of callbacks that are no longer among them,
// and reports whether a callback's target has changed, come or gone since the last call.
func (t *targets) reload(policies []biztype.Policy, before *int) bool {
	wanted := make(map[string]bool)
	for _, p := range policies {
		if t.mine(p) && p.Webhook != nil {
			wanted[p.Name] = true
			_, _ = t.webhook(p)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, c := range t.webhooks {
		if !wanted[name] {
			c.Close()
			delete(t.webhooks, name)
			t.changes++
		}
	}
	changed := t.changes != *before
	*before = t.changes
	return changed
}

// leave sets which types are left to nodes that know newer payloads. newest returns the
// newest version that other nodes deliver.
func (t *targets) leave(newest func(bizType string) int) {
	now := make(map[string]error)
	for _, name := range t.handlers.names() {
		if own, theirs := t.handlers.versions[name], newest(name); theirs > own {
			now[name] = fmt.Errorf("this program has version %d of the payload of %s, and other nodes have version %d", own, name, theirs)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !maps.EqualFunc(now, t.outdated, func(a, b error) bool { return a.Error() == b.Error() }) {
		t.outdated = now
		t.changes++
	}
}

// left returns why a type's tasks are left to other nodes; nil: they are not.
func (t *targets) left(bizType string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outdated[bizType]
}

// lacks returns the reasons why policies of this node's group can't be delivered
// here, by name.
func (t *targets) lacks(policies []biztype.Policy) map[string]string {
	lacks := make(map[string]string)
	for _, p := range policies {
		if !t.mine(p) {
			continue
		}
		if _, err := t.find(p); err != nil {
			lacks[p.Name] = err.Error()
		}
	}
	return lacks
}

// stale returns the callbacks whose secrets can no longer be read, with the reasons.
func (t *targets) stale() map[string]error {
	t.mu.Lock()
	defer t.mu.Unlock()
	stale := make(map[string]error)
	for name, c := range t.webhooks {
		if c.stale != nil {
			stale[name] = c.stale
		}
	}
	return stale
}

// types returns the biz types that are delivered here, sorted: those with a handler,
// and callbacks of this node's group whose secrets are available.
func (t *targets) types(policies []biztype.Policy) []string {
	names := make(map[string]bool)
	for _, name := range t.handlers.names() {
		names[name] = t.left(name) == nil
	}
	for _, p := range policies {
		if p.Webhook == nil || !t.mine(p) {
			continue
		}
		_, names[p.Name] = t.of(p)
	}
	maps.DeleteFunc(names, func(_ string, here bool) bool { return !here })
	return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(names))))
}

// close gives back the connections of all callbacks.
func (t *targets) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.webhooks {
		s.Close()
	}
}
