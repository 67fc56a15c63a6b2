package dispatcher

import (
	"time"

	"github.com/tocsinhq/tocsin/biztype"
)

// rule is what a kind goes by at the moment. It never changes; a new policy is
// a new rule.
type rule struct {
	policy     biztype.Policy // with defaults
	sink       Sink
	batch      int
	rows       int        // see Target.Rows; 0: no bound
	version    int        // the newest of a payload that sink reads; 0: all
	demand     func() int // of a pull type
	class      class
	timeout    time.Duration
	claimAfter time.Duration
	sweptAfter time.Duration
	paused     bool
	lacked     bool      // paused because this process can't deliver the type
	claimUntil time.Time // until then each row is claimed: see gained
}

func newRule(p biztype.Policy, t Target, grace time.Duration) *rule {
	timeout, swept := p.Timeout.D(), biztype.SweptAfter(p, grace)
	if p.Pull != nil {
		timeout = handOver
	}
	return &rule{
		policy:     p,
		sink:       t.Sink,
		batch:      max(t.Batch, 1),
		rows:       t.Rows,
		version:    t.Version,
		demand:     t.Demand,
		class:      classOf(p.Priority),
		timeout:    timeout,
		claimAfter: claimAfter(swept, timeout),
		sweptAfter: swept,
		paused:     p.Paused,
	}
}

// moved reports whether the target of a rule is another one than before.
func (r *rule) moved(before *rule) bool {
	if before == nil || before.policy.Webhook == nil || r.policy.Webhook == nil {
		return false // what is in this process stays
	}
	return before.policy.Webhook.URL != r.policy.Webhook.URL
}

// pulled reports whether workers ask for the tasks.
func (r *rule) pulled() bool { return r.policy.Pull != nil }

// hold is how long a claim lasts.
func (r *rule) hold() time.Duration {
	if r.pulled() {
		return r.policy.Pull.Lease.D()
	}
	return r.timeout + claimMargin
}

// claims reports whether each row is claimed before it starts.
func (r *rule) claims() bool {
	return r.policy.Strict || r.pulled() || !r.claimUntil.IsZero() && time.Now().Before(r.claimUntil) // the clock is asked for each row
}

// ahead reports whether rows that are claimed under sessions are claimed a moment before they are due.
func (r *rule) ahead() bool { return !r.policy.Strict && !r.pulled() && r.policy.PerKey == 0 }
