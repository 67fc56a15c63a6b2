package operator

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
)

// due explains a row that is pending and due: the first thing in its way is the state.
func (f *facts) due(a *Answer) {
	a.Since = f.Task.ActionTime
	for _, p := range f.Pages {
		if p.Report != nil && f.inHand(a, p.Report) {
			f.typeOf(a)
			return
		}
	}
	f.typeOf(a)
	f.newer(a)
	f.turn(a)
	f.writes(a)
	f.workers(a)
	f.ownerless(a)
	if r := f.report(cmp.Or(f.Group.Owner, f.Group.Last)); r != nil {
		f.owner(a, r)
	}
	f.overdue(a)
	if a.State == "" {
		a.set(StateDue, "it has been due since %s, and nothing is known to be in its way", f.at(f.Task.ActionTime))
	}
}

// inHand explains a task that a node delivers or has delivered.
func (f *facts) inHand(a *Answer, r *node.Report) bool {
	switch {
	case r.Task == nil:
		return false
	case r.Task.Stage == dispatcher.InDelivery:
		if a.set(StateInDelivery, "node %s delivers it since %s; its time-out is %s", r.Node, f.at(r.Task.Since), f.timeout()) {
			a.Since = r.Task.Since
		}
	case r.Task.Stage == dispatcher.Unsettled:
		if a.set(StateUnsettled, "node %s has delivered it, and its outcome waits since %s to be stored", r.Node, f.at(r.Task.Since)) {
			a.Since = r.Task.Since
		}
		f.databaseOf(a, r)
	default:
		return false
	}
	return true
}

func (f *facts) timeout() fmt.Stringer {
	if p := f.policy(); p != nil {
		return span(p.WithDefaults().Timeout.D())
	}
	return sentence("not known")
}

// typeOf explains what the policy of the biz type keeps from starting.
func (f *facts) typeOf(a *Answer) {
	p := f.policy()
	switch {
	case p == nil && f.NoTypes == nil:
		a.set(StateUnknownType, "no policy names its biz type, %s: nobody delivers it before `tocsin biz apply` stores one", f.Task.BizType)
	case p != nil && p.Paused:
		if a.set(StatePaused, "biz type %s is paused until `tocsin biz resume %s`; its policy was last changed at %s", p.Name, p.Name, f.at(p.Changed)) {
			a.Since = p.Changed
		}
	}
}

// newer explains a payload that no node of the group reads.
func (f *facts) newer(a *Answer) {
	version := f.Task.PayloadVersion
	if version <= 1 || unhandled(f.policy()) || !f.Group.Known {
		return
	}
	var known []Sentence
	for _, n := range f.Group.Nodes {
		if n.Info.Reads(f.Task.BizType, version) {
			return
		}
		if slices.Contains(n.Info.Types, f.Task.BizType) {
			known = append(known, sentence("%s reads version %d at most", n.ID, max(n.Info.Versions[f.Task.BizType], 1)))
		}
	}
	if len(known) > 0 {
		a.set(StateNewer, "its payload has version %d, and no node of group %s reads it (%s): it stays as it is until one does",
			version, f.Group.Name, listed(known))
	}
}

// turn explains that others of the same biz_id go first.
func (f *facts) turn(a *Answer) {
	switch {
	case len(f.First) == 1:
		a.set(StateTurn, "it waits for job %s of the same biz_id: the policy lets one be in delivery at once, in the order of their times", f.First[0])
	case len(f.First) > 0:
		a.set(StateTurn, "it waits for one of %d jobs of the same biz_id, the first of them %s: the policy lets so many be in delivery at once, in the order of their times",
			len(f.First), f.First[0])
	}
}

// writes explains what the server itself keeps from starting.
func (f *facts) writes(a *Answer) {
	switch {
	case f.Server.ReadOnly != "":
		a.set(StateReadOnly, "server %s is read-only, so nothing can be claimed or settled there: %s", f.Server.Name, f.Server.ReadOnly)
	case f.Server.Full != nil:
		a.set(StateReadOnly, "server %s has no room for writes: %v", f.Server.Name, f.Server.Full)
	}
}

// ownerless explains a table without a node that can deliver the task.
func (f *facts) ownerless(a *Answer) {
	g := f.Group
	last := f.report(g.Last)
	switch owner := f.node(g.Owner); {
	case last != nil && g.Owner == "": // what it says of itself follows
	case !g.Known && !g.Open && g.Name != "":
		f.withoutEtcd(a)
	case !g.Known || g.Name == "":
	case len(g.Nodes) == 0:
		a.set(StateNoOwner, "group %s has no node%s: start one", g.Name, f.last())
	case owner == nil && g.Open:
		a.set(StateNoOwner, "no node of group %s has been seen in %s lately", g.Name, f.Server.Database)
	case owner == nil:
		a.set(StateNoOwner, "no node owns its table%s; group %s has %s: a free table is taken within a TTL, unless all of them drain or can't use the database",
			f.last(), g.Name, plural(len(g.Nodes), "node"))
	default:
		f.lacking(a, owner)
	}
}

