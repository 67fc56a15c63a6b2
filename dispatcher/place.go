package dispatcher

import (
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Stage is how far a task has come in this process.
type Stage string

// The stages, in order. A task may leave after any of them.
const (
	Nowhere    Stage = "nowhere"     // this process knows nothing of it
	Queued     Stage = "queued"      // its id waits for its time, or for room in its lane
	Loaded     Stage = "loaded"      // its row is read and waits for its time, for a slot or for the rate
	InDelivery Stage = "in_delivery" // its target has it
	Unsettled  Stage = "unsettled"   // its outcome waits to be stored
)

// Place is where a task is in this process.
type Place struct {
	Stage Stage     `json:"stage"`
	Since time.Time `json:"since,omitzero"` // InDelivery and Unsettled: by this host's clock

	Admitted bool `json:"admitted"` // rows of its table may start here
	Overrun  bool `json:"overrun"`  // an earlier delivery of it is over its time-out and has not returned
}

// Place returns where a task of a server is. It looks through what is loaded, so it is for people.
func (d *Dispatcher) Place(server int, id tocsin.JobID) Place {
	s := d.servers[server]
	var p Place
	s.mu.Lock()
	defer s.mu.Unlock()
	_, p.Overrun = s.overruns[id]
	p.Admitted = s.admitted(id.Table())
	if i := slices.IndexFunc(s.open, func(t *task) bool { return t.row.JobID == id }); i >= 0 {
		t := s.open[i]
		p.Stage, p.Since = InDelivery, t.began
		if t.reported {
			p.Stage, p.Since = Unsettled, t.reportedAt
		}
		return p
	}
	p.Stage = Nowhere
	for _, l := range s.order {
		switch flying, known := l.queue.Has(id); {
		case flying:
			p.Stage = Loaded
		case known:
			p.Stage = Queued
		}
	}
	return p
}

// State says what keeps deliveries of a biz type from starting.
type State string

// The states of a lane. A lane that is open may be full: see LaneReport.
const (
	Open    State = "open"
	Limited State = "limited" // it waits for its rate
	Paused  State = "paused"
	Lacking State = "lacking" // this process has no handler or secret for the type
	Away    State = "away"    // its target could not be reached: one delivery at a time tries it
	Busy    State = "busy"    // its target has said "later": it rests, or gets deliveries as it takes them
)

// LaneReport is what is in hand of one biz type, over all servers.
type LaneReport struct {
	BizType string `json:"biz_type"`
	State   State  `json:"state"`
	Queued  int    `json:"queued"`  // ids in the due queues
	Ready   int    `json:"ready"`   // rows that are due, and loaded, and wait for a slot or for the rate
	Running int    `json:"running"` // slots in use
	Limit   int    `json:"limit"`   // slots

	FullSince time.Time `json:"full_since,omitzero"` // all slots have been in use since then; zero: some are free

	// Away and Busy.
	AwaySince time.Time `json:"away_since,omitzero"`
	NextTry   time.Time `json:"next_try,omitzero"`   // one delivery is made then; in the past: it is, or none is due; zero: Busy, and it does not rest
	Why       string    `json:"why,omitempty"`       // the error of the last delivery that was not taken
	Rate      float64   `json:"throttled,omitempty"` // Busy: deliveries a second
}

// Lanes reports on all biz types, by name.
func (d *Dispatcher) Lanes() []LaneReport {
	all, _ := d.lanes()
	return all
}

// lanes is Lanes, with the time since which the oldest outcome has waited to be settled; if none waits, that is now.
func (d *Dispatcher) lanes() (all []LaneReport, oldest time.Time) {
	queued := make(map[*kind]int)
	oldest = time.Now()
	for _, s := range d.servers {
		s.mu.Lock()
		for _, l := range s.order {
			queued[l.kind] += l.queue.Len()
		}
		for _, t := range s.open {
			if t.reported && t.reportedAt.Before(oldest) {
				oldest = t.reportedAt
			}
		}
		s.mu.Unlock()
	}
	all = []LaneReport{} // an empty list in JSON, not null
	for _, k := range d.allKinds() {
		report := k.report()
		report.Queued = queued[k]
		all = append(all, report)
	}
	slices.SortFunc(all, func(a, b LaneReport) int { return strings.Compare(a.BizType, b.BizType) })
	return all, oldest
}

// report returns how many of the kind's slots are in use, and what keeps more from it.
func (k *kind) report() LaneReport {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.rule.Load()
	if k.breaker.state == "" && k.breaker.throttle.idle(time.Now()) {
		k.breaker.throttle = throttle{}
		k.metrics.throttle(0)
	}
	report := LaneReport{BizType: r.policy.Name, State: Open, Ready: k.waiting, Running: k.running, Limit: r.policy.Concurrency, FullSince: k.fullSince}
	switch {
	case r.lacked:
		report.State = Lacking
	case r.paused:
		report.State = Paused
	case k.breaker.state != "":
		report.State, report.AwaySince, report.NextTry, report.Why = k.breaker.state, k.breaker.since, k.breaker.next, k.breaker.why
	case k.breaker.throttle.rate > 0:
		report.State, report.Why = Busy, k.breaker.why
	case k.timer != nil:
		report.State = Limited
	}
	if report.State == Busy {
		report.AwaySince, report.Rate = k.breaker.throttle.since, k.breaker.throttle.rate
	}
	return report
}

// occupy takes slots, or gives them back, and keeps since when all are in use. Called under k.mu.
func (k *kind) occupy(slots int, r *rule) {
	k.running += slots
	switch full := k.running >= r.policy.Concurrency; {
	case !full:
		k.fullSince = time.Time{}
	case k.fullSince.IsZero():
		k.fullSince = time.Now()
	}
}
