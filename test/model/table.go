package model

import (
	"slices"
	"strings"
)

// Write names a line of the write table; load and read back are reads whose conditions matter as much. Add has no
// condition: it is where every history begins.
type Write uint8

// The lines of the table.
const (
	Load Write = iota
	Cancel
	Reschedule
	Claim
	ReadBack
	Complete
	Retry
	Snooze
	Bury
	BuryByHand
	RecoverBury
	RecoverBack
	Redrive
	RedriveSameKey
	Purge
	writes
)

var writeNames = [writes]string{
	"load", "cancel", "reschedule", "claim", "read back", "complete", "retry", "snooze", "bury", "bury by hand",
	"recover (bury)", "recover (give back)", "redrive", "redrive with the same key", "purge",
}

// String gives the word of the table.
func (w Write) String() string { return writeNames[w] }

// params are what a statement is given.
type params struct {
	by       int   // actor; nobody: it will not hear of it
	version  uint8 // as loaded
	attempts uint8 // as loaded
	held     bool  // the attempt holds a claim
	same     bool  // the row's action_time is the one it was read with; held: the claim's deadline
	next     int8  // retry, snooze, reschedule
	found    bool  // claim: the claimer may give the row back as it was; snooze: does so
	strict   bool  // cancel, reschedule, bury by hand: the biz type is
}

// nobody makes a write of which no actor learns.
const nobody = -1

// condition is one conjunct of a write's WHERE.
type condition struct {
	name   string
	holds  func(r *row, p *params) bool
	weaker []condition // what it could be weakened to, beside being dropped
}

// line is a write: where it applies and what it sets.
type line struct {
	where []condition
	set   func(r *row, p *params)
}

// unchanged is the condition of the writes that only who holds the attempt may make.
var unchanged = []condition{
	asLoaded,
	{name: "attempts as loaded", holds: func(r *row, p *params) bool { return r.attempts == p.attempts }},
	{name: "status as left", holds: func(r *row, p *params) bool { return r.status == leftAs(p) }},
	{name: "action_time as left", holds: func(r *row, p *params) bool { return p.same }},
	{name: "claimed by me", holds: func(r *row, p *params) bool { return !p.held || int(r.claimant) == p.by+1 }},
}

// leftAs is the status in which an attempt left its row.
func leftAs(p *params) status {
	if p.held {
		return claimed
	}
	return pending
}

var (
	byMe     = condition{name: "claimed by me", holds: func(r *row, p *params) bool { return r.status == claimed && int(r.claimant) == p.by+1 }}
	deadline = condition{name: "deadline as written", holds: func(_ *row, p *params) bool { return p.same }}
	isDue    = condition{name: "action_time <= now", holds: func(r *row, _ *params) bool { return r.action <= 0 }}
	asRead   = condition{name: "action_time as read", holds: func(_ *row, p *params) bool { return p.same }}
	asLoaded = condition{name: "version as loaded", holds: func(r *row, p *params) bool { return r.version == p.version }}
	ranOut   = condition{
		name:   "deadline passed by 5 s",
		holds:  deadlinePassed(recoverLate),
		weaker: []condition{{name: "deadline passed", holds: deadlinePassed(0)}},
	}
	lastLife = condition{name: "last crash", holds: func(r *row, _ *params) bool { return r.crashes+1 >= maxCrashes }}
	moreLife = condition{name: "not the last crash", holds: func(r *row, _ *params) bool { return r.crashes+1 < maxCrashes }}
	mayBreak = condition{name: "not claimed, if the biz type is strict", holds: func(r *row, p *params) bool { return !p.strict || r.status != claimed }}
	expired  = condition{name: "settled before the cut-off", holds: func(r *row, _ *params) bool { return r.action <= -retention }}
)

func deadlinePassed(by int8) func(*row, *params) bool {
	return func(r *row, _ *params) bool { return r.action <= -by }
}

// table is the write table of the design.
var table = [writes]line{
	Load:           {where: []condition{statusIn(pending)}},
	Cancel:         {where: []condition{statusIn(pending, claimed), mayBreak}, set: func(r *row, _ *params) { r.end(cancelled) }},
	Reschedule:     {where: []condition{statusIn(pending, claimed), mayBreak}, set: setReschedule},
	Claim:          {where: []condition{statusIn(pending), isDue, asRead}, set: setClaim},
	ReadBack:       {where: []condition{byMe, deadline}},
	Complete:       {where: []condition{asLoaded, statusIn(pending, claimed, dead)}, set: setComplete},
	Retry:          {where: unchanged, set: setRetry},
	Snooze:         {where: unchanged, set: setSnooze},
	Bury:           {where: unchanged, set: setBury},
	BuryByHand:     {where: []condition{statusIn(pending, claimed), mayBreak}, set: func(r *row, _ *params) { r.end(dead) }},
	RecoverBury:    {where: []condition{statusIn(claimed), lastLife, ranOut}, set: setRecoverBury},
	RecoverBack:    {where: []condition{statusIn(claimed), moreLife, ranOut}, set: setRecoverBack},
	Redrive:        {where: []condition{statusIn(dead)}, set: setRedrive},
	RedriveSameKey: {where: []condition{statusIn(dead)}, set: setRedriveSameKey},
	Purge:          {where: []condition{statusIn(done, cancelled, dead), expired}, set: setPurge},
}

// end makes the row final.
func (r *row) end(as status) { r.status, r.action, r.claimant = as, 0, 0 }

// wait makes the row pending.
func (r *row) wait(until int8) { r.status, r.action, r.claimant = pending, until, 0 }

func setReschedule(r *row, p *params) {
	r.wait(p.next)
	r.due = p.next
	r.attempts = 0
	r.version++
}

func setClaim(r *row, p *params) {
	r.status, r.action, r.claimant = claimed, hold, uint8(p.by+1)
}

func setRetry(r *row, p *params) { r.wait(p.next); r.attempts++ }

func setSnooze(r *row, p *params) { r.wait(p.next) }

func setBury(r *row, _ *params) { r.end(dead); r.attempts++ }

func setComplete(r *row, _ *params) { r.end(done) }

func setRecoverBury(r *row, _ *params) { r.end(dead); r.crashes++ }

func setRecoverBack(r *row, _ *params) { r.wait(0); r.crashes++ }

func setPurge(r *row, _ *params) { *r = row{status: purged} }

// setRedrive asks for now, though due_time stays what the user asked for.
func setRedrive(r *row, p *params) {
	setRedriveSameKey(r, p)
	r.version++
}

func setRedriveSameKey(r *row, _ *params) {
	r.wait(0)
	r.due = 0
	r.attempts, r.crashes = 0, 0
}

// statusIn holds in some statuses. It can be weakened by each of the others.
func statusIn(in ...status) condition {
	c := inSet(in)
	for s := pending; s <= dead; s++ {
		if !slices.Contains(in, s) {
			c.weaker = append(c.weaker, inSet(append(slices.Clone(in), s)))
		}
	}
	return c
}

func inSet(in []status) condition {
	var bits uint8
	names := make([]string, len(in))
	for i, s := range in {
		bits |= 1 << s
		names[i] = s.String()
	}
	return condition{
		name:  strings.Join(names, " or "),
		holds: func(r *row, _ *params) bool { return bits>>r.status&1 == 1 },
	}
}
