package biztype

import (
	"slices"
	"strconv"
	"time"
)

// CallbackGroup is the group of the nodes that `tocsin serve` runs: they have
// no Go handlers and deliver HTTP callbacks.
const CallbackGroup = "callback"

// Defaults of a policy.
const (
	DefaultTimeout     = 30 * time.Second
	DefaultAttempts    = 16
	DefaultBackoffBase = 5 * time.Second
	DefaultBackoffMax  = time.Hour
	DefaultConcurrency = 64
	DefaultRetention   = 30 * 24 * time.Hour
	DefaultAlarmEvery  = 5 * time.Minute
)

// Policy says how the tasks of one biz type are delivered. Durations are
// written as Go writes them ("30s"), in YAML and in the JSON of the table.
type Policy struct {
	Name        string     `yaml:"name" json:"name"`                                   // [a-z0-9._-], a letter or digit first, at most 64
	Number      uint64     `yaml:"number" json:"number"`                               // at least 1, never reused
	Group       string     `yaml:"group,omitempty" json:"group,omitempty"`             // of the nodes that deliver it; a webhook's default is "callback"
	Webhook     *Webhook   `yaml:"webhook,omitempty" json:"webhook,omitempty"`         // nil: a Go handler
	Timeout     Duration   `yaml:"timeout,omitempty" json:"timeout,omitempty"`         // of one delivery; 0: 30s
	Attempts    int        `yaml:"attempts,omitempty" json:"attempts,omitempty"`       // at most, then dead; 0: 16
	Backoff     Backoff    `yaml:"backoff,omitempty" json:"backoff,omitzero"`          // between attempts
	Ladder      []Duration `yaml:"ladder,omitempty" json:"ladder,omitempty"`           // explicit waits instead of the back-off; the last one repeats
	Concurrency int        `yaml:"concurrency,omitempty" json:"concurrency,omitempty"` // deliveries at once in each node; 0: 64
	Rate        float64    `yaml:"rate,omitempty" json:"rate,omitempty"`               // deliveries a second over the whole group; 0: no limit
	Strict      bool       `yaml:"strict,omitempty" json:"strict,omitempty"`           // claim before every delivery: none starts after a cancel
	Paused      bool       `yaml:"paused,omitempty" json:"paused,omitempty"`           // tasks wait
	History     bool       `yaml:"history,omitempty" json:"history,omitempty"`         // keep each attempt, with its outcome and output, in the table run; runs of schedules are always kept
	Retention   Duration   `yaml:"retention,omitempty" json:"retention,omitempty"`     // of finished rows, and of runs; 0: 720h
	Alarm       *Alarm     `yaml:"alarm,omitempty" json:"alarm,omitempty"`             // nil: no alarm
}

// Webhook is the target of an HTTP callback.
type Webhook struct {
	URL     string   `yaml:"url" json:"url"`                             // http or https
	Secrets []string `yaml:"secrets,omitempty" json:"secrets,omitempty"` // names of whsec_ secrets, each a file or an environment variable of who delivers; all sign, at most two
	Allow   []string `yaml:"allow,omitempty" json:"allow,omitempty"`     // private CIDRs that may be dialled, e.g. 10.0.0.0/8
}

// Backoff doubles the wait each time and draws it from the upper half: after the
// n-th failed attempt between d/2 and d, where d = min(Max, Base * 2^(n-1)).
type Backoff struct {
	Base Duration `yaml:"base,omitempty" json:"base,omitempty"` // 0: 5s
	Max  Duration `yaml:"max,omitempty" json:"max,omitempty"`   // 0: 1h
}

// What an Alarm may be raised on.
const (
	OnDead   = "dead"   // tasks became dead
	OnMissed = "missed" // a schedule missed a run, or was paused after failures
)

// Alarm has people told of what only they can mend: by a task of another biz type, which is delivered and retried as any task.
type Alarm struct {
	To          string   `yaml:"to" json:"to"`                                           // name of the biz type whose tasks are the alarms; it has no alarm itself
	On          []string `yaml:"on,omitempty" json:"on,omitempty"`                       // OnDead, OnMissed; none: both
	AtMostEvery Duration `yaml:"at_most_every,omitempty" json:"at_most_every,omitempty"` // between two alarms of one kind, 1m to 24h; 0: 5m
}

// AlarmOn reports whether an alarm is to be raised on OnDead or OnMissed.
func (p Policy) AlarmOn(kind string) bool {
	return p.Alarm != nil && (len(p.Alarm.On) == 0 || slices.Contains(p.Alarm.On, kind))
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
