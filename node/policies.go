package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

const (
	bringEvery  = 10 * time.Second // between tries to store policies
	bringWithin = 5 * time.Second  // the time-out of the first try: a server that hangs must not keep a node from starting
)

// bringer stores the policies that the code of the handlers brings.
type bringer struct {
	cfg      Config
	policies []tocsin.Policy
	limit    loop.LogLimit
	done     bool
}

// newBringer checks the policies. One without a group, webhook or sink gets the node's group.
func newBringer(cfg Config, h *Handlers) (*bringer, error) {
	policies := slices.Clone(h.policies)
	for i, p := range policies {
		if p.Group == "" && p.Handled() {
			policies[i].Group = cfg.Group
		}
	}
	return &bringer{cfg: cfg, policies: policies, done: len(policies) == 0}, biztype.Validate(policies)
}

// run tries until the policies are stored, or ctx ends.
func (b *bringer) run(ctx context.Context) {
	for !b.done && loop.Wait(ctx, bringEvery) == nil {
		b.once(ctx)
	}
}

// once stores the policies, and logs what became of them.
func (b *bringer) once(ctx context.Context) {
	if b.done {
		return
	}
	res, err := biztype.Bring(ctx, b.cfg.Tables, b.policies)
	for _, t := range res.Types {
		if t.Verdict != biztype.Unchanged && res.Databases > 0 {
			b.cfg.Logger.Info("stored the policy of a biz type that the code brings", "biz_type", t.Name, "number", t.Number, "verdict", string(t.Verdict))
		}
	}
	for name, why := range res.Kept {
		b.limit.Of(b.cfg.Logger, "kept "+name).Warn("the policy that the code brings is not used, the stored one is", "biz_type", name, "why", why)
	}
	switch b.done = err == nil; {
	case b.done:
	case mysql.ClassOf(err) == mysql.Denied:
		b.limit.Of(b.cfg.Logger, "denied").Warn("this program may not store the policies that its code brings: apply them with `tocsin biz apply`, or grant its user the role biz", "error", err)
		b.done = true
	case ctx.Err() == nil:
		b.limit.Of(b.cfg.Logger, "failed").Warn("the policies that the code brings are not stored in all databases; trying again", "error", err)
	}
}

// idle returns the handlers that get no task, with the reasons and what to do. Without
// Config.Strict they are no error: a type may be applied, or moved, while the node
// runs, and a program may have handlers of several groups.
func (t *targets) idle(policies []biztype.Policy) map[string]string {
	idle := make(map[string]string)
	for _, name := range t.handlers.names() {
		i := slices.IndexFunc(policies, func(p biztype.Policy) bool { return p.Name == name })
		switch {
		case i < 0:
			idle[name] = "its biz type has no policy: apply one with `tocsin biz apply`"
		case !t.mine(policies[i]):
			idle[name] = fmt.Sprintf("the policy of its biz type names group %s, and this node is in group %s: change the node's Group or the policy's",
				policies[i].WithDefaults().Group, t.cfg.Group)
		case policies[i].Webhook != nil:
			idle[name] = "the policy of its biz type sends the tasks to a callback: remove webhook from the policy, or the handler from the program"
		case policies[i].Sink != nil:
			idle[name] = "the policy of its biz type sends the tasks to a message broker: remove sink from the policy, or the handler from the program"
		case policies[i].Pull != nil:
			idle[name] = "by the policy of its biz type workers ask for the tasks: remove pull from the policy, or the handler from the program"
		}
	}
	return idle
}

// tellIdle logs the handlers that get no task, and those that get some again, when
// that changes. Called under mu.
func (r *roster) tellIdle() {
	now := r.targets.idle(r.policies)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if now[name] != r.idle[name] {
			r.log.Warn("a handler gets no task", "biz_type", name, "why", now[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.idle)) {
		if now[name] == "" {
			r.log.Info("a handler gets tasks now", "biz_type", name)
		}
	}
	r.idle = now
}

// strict returns an error for Config.Strict: it names the handlers that get no task.
func (n *Node) strict(ctx context.Context) error {
	if !n.cfg.Strict {
		return nil
	}
	policies, unread := biztype.Load(ctx, n.cfg.Tables)
	if policies == nil {
		return unread
	}
	idle := strictly("a handler gets no task", newTargets(n.cfg, n.handlers, n.cfg.mine).idle(policies))
	if idle == nil {
		return nil
	}
	return errors.Join(idle, unread)
}

// strict returns an error for Config.Strict: it names the biz types of the group that
// neither this node nor another can deliver. Called before anything is delivered.
func (p *parts) strict(ctx context.Context) error {
	lacks := p.roster.now().Lacks
	if !p.cfg.Strict || len(lacks) == 0 {
		return nil
	}
	others, told, err := p.group.Delivered(ctx)
	nobody := maps.Clone(lacks)
	maps.DeleteFunc(nobody, func(name, why string) bool { return others[name] || why == assign.Unasked }) // workers come later
	switch {
	case len(nobody) > 0 && err != nil:
		return fmt.Errorf("strict: read what other nodes deliver: %w", err)
	case !told: // what is lacking may be among what one of them does not tell
		return nil
	}
	return strictly("a biz type can't be delivered by any node of group "+p.cfg.Group, nobody)
}

// strictly makes an error of what is wrong with biz types; nil if nothing is.
func strictly(what string, wrong map[string]string) error {
	if len(wrong) == 0 {
		return nil
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		all = append(all, name+" ("+wrong[name]+")")
	}
	return errors.New("strict: " + what + ": " + strings.Join(all, "; "))
}
