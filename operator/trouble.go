package operator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/node"
)

// Trouble is one thing that is wrong now.
type Trouble struct {
	Level   Level    // Warn or Fail
	Is      string   // one sentence
	Said    Sentence // the same with its parts
	Section string   // of docs/runbook.md, which says what to do: TocsinServerDown
	BizType string   // that it is about; "": of none, or of several
	Server  string
	Node    string
}

// From when on something is told. The alerts in deploy/prometheus have the same bounds, and wait for longer.
const (
	overdueWarn  = 2 * time.Minute
	overdueFail  = 15 * time.Minute
	backlogWarn  = 100 // overdue tasks that do not become fewer
	failingWarn  = .2  // of the attempts
	failingFail  = .9
	failingLeast = 2 // attempts since the look before
	unsettledFor = 30 * time.Second
)

// Troubles returns what is wrong, the worst first. With sees it leaves out biz types that sees does not allow, and what is told of
// nodes, which are of all biz types; nil allows all.
func (o Overview) Troubles(sees func(string) bool) []Trouble {
	all := []Trouble{}
	for _, s := range o.Servers {
		all = append(all, s.troubles(sees == nil)...)
	}
	all = append(all, o.groupsAway(sees)...)
	if sees == nil {
		all = append(all, o.listing()...)
		for _, n := range o.Nodes {
			all = append(all, n.troubles()...)
		}
	}
	for _, t := range o.Types {
		if sees == nil || sees(t.Name) {
			all = append(all, t.troubles(o.Seconds)...)
		}
	}
	slices.SortStableFunc(all, func(a, b Trouble) int { return cmp.Compare(b.Level, a.Level) })
	return all
}

// listing is what could not be read of the nodes and biz types.
func (o Overview) listing() (all []Trouble) {
	if o.unlisted != nil {
		level := Warn
		if len(o.Nodes) == 0 {
			level = Fail
		}
		all = append(all, trouble(Trouble{Level: level, Section: "TocsinNodeOutOfOrder"}, "the nodes can't be listed in full, these are the last known: %s", OneLine(o.unlisted)))
	}
	if o.unread != nil {
		all = append(all, trouble(Trouble{Level: Warn, Section: "TocsinDatabaseUnusable"}, "not all biz types can be read: %s", OneLine(o.unread)))
	}
	return all
}

// groupsAway are the groups without a node, with those of their biz types that are allowed and not paused.
func (o Overview) groupsAway(sees func(string) bool) (all []Trouble) {
	if o.unlisted != nil {
		return nil // nobody knows
	}
	waiting := slices.DeleteFunc(slices.Clone(o.policies), func(p biztype.Policy) bool { return p.Paused || sees != nil && !sees(p.Name) })
	groups := map[string]bool{}
	for _, p := range waiting {
		groups[p.Group] = true
	}
	for _, n := range o.Nodes {
		delete(groups, n.Group)
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		if says := withoutNode(waiting, group); says.Text != "" {
			all = append(all, trouble(Trouble{Level: Fail, Section: "TocsinGroupWithoutNodes"}, "%s", says))
		}
	}
	return all
}

// troubles tells of a server in one sentence. Only with why it repeats errors, which may name addresses.
func (s ServerOverview) troubles(why bool) []Trouble {
	t := Trouble{Level: Fail, Server: s.Name}
	switch {
	case s.Waiting >= hangs.Seconds():
		t.Section = "TocsinServerHangs"
		t = trouble(t, "server %s %s", s.Name, s.trouble())
	case s.Away > 0:
		t.Section = "TocsinServerDown"
		t = trouble(t, "server %s %s", s.Name, s.trouble())
	case s.Err != nil:
		t.Section = "TocsinDatabaseUnusable"
		says := sentence("what is overdue on server %s can't be read", s.Name)
		if mysql.Unanswered(s.Err) {
			t.Section, says = "TocsinServerDown", sentence("server %s %s", s.Name, fixed(mysql.Fault(s.Err)))
		}
		if why {
			says = sentence("%s: %s", says, OneLine(s.Err))
		}
		t = trouble(t, "%s", says)
	case s.Unread > 0:
		t.Level, t.Section = Warn, "TocsinDatabaseUnusable"
		t = trouble(t, "%s of server %s can't be read: what is overdue there is not known", plural(s.Unread, "table"), s.Name)
	case s.Figures >= stale.Seconds():
		t.Level, t.Section = Warn, "TocsinBacklogNotMeasured"
		t = trouble(t, "server %s %s", s.Name, s.trouble())
	default:
		return nil
	}
	return []Trouble{t}
}

