package chaos

import (
	"fmt"
	"slices"
	"time"
)

// lostBy names the fault for which nobody settled a lease in time: what happened to the worker that had the task, to its requests, or to
// the answer with which the task should have come.
func (v verdict) lostBy(t task, h hold, sent []settled) string {
	if i := slices.IndexFunc(t.of, func(d delivery) bool { return d.Lease == h.by }); i >= 0 {
		if cause := v.workerFault(t.of[i].Node, h.at, h.end.At); cause != "" {
			return cause
		}
		for _, s := range sent {
			if cause := v.nodeFault(s.of); s.by == h.by && s.result == "" && cause != "" {
				return cause
			}
		}
		for _, r := range v.asked {
			if cause := v.nodeFault(r); r.Worker == t.of[i].Node && r.brings(h) && cause != "" {
				return cause
			}
		}
		return v.serverFault(t, h)
	}
	for _, r := range v.asked {
		if !r.broke() || !r.brings(h) {
			continue
		}
		if cause := v.nodeFault(r); cause != "" {
			return cause
		}
		if cause := v.workerFault(r.Worker, r.Sent, h.until); cause != "" {
			return cause
		}
	}
	for _, i := range v.incidents { // the node had not answered yet
		if (i.Fault == KillNode || i.Fault == FreezeNode) && !i.from.Before(h.at.Add(-notedWithin)) && i.from.Before(h.at.Add(parkedFor)) {
			return string(i.Fault)
		}
	}
	return v.serverFault(t, h)
}

// brings reports whether the answer to the request may have had the lease in it.
func (r request) brings(h hold) bool {
	return r.Asks && r.during(h.at.Add(-notedWithin), h.at.Add(notedWithin))
}

// workerFault names a fault of the worker in a span; "": there was none.
func (v verdict) workerFault(worker string, from, to time.Time) string {
	for _, i := range v.incidents {
		if i.hits(worker, FreezeWorker) && i.touches(from, to, 0) || i.hits(worker, KillWorker) && !i.from.Before(from) && !i.from.After(to) {
			return string(i.Fault)
		}
	}
	return ""
}

// nodeFault names a fault of the node that a request went to, while it was under way; "": there was none. A node that is asked to leave answers
// all who wait, and one that is dead has leased nothing since.
func (v verdict) nodeFault(r request) string {
	node := fmt.Sprintf("n%d", r.Node+1)
	for _, i := range v.incidents {
		killed := i.hits(node, KillNode) && !i.from.Before(r.Sent) && !i.from.After(r.end())
		if killed || i.hits(node, CutAnswers, FreezeNode) && i.touches(r.Sent, r.end(), 0) {
			return string(i.Fault)
		}
	}
	return ""
}

// serverFault names a fault of the task's server while the lease lasted; causeNone: there was none.
func (v verdict) serverFault(t task, h hold) string {
	for _, i := range v.incidents {
		if i.harms(v.at(t)) && i.touches(h.at, h.end.At, 0) {
			return string(i.Fault)
		}
	}
	return causeNone
}
