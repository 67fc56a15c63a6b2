package node

import (
	"context"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/wait"
)

const (
	bringEvery  = 10 * time.Second // between tries to store policies
	bringWithin = 5 * time.Second  // the time-out of the first try: a server that hangs must not keep a node from starting
)

// bringer stores the policies that the code of the handlers brings.
type bringer struct {
	cfg      Config
	policies []tocsin.Policy
	limit    loglimit.Limit
	done     bool
}

// newBringer checks the policies. One without a group or webhook gets the node's group.
func newBringer(cfg Config, h *Handlers) (*bringer, error) {
	policies := slices.Clone(h.policies)
	for i, p := range policies {
		if p.Group == "" && p.Webhook == nil {
			policies[i].Group = cfg.Group
		}
	}
	return &bringer{cfg: cfg, policies: policies, done: len(policies) == 0}, biztype.Validate(policies)
}

// run tries until the policies are stored, or ctx ends.
func (b *bringer) run(ctx context.Context) {
	for !b.done && wait.For(ctx, bringEvery) == nil {
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