// withoutEtcd explains a table when only etcd knows whether it has an owner.
func (f *facts) withoutEtcd(a *Answer) {
	says := sentence("etcd does not answer, so its table gets no new owner")
	if last := f.Group.Last; last != "" {
		says = sentence("%s; by its owner row in MySQL, node %s took it last: if that node still runs, it claims the task, and if it has ended or was restarted, the task waits for etcd or a sweep", says, last)
	}
	a.set(StateNoEtcd, "%s", says)
	grace := f.Grace
	if p := f.policy(); p != nil {
		grace = biztype.SweptAfter(p.Policy, grace)
	}
	for _, p := range f.Pages {
		if p.Report != nil && p.Report.Mode == node.Sweeping && p.Report.Group == f.Group.Name {
			a.also("the node at %s started while etcd was away: until etcd answers it owns no table and works as a sweeper, which takes the task from %s on",
				p.Address, f.at(f.Task.ActionTime.Add(grace)))
		}
	}
}

// last names the node that had the table.
func (f *facts) last() Sentence {
	if f.Group.Last == "" {
		return Sentence{}
	}
	return sentence("; %s took the table last, and has ended, or goes on in claim mode", f.Group.Last)
}

// lacking explains a biz type that the owner of the table can't deliver.
func (f *facts) lacking(a *Answer, owner *assign.NodeState) {
	g := f.Group
	why, lacks := owner.Info.Lacks[f.Task.BizType]
	if !lacks {
		return
	}
	var able []string
	for _, n := range g.Nodes {
		if slices.Contains(n.Info.Types, f.Task.BizType) {
			able = append(able, n.ID)
		}
	}
	state := StateNoHandler
	switch p := f.policy(); {
	case p != nil && p.Webhook != nil:
		state = StateNoSecret
	case p != nil && p.Sink != nil:
		state = StateNoSink
	}
	switch p := f.policy(); {
	case len(able) > 0:
		a.set(StateStandIn, "node %s, %s, can't deliver it (%s); one of %s stands in for it", owner.ID, g.holds(), why, strings.Join(able, ", "))
	case p == nil || p.Pull == nil:
		a.set(state, "node %s, %s, can't deliver it (%s), and no other node of group %s can: it waits until one has what is missing",
			owner.ID, g.holds(), why, g.Name)
	}
}

// workers explains that a task of a pull type waits since nobody asks for it.
func (f *facts) workers(a *Answer) {
	p := f.policy()
	if p == nil || p.Pull == nil {
		return
	}
	switch workers, answered := askedBy(f.Pages, p.Name); {
	case !answered || workers.Waiting > 0:
	case workers.Last.IsZero():
		a.set(StateNoWorker, "it waits for a worker: none has asked the nodes of group %s for tasks of %s since they started", f.Group.Name, p.Name)
	default:
		a.set(StateNoWorker, "it waits for a worker: none waits for tasks of %s now, and one asked last at %s", p.Name, f.at(workers.Last))
		a.Since = workers.Last
	}
}

// owner explains what the owner of the table says of itself.
func (f *facts) owner(a *Answer, r *node.Report) {
	f.databaseOf(a, r)
	switch r.Mode {
	case node.Waiting:
		a.also("node %s, %s, has no lease and delivers nothing until etcd answers it", r.Node, f.Group.holds())
	case node.Claim:
		a.also("node %s can't prove its lease, and claims each row before it starts it", r.Node)
	}
	if r.Task == nil {
		return
	}
	if r.Task.Overrun {
		a.also("an earlier delivery of it in %s is over its time-out and has not returned: the next attempt waits for that", r.Node)
	}
	i := slices.IndexFunc(r.Lanes, func(l dispatcher.LaneReport) bool { return l.BizType == f.Task.BizType })
	if i >= 0 {
		f.lane(a, r, r.Lanes[i])
	}
}

