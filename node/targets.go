package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/pull"
	"github.com/tocsinhq/tocsin/webhook"
)

// readWithin is how long the secrets are waited for: a directory or vault that hangs must hold up nothing else.
const readWithin = 5 * time.Second

// What a broker gets: a batch waits for all acks, not for one after another. While a broker that went away has not been found out, deliveries fill
// up, and all their rows go back: so there is a bound on these.
const (
	sinkBatch = 64  // tasks in one delivery at most
	sinkRows  = 250 // of a biz type in delivery, and as many loaded
)

// targets finds where the tasks of a policy go: a webhook or a broker if it names one, else
// the Go handler of its name. Safe for concurrent use.
type targets struct {
	cfg      Config
	secrets  webhook.Secrets
	handlers *Handlers
	mine     func(biztype.Policy) bool
	hub      *pull.Hub // of workers that ask this process; in a sweep none do
	atOnce   bool      // a fallback delivers as soon as the first link is away: what comes is overdue, and soon all ends
	limit    loop.LogLimit
	metrics  *linkMetrics
	reading  chan struct{} // 1 slot, taken while secrets are read

	mu       sync.Mutex
	values   map[string]secret // as last read, by name
	made     map[string]made   // by policy name
	pulled   []string          // pull types that workers ask for here
	changes  int               // of made, pulled and outdated, so far
	outdated map[string]error  // biz types that newer nodes deliver, with the reasons
}

