package node

import (
	"fmt"
	"slices"
	"sync"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/sink/webhook"
)

// targets finds where the tasks of a policy go: a webhook if it names one, else
// the Go handler of its name. Safe for concurrent use.
type targets struct {
	cfg      Config
	handlers *Handlers
	mine     func(biztype.Policy) bool

	mu       sync.Mutex
	webhooks map[string]keyedSink // by policy name
	refused  map[string]string    // by policy name: why its callback can't be delivered, as last logged
}

// keyedSink is a callback's sink and what it was made from.
type keyedSink struct {
	*webhook.Sink
	key string
}

func newTargets(cfg Config, h *Handlers, mine func(biztype.Policy) bool) *targets {
	return &targets{cfg: cfg, handlers: h, mine: mine, webhooks: map[string]keyedSink{}, refused: map[string]string{}}
}

// of gives the target of a policy; false where this process can't deliver it.
func (t *targets) of(p biztype.Policy) (dispatcher.Target, bool) {
	switch {
	case !t.mine(p):
		return dispatcher.Target{}, false
	case p.Webhook == nil:
		target, ok := t.handlers.targets[p.Name]
		return target, ok
	}
	sink, err := t.webhook(p)
	t.note(p, err)
	return dispatcher.Target{Sink: sink}, err == nil
}

// note logs why a callback can't be delivered, once: of is asked again and again.
func (t *targets) note(p biztype.Policy, err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if why != "" && why != t.refused[p.Name] {
		t.cfg.Logger.Error().Err(err).Str("biz_type", p.Name).Msg("callback can't be delivered here")
	}
	t.refused[p.Name] = why
}

// webhook gives the sink of a policy: the same as before where neither target
// nor concurrency changed, so that connections live on.
func (t *targets) webhook(p biztype.Policy) (*webhook.Sink, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := fmt.Sprint(*p.Webhook, p.Concurrency)
	if old, known := t.webhooks[p.Name]; known {
		if old.key == key {
			return old.Sink, nil
		}
		old.Close()
	}
	sink, err := webhook.FromPolicy(p, t.cfg.Name, t.cfg.Getenv)
	if err == nil {
		t.webhooks[p.Name] = keyedSink{sink, key}
	}
	return sink, err
}

// close gives back the connections of all callbacks.
func (t *targets) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.webhooks {
		s.Close()
	}
}

// typesOf lists the biz types that a node of these handlers delivers, sorted.
func typesOf(policies []biztype.Policy, h *Handlers, mine func(biztype.Policy) bool) []string {
	names := h.names()
	for _, p := range policies {
		if mine(p) && p.Webhook != nil {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
