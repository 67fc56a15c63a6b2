package node

import (
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/webhook"
)

// secret is what was read under a name.
type secret struct {
	value string
	err   error
}

// made is the sink of a policy without a Go handler, and the settings it was made from.
type made struct {
	dispatcher.Sink                 // in the middleware of callbacks, where it is one; of both links, if there are two
	callbacks       []*webhook.Sink // to be closed
	policy          biztype.Policy
	key             string
	first           string   // as key, of the first link's target alone
	names, values   []string // of the secrets
	stale           error    // why the secrets can no longer be read; nil: they can
}

// close gives back the connections of callbacks. Those of brokers are their makers'.
func (m made) close() {
	for _, c := range m.callbacks {
		c.Close()
	}
}

// current reports whether the sink of a policy of one callback would be made the same again. All policies are asked for several times
// every few seconds: to make their sinks for a comparison would keep a node of many biz types busy.
func (m made) current(p biztype.Policy, values map[string]secret) bool {
	if p.Webhook == nil || p.Webhook != m.policy.Webhook || p.Sink != nil || p.Fallback != nil || m.stale != nil ||
		p.Concurrency != m.policy.Concurrency || p.Timeout != m.policy.Timeout {
		return false
	}
	for i, name := range m.names {
		if now := values[name]; now.err != nil || now.value != m.values[i] {
			return false
		}
	}
	return m.policy.Fallback == nil && m.policy.Sink == nil
}