// newTargets makes targets that export nothing.
func newTargets(cfg Config, h *Handlers, mine func(biztype.Policy) bool) *targets {
	return &targets{
		cfg: cfg, secrets: webhook.Secrets{Dir: cfg.SecretsDir, Getenv: cfg.Getenv}, handlers: h, mine: mine, metrics: newLinkMetrics(nil), hub: pull.NewHub(),
		reading: make(chan struct{}, 1), values: map[string]secret{}, made: map[string]made{},
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
	case p.Pull != nil:
		return t.asked(p)
	case !p.Handled():
		to, err := t.make(p)
		target := dispatcher.Target{Sink: to, Batch: batchOf(p)}
		if p.Sink != nil {
			target.Rows = sinkRows
		}
		return target, err
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

// batchOf is how many tasks one delivery has at most. A callback without a batch, as either link, takes them one by one, which
// all must be able to end within one time-out.
func batchOf(p biztype.Policy) int {
	batch := sinkBatch
	if p.Webhook != nil {
		batch = p.Webhook.Batch
	}
	if p.Fallback != nil && p.Fallback.Webhook != nil {
		batch = min(batch, p.Fallback.Webhook.Batch)
	}
	return batch
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
		if !t.mine(p) {
			continue
		}
		for _, name := range biztype.Secrets(p) {
			value, err := t.secrets.Value(name)
			values[name] = secret{value, err}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.Copy(t.values, values)
}

// make returns the sink of a policy without a Go handler. It is the same sink as before unless targets,
// concurrency, time-out or secrets have changed, so that connections stay open. If the last try
// to read the secrets failed, say while a file was being written, the former ones stay
// in use.
func (t *targets) make(p biztype.Policy) (dispatcher.Sink, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.made[p.Name]
	if known && old.current(p, t.values) {
		return old.Sink, nil
	}
	now := made{policy: p, key: keyOf(p), first: keyOf(biztype.Policy{Webhook: p.Webhook, Sink: p.Sink})}
	ways := biztype.Links(p)
	var err error
	if now.Sink, err = t.link(ways[0], &now); err == nil && len(ways) > 1 {
		err = t.second(p, ways[1], &now, old)
	}
	if same := known && old.key == now.key; same && (now.Sink == nil || slices.Equal(old.values, now.values)) {
		now.close()
		old.stale, old.policy = err, p
		t.made[p.Name] = old
		return old.Sink, nil
	}
	if err != nil && now.Sink != nil { // the first link does not wait for its fallback
		now.stale, err = err, nil
	}
	if known {
		old.close()
		delete(t.made, p.Name)
		t.changes++
	}
	if err != nil {
		now.close()
		return nil, err
	}
	t.made[p.Name] = now
	t.changes++
	return now.Sink, nil
}

// second makes a policy's fallback, and has m deliver by both links. It knows what the sink before, if it has the same first link, knew of that.
// With an error, m delivers by the fallback of the sink before, if that has the same key, or else by the first link alone.
func (t *targets) second(p, way biztype.Policy, m *made, before made) error {
	was, paired := before.Sink.(*links)
	n := len(m.values)
	to, err := t.link(way, m)
	if err != nil && before.key == m.key { // what was read before stays in use
		m.values = append(m.values[:n], before.values[n:]...)
		if paired && way.Webhook != nil {
			to = was.second
			m.callbacks = append(m.callbacks, before.callbacks[len(before.callbacks)-1])
		}
	}
	if to == nil {
		return err
	}
	l := &links{
		first: m.Sink, second: to, after: p.WithDefaults().Fallback.After.D(), halves: p.Sink != nil,
		log: t.cfg.Logger.With("biz_type", p.Name), taken: t.metrics.taken.WithLabelValues(p.Name),
	}
	if t.atOnce {
		l.after = 0
	}
	if paired && before.first == m.first {
		l.goOn(was)
	}
	m.Sink = l
	return err
}

// keyOf returns what the sink of a policy depends on, apart from the values of secrets.
func keyOf(p biztype.Policy) string {
	text, _ := json.Marshal(biztype.Policy{Webhook: p.Webhook, Sink: p.Sink, Fallback: p.Fallback, Concurrency: p.Concurrency, Timeout: p.Timeout})
	return string(text)
}

// link makes the sink of one link of a policy, and notes in m what it depends on. Called under mu.
func (t *targets) link(p biztype.Policy, m *made) (dispatcher.Sink, error) {
	if p.Sink != nil {
		maker, ok := t.cfg.Sinks[p.Sink.Name]
		if !ok {
			return nil, fmt.Errorf("biz type %s: no sink is named %s where this node runs: add it to the sinks of the config", p.Name, p.Sink.Name)
		}
		s, err := maker.Sink(p)
		if err != nil {
			return nil, err
		}
		return &countedSink{s, t.metrics, p.Sink.Name}, nil
	}
	s, err := webhook.FromPolicy(p, t.cfg.Name, func(name string) (string, error) {
		last, read := t.values[name]
		if !read {
			return "", fmt.Errorf("the webhook's secret %s has not been read yet", name)
		}
		m.names, m.values = append(m.names, name), append(m.values, last.value)
		return last.value, last.err
	})
	if err != nil {
		return nil, err
	}
	m.callbacks = append(m.callbacks, s)
	return wrap(s, t.handlers.callbacks), nil
}

// reload checks all policies again, lets go of sinks that are no longer among them,
// and reports whether the target of one has changed, come or gone since the last call.
func (t *targets) reload(policies []biztype.Policy, before *int) bool {
	wanted := make(map[string]bool)
	for _, p := range policies {
		if t.mine(p) && !p.Handled() && p.Pull == nil {
			wanted[p.Name] = true
			_, _ = t.make(p)
		}
	}
	pulled := t.pulledNow(policies)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Equal(pulled, t.pulled) {
		t.pulled = pulled
		t.changes++
	}
	for name, m := range t.made {
		if !wanted[name] {
			m.close()
			delete(t.made, name)
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
	for name, m := range t.made {
		if m.stale != nil {
			stale[name] = m.stale
		}
	}
	return stale
}

// single returns the biz types of policies that are delivered here without their fallback, with the reasons.
func (t *targets) single(policies []biztype.Policy) map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	single := make(map[string]string)
	for _, p := range policies {
		m := t.made[p.Name]
		if _, both := m.Sink.(*links); p.Fallback != nil && !both && m.stale != nil {
			single[p.Name] = m.stale.Error()
		}
	}
	return single
}

// types returns the biz types that are delivered here, sorted: those with a handler,
// callbacks of this node's group whose secrets are available, and what goes to its sinks.
func (t *targets) types(policies []biztype.Policy) []string {
	names := make(map[string]bool)
	for _, name := range t.handlers.names() {
		names[name] = t.left(name) == nil
	}
	for _, p := range policies {
		if p.Handled() || !t.mine(p) {
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
	for _, m := range t.made {
		m.close()
	}
}