// trouble completes a Trouble with its sentence.
func trouble(t Trouble, format string, args ...any) Trouble {
	t.Said = sentence(format, args...)
	t.Is = t.Said.Text
	return t
}

// modes says what is wrong with a node in a mode.
var modes = map[string]string{
	string(node.Claim):    "can't prove its lease, and claims each task before it starts it",
	string(node.Sweeping): "started while etcd was away, and delivers only what is overdue",
	string(node.Waiting):  "delivers nothing: it waits for etcd or a server",
}

func (n NodeActivity) troubles() (all []Trouble) {
	say := func(section, format string, args ...any) {
		all = append(all, trouble(Trouble{Level: Warn, Section: section, Node: n.ID}, "node %s %s", nodeAt(n.ID, n.Address), sentence(format, args...)))
	}
	if n.Error != "" {
		say("TocsinNoMetrics", "does not answer: %s", n.Error)
		return all
	}
	if is := modes[n.Mode]; is != "" {
		say("TocsinNodeOutOfOrder", "%s", fixed(is))
	}
	if n.Unsettled > 0 && n.Oldest >= unsettledFor.Seconds() {
		say("TocsinOutcomesWait", "has %s that could not be stored, the oldest for %s", plural(n.Unsettled, "outcome"), span(secondsOf(n.Oldest)))
	}
	return all
}

// troubles tells of a biz type. within are the seconds that its rates are of.
func (t TypeOverview) troubles(within float64) (all []Trouble) {
	say := func(level Level, section, format string, args ...any) {
		all = append(all, trouble(Trouble{Level: level, Section: section, BizType: t.Name}, "%s %s", t.Name, sentence(format, args...)))
	}
	switch {
	case t.nobody && t.State == noWorker && t.Age > 0:
		say(Fail, "TocsinNoWorkers", "has no worker that asks for its tasks: %s", t.waiting())
	case t.nobody && t.State == noWorker:
		say(Warn, "TocsinNoWorkers", "has no worker that asks for its tasks")
	case t.nobody && t.Age > 0:
		say(Fail, "TocsinHandlerMissing", "can't be delivered: no node of its group has the handler, the secret or the sink; %s", t.waiting())
	case t.nobody:
		say(Fail, "TocsinHandlerMissing", "can't be delivered: no node of its group has the handler, the secret or the sink")
	case t.State == "lacking":
		say(Warn, "TocsinHandlerMissing", "can't be delivered by a node of its group: it lacks the handler, the secret or the sink")
	case t.State == "away":
		say(Fail, "TocsinTargetAway", "has a target that a node can't reach: its tasks wait there, and use no attempt")
	case t.State == "busy":
		say(Warn, "TocsinTargetAway", "has a target that says later: its tasks wait, and are delivered at %s a second", perSecond(t.Throttled))
	case t.State == "full" && t.Age > 0:
		say(Warn, "TocsinLaneFull", "uses all its %d slots, and tasks wait for one", t.Limit)
	}
	grows := t.Grows && t.Overdue != nil && *t.Overdue > backlogWarn
	switch {
	case t.nobody: // said already
	case t.State == "paused" && t.Age > 0:
		say(Warn, "TocsinTaskOverdue", "is paused, with %s", t.waiting())
	case t.Age > overdueFail.Seconds():
		say(Fail, "TocsinTaskOverdue", "is late: %s", t.waiting())
	case t.Age > overdueWarn.Seconds():
		say(Warn, "TocsinTaskOverdue", "is late: %s", t.waiting())
	case grows && t.State != "paused":
		say(Warn, "TocsinBacklogGrows", "has a backlog: %s", t.waiting())
	}
	if failed := t.Failed / (t.Failed + t.Delivered); t.Failed*within >= failingLeast && failed > failingWarn {
		level := Warn
		if failed > failingFail {
			level = Fail
		}
		say(level, "TocsinAttemptsFail", "fails in %.0f %% of its attempts, %s a second", failed*100, rate(t.Failed))
	}
	if t.Dead > 0 {
		say(Warn, "TocsinTasksDie", "has tasks that die, %s a second", rate(t.Dead))
	}
	return all
}

// waiting says what is overdue.
func (t TypeOverview) waiting() Sentence {
	is := sentence("%s, the oldest for %s", plural(int(*t.Overdue), "overdue task"), span(t.Oldest()))
	if t.AtLeast {
		is = sentence("at least %s", is)
	}
	switch {
	case t.State == "paused":
		return is
	case t.Grows:
		return sentence("%s; they do not become fewer", is)
	case t.Drain != nil:
		return sentence("%s; at this pace none is left in %s", is, span(secondsOf(*t.Drain)))
	}
	return is
}
