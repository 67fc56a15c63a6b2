package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin/biztype"
)

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
	policies, err := biztype.Load(ctx, n.cfg.Tables)
	if err != nil {
		return err
	}
	return strictly("a handler gets no task", newTargets(n.cfg, n.handlers, n.cfg.mine).idle(policies))
}

// strict returns an error for Config.Strict: it names the biz types of the group that
// neither this node nor another can deliver. Called before anything is delivered.
func (p *parts) strict(ctx context.Context) error {
	lacks := p.roster.now().Lacks
	if !p.cfg.Strict || len(lacks) == 0 {
		return nil
	}
	others, err := p.group.Delivered(ctx)
	if err != nil {
		return fmt.Errorf("strict: read what other nodes deliver: %w", err)
	}
	nobody := maps.Clone(lacks)
	maps.DeleteFunc(nobody, func(name, _ string) bool { return others[name] })
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