// lane explains what the lane of the biz type keeps from starting.
func (f *facts) lane(a *Answer, r *node.Report, l dispatcher.LaneReport) {
	switch {
	case l.State == dispatcher.Limited:
		a.set(StateRateLimited, "node %s waits for its part of the rate of %s, %.15g a second over the group; %s there", r.Node, l.BizType, f.rate(), waiting(l))
	case l.State == dispatcher.Away:
		if a.set(StateTargetAway, "node %s can't reach the target of %s since %s (%s): it tries one task %s, and the others wait, without an attempt; %s there",
			r.Node, l.BizType, f.at(l.AwaySince), l.Why, f.next(l), waiting(l)) {
			a.Since = l.AwaySince
		}
		if why := r.Single[l.BizType]; why != "" {
			a.also("node %s can't use the fallback of %s (%s)", r.Node, l.BizType, why)
		}
	case l.State == dispatcher.Busy && !l.NextTry.IsZero():
		if a.set(StateTargetBusy, "the target of %s has said later since %s (%s): node %s has slowed down to %s deliveries a second, makes the next one %s, and the others wait, without an attempt; %s there",
			l.BizType, f.at(l.AwaySince), l.Why, r.Node, perSecond(l.Rate), f.next(l), waiting(l)) {
			a.Since = l.AwaySince
		}
	case l.State == dispatcher.Busy:
		if a.set(StateTargetBusy, "the target of %s has said later since %s (%s): node %s has slowed down to %s deliveries a second, and the others wait, without an attempt; %s there",
			l.BizType, f.at(l.AwaySince), l.Why, r.Node, perSecond(l.Rate), waiting(l)) {
			a.Since = l.AwaySince
		}
	case l.State != dispatcher.Open, a.State == StateNoWorker: // paused, lacking or without workers: said already
	case !l.FullSince.IsZero():
		if a.set(StateLaneFull, "all %d slots of %s in node %s are in use since %s; %s there", l.Limit, l.BizType, r.Node, f.at(l.FullSince), waiting(l)) {
			a.Since = l.FullSince
		}
	case r.Task.Stage == dispatcher.Nowhere && f.Task.Status == tocsin.Claimed:
		a.also("node %s does not have it any more, so the claim will run out", r.Node)
	case r.Task.Stage == dispatcher.Nowhere && !r.Task.Admitted:
		a.set(StateUnseen, "node %s, %s, has not begun on the table yet", r.Node, f.Group.holds())
	case r.Task.Stage == dispatcher.Nowhere && f.lagging(r):
	case r.Task.Stage == dispatcher.Nowhere:
		a.set(StateUnseen, "node %s, %s, has not found it yet: the doorbell or its next scan shows it, within seconds", r.Node, f.Group.holds())
	default:
		a.set(StateQueued, "node %s has it in its queue, and starts it next: %d of %d slots of %s are in use", r.Node, l.Running, l.Limit, l.BizType)
	}
}

// next says when a node tries a target again.
func (f *facts) next(l dispatcher.LaneReport) Sentence {
	if !l.NextTry.After(f.Now) {
		return sentence("now")
	}
	return sentence("at %s", f.at(l.NextTry))
}

// perSecond writes a rate.
func perSecond(rate float64) string { return strconv.FormatFloat(rate, 'g', 2, 64) }

// waiting says how many tasks of a lane wait.
func waiting(l dispatcher.LaneReport) Sentence {
	if n := l.Queued + l.Ready; n != 1 {
		return sentence("%d tasks wait", n)
	}
	return sentence("1 task waits")
}

// lagging reports whether the node can't look into the database, which is said already.
func (f *facts) lagging(r *node.Report) bool {
	return slices.ContainsFunc(r.Databases, func(d store.Database) bool { return d.Name == f.Server.Database && d.Is != store.Usable })
}

func (f *facts) rate() float64 {
	if p := f.policy(); p != nil {
		return p.Rate
	}
	return 0
}

// databaseOf explains why a node can't use the task's database.
func (f *facts) databaseOf(a *Answer, r *node.Report) {
	name := sentence("%s", r.Node)
	if r.Node == "" {
		name = sentence("that waits for etcd")
	}
	for _, d := range r.Databases {
		switch {
		case d.Name != f.Server.Database:
		case d.Is == store.Unreachable:
			a.set(StateAway, "for node %s server %s is away: %s", name, f.Server.Name, d.Why)
		case strings.Contains(d.Why, "restore-check"):
			a.set(StateOlderCopy, "for node %s the database is refused: %s", name, d.Why)
		default:
			a.set(StateRefused, "for node %s the database is %s: %s", name, d.Is, d.Why)
		}
	}
	if how := r.Hangs[f.Server.Name]; how != "" {
		a.set(StateHangs, "for node %s server %s hangs: %s", name, f.Server.Name, how)
	}
}

// overdue explains which sweeper takes a task that nodes have left, and when.
func (f *facts) overdue(a *Answer) {
	p := f.policy()
	if p == nil || p.Paused || p.Pull != nil { // no sweep has workers
		return
	}
	sweep, next := sentence("`tocsin sweep`, on any host,"), sentence("`tocsin sweep`, on any host")
	if !unhandled(p) {
		sweep = sentence("a sweep of a program with the handler (node.Sweep, group %s)", p.WithDefaults().Group)
		next = sweep
	}
	grace := biztype.SweptAfter(p.Policy, f.Grace)
	from := f.Task.ActionTime.Add(grace)
	if from.After(f.Now) {
		if a.State != "" && a.State != StateQueued && a.State != StateUnseen {
			a.also("%s takes it from %s on, after the grace time of %s", sweep, f.at(from), span(grace))
		}
		return
	}
	a.set(StateOverdue, "it is overdue: due at %s, and past the grace time of %s since %s; the next run of %s takes it",
		f.at(f.Task.ActionTime), span(grace), f.at(from), next)
}
