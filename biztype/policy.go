package biztype

import (
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
)

// A policy is part of package tocsin, as Define takes one.
type (
	Policy   = tocsin.Policy
	Webhook  = tocsin.Webhook
	Sink     = tocsin.Sink
	Pull     = tocsin.Pull
	Backoff  = tocsin.Backoff
	Alarm    = tocsin.Alarm
	Duration = tocsin.Duration
)

// CallbackGroup is the group of the nodes that `tocsin serve` runs.
const CallbackGroup = tocsin.CallbackGroup

// What an Alarm may be raised on.
const (
	OnDead   = tocsin.OnDead
	OnMissed = tocsin.OnMissed
)

// Links returns a policy for each way on which the tasks of the type are delivered, without a fallback: its own, and with the
// target of its fallback, if it has one.
func Links(p Policy) []Policy {
	first := p
	first.Fallback = nil
	if p.Fallback == nil {
		return []Policy{first}
	}
	second := first
	second.Webhook, second.Sink = p.Fallback.Webhook, p.Fallback.Sink
	return []Policy{first, second}
}

// Secrets returns the names of the secrets that the callbacks of a type are signed with, on either way.
func Secrets(p Policy) (names []string) {
	for _, way := range Links(p) {
		if way.Webhook != nil {
			names = append(names, way.Webhook.Secrets...)
		}
	}
	return names
}

// DefaultSweepGrace is the grace of sweeps of a cluster that names none.
const DefaultSweepGrace = 60 * time.Second

// SweptAfter is how long a task of the type must be overdue for a sweep to take it: the grace of sweeps, and twice the delivery
// time-out at least. A grace below the default, which is for tests and emergencies, holds for every type.
func SweptAfter(p Policy, grace time.Duration) time.Duration {
	if grace < DefaultSweepGrace {
		return max(grace, 0)
	}
	return max(grace, 2*p.WithDefaults().Timeout.D())
}

// NameOf returns the name of a biz type's number; "#7" where no policy has number 7.
func NameOf(policies []Policy, number uint64) string {
	for _, p := range policies {
		if p.Number == number {
			return p.Name
		}
	}
	return "#" + strconv.FormatUint(number, 10)
}
