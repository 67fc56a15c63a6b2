package chaos

import (
	"sync"
	"time"
)

// incident is a fault as it happened.
type incident struct {
	Step
	from, to time.Time // to is zero while it lasts
}

// touches reports whether it may have had effect at some time of a span: it goes
// on for a while after its end, until leases, claims and connections are new.
func (i incident) touches(from, to time.Time, after time.Duration) bool {
	return !to.Before(i.from) && (i.to.IsZero() || !from.After(i.to.Add(after)))
}

// incidents is the log of faults. Safe for concurrent use.
type incidents struct {
	mu  sync.Mutex
	all []incident
}

// begin notes a fault and gives what ends it.
func (l *incidents) begin(s Step) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.all)
	l.all = append(l.all, incident{Step: s, from: time.Now()})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all[n].to = time.Now()
	}
}

// list is a copy.
func (l *incidents) list() []incident {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]incident(nil), l.all...)
}
