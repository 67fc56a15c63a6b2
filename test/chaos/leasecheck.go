package chaos

import (
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/store"
)

const (
	takenBackAfter = 5 * time.Second // the end of a lease
	handedWithin   = 6 * time.Second // after the end of a lease that ran out, or from when on a task is due
	notedWithin    = 500 * time.Millisecond
	parkedFor      = 3 * time.Second  // a node may have a lease for a worker that it has not answered yet
	waitsFrom      = time.Second      // a worker whose request lasts this long found nothing to do
	askedFor       = 10 * time.Second // a node that nobody has asked for so long leaves its tasks to nodes whose workers wait
)

// pulled checks the leases of a task.
func (v verdict) pulled(t task) {
	sent, holds, ran := v.sent[t.row.JobID], v.holds(t), 0
	for _, d := range t.of {
		if !slices.ContainsFunc(holds, func(h hold) bool { return h.by == d.Lease }) {
			v.breach(t, promiseLeased)
		}
	}
	for i, h := range holds {
		if !v.putBack(h, sent) {
			v.handedOver(t, h)
		}
		v.ended(t, h, sent)
		came := slices.ContainsFunc(t.of, func(d delivery) bool { return d.Lease == h.by })
		again := came && i+1 < len(holds)
		if !h.ranOut() && !(v.putBack(h, sent) && again) {
			continue
		}
		cause := v.lostBy(t, h, sent)
		if h.ranOut() {
			ran++
			v.report.count(lineRanOut, cause)
		}
		if again {
			v.report.count(lineAgain, cause)
		}
		if cause == causeNone {
			v.breach(t, promiseCause)
		}
	}
	v.succeeded(t, holds, sent)
	v.report.MostAgain = max(v.report.MostAgain, ran)
}

// holds are the leases of a task, in their order. It checks that nobody has another one, nor takes one back before its end.
func (v verdict) holds(t task) (all []hold) {
	due, lost := t.asked(0).awaited(), time.Time{}
	soonest := t.asked(0).due() // a worker may have the task before its insert is acknowledged
	for _, n := range v.leases[t.row.JobID] {
		if n.Was == tocsin.Done && n.Status != tocsin.Done {
			v.breach(t, promiseSuccess)
		}
		var last *hold
		if len(all) > 0 && all[len(all)-1].open() {
			last = &all[len(all)-1]
		}
		_, _, leased := store.LeaseBegan(n.ClaimedBy)
		switch {
		case n.Status == tocsin.Claimed && last != nil && last.by == n.ClaimedBy:
			last.until = n.Action
		case n.Status == tocsin.Claimed:
			if last != nil || !leased {
				v.breach(t, promiseLease)
			}
			if n.At.Before(soonest) {
				v.report.Early++
				v.breach(t, promiseEarly)
			}
			all = append(all, hold{by: n.ClaimedBy, at: n.At, until: n.Action, attempts: n.Attempts, version: n.Version, due: due, lost: lost})
		case last != nil:
			last.end = n
			if last.ranOut() && n.At.Before(last.until.Add(takenBackAfter)) {
				v.breach(t, promiseLease)
			}
		}
		if n.Status == tocsin.Pending {
			due, lost = laterOf(n.Action, n.At), time.Time{}
		}
		switch {
		case last == nil || last.open():
		case last.ranOut():
			due, lost = last.until, last.until.Add(-pullLease)
		case v.putBack(*last, v.sent[t.row.JobID]):
			due, lost = last.due, last.lost
		}
		if len(all) > 0 {
			soonest = due
		}
	}
	return all
}

// putBack reports whether a node gave the task back, as no worker took it.
func (v verdict) putBack(h hold, sent []settled) bool {
	if h.end.Status != tocsin.Pending || h.end.Attempts > h.attempts || h.end.Version != h.version || h.open() {
		return false
	}
	return !slices.ContainsFunc(sent, func(s settled) bool { return s.by == h.by && (s.Do == endRelease || s.Do == endSnooze) })
}

// ended checks that a lease ended as its worker said, or ran out.
func (v verdict) ended(t task, h hold, sent []settled) {
	said := func(do string) bool {
		return slices.ContainsFunc(sent, func(s settled) bool { return s.by == h.by && s.Do == do })
	}
	more := h.end.Attempts > h.attempts
	switch {
	case h.open():
	case h.end.Version != h.version || h.end.Status == tocsin.Cancelled:
		v.report.count(lineLeases, "changed by the user")
	case h.end.Status == tocsin.Done:
		v.report.count(lineLeases, "completed")
	case h.end.Status == tocsin.Dead:
		v.report.count(lineLeases, "buried")
		if !said(endBury) {
			v.breach(t, promiseBuried)
		}
	case h.ranOut():
		v.report.count(lineLeases, "ran out")
	case more:
		v.report.count(lineLeases, "retried")
		if !said(endRetry) {
			v.breach(t, promiseAttempts)
		}
	case v.putBack(h, sent):
		v.report.count(lineLeases, "put back by a node")
	default:
		v.report.count(lineLeases, "snoozed or released")
	}
}

// succeeded checks that what a worker completed is done.
func (v verdict) succeeded(t task, holds []hold, sent []settled) {
	for _, s := range sent {
		if s.Do != endComplete || s.result != isDone && s.result != isAlready {
			continue
		}
		if t.row.Status != tocsin.Done {
			v.breach(t, promiseSuccess)
		}
		if s.result == isDone && s.by != holds[len(holds)-1].by {
			v.report.count(lineLeases, "completed after they had run out, beside another one")
		}
	}
}

// handedOver checks how long a task waited for a worker: from the end of a fault that delays it on, at most a recovery; else handedWithin.
func (v verdict) handedOver(t task, h hold) {
	at, until, cause := v.at(t), h.due.Add(handedWithin), ""
	for _, i := range v.incidents {
		if !i.delays(at) || i.from.After(until) || !i.touches(h.due, until, v.opts.recovery()) {
			continue
		}
		if i.to.IsZero() || i.to.Add(v.opts.recovery()).After(until) {
			cause, until = string(i.Fault), i.to.Add(v.opts.recovery())
			if i.to.IsZero() {
				until = h.at
			}
		}
	}
	if !h.lost.IsZero() {
		line := timeAgain
		if v.delayed(at, h.due, h.at) {
			line += besideFaults
		}
		v.report.book(line, h.at.Sub(h.lost))
	}
	waits := func(r request) bool {
		return r.Asks && !r.broke() && r.during(until, until) && r.Back.Sub(r.Sent) >= waitsFrom &&
			v.workerFault(r.Worker, r.Sent, r.Back) == "" && v.nodeFault(r) == "" // a frozen worker does not wait, and one at a frozen node is heard later
	}
	switch {
	case !h.at.After(h.due.Add(handedWithin)):
	case !h.at.After(until):
		v.report.count(lineWaited, cause)
	case !h.at.After(v.stillAsked(h.at, waits).Add(handedWithin)):
		v.report.count(lineWaited, "a node was asked shortly before")
	case !slices.ContainsFunc(v.asked, waits):
		v.report.count(lineWaited, "no worker waited")
	default:
		v.report.count(lineWaited, causeNone)
		v.breach(t, promiseHanded)
	}
}

// stillAsked returns until when some node that has no worker waiting leaves its tasks to no other node, as one has asked it shortly before. It is that of
// the requests that were over at a time; zero: there is no such node.
func (v verdict) stillAsked(at time.Time, waits func(request) bool) (until time.Time) {
	waited := map[int]bool{}
	for _, r := range v.asked {
		waited[r.Node] = waited[r.Node] || waits(r)
	}
	for _, r := range v.asked {
		if last := r.end().Add(askedFor); r.Asks && !waited[r.Node] && r.end().Before(at) && last.After(until) {
			until = last
		}
	}
	return until
}

// settled is an ending that a worker sent, and what it was told of it.
type settled struct {
	ending
	by     string // the claimer of the lease
	of     request
	result string // "": it was not told
}

// sentEnds returns what workers sent to settle tasks, by task.
func (e *evidence) sentEnds() map[tocsin.JobID][]settled {
	all := map[tocsin.JobID][]settled{}
	for _, r := range e.asked {
		for _, end := range r.Ends {
			text, _, _ := strings.Cut(end.Lease, ".")
			id, err := tocsin.ParseJobID(text)
			if err != nil {
				continue
			}
			s := settled{ending: end, by: claimer(end.Lease), of: r}
			for _, b := range r.Results {
				if b.Lease == end.Lease {
					s.result = b.Result
				}
			}
			all[id] = append(all[id], s)
		}
	}
	return all
}
