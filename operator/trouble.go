package operator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/node"
)

// Trouble is one thing that is wrong now.
type Trouble struct {
	Level   Level  // Warn or Fail
	Is      string // one sentence
	Section string // of docs/runbook.md, which says what to do: TocsinServerDown
	BizType string // that it is about; "": of none, or of several
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
		all = append(all, Trouble{Level: level, Section: "TocsinNodeOutOfOrder", Is: "the nodes can't be listed in full, these are the last known: " + OneLine(o.unlisted)})
	}
	if o.unread != nil {
		all = append(all, Trouble{Level: Warn, Section: "TocsinDatabaseUnusable", Is: "not all biz types can be read: " + OneLine(o.unread)})
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
		for _, c := range groupAway(waiting, group) {
			all = append(all, Trouble{Level: Fail, Section: "TocsinGroupWithoutNodes", Is: c.Is})
		}
	}
	return all
}

// troubles tells of a server in one sentence. Only with why it repeats errors, which may name addresses.
func (s ServerOverview) troubles(why bool) []Trouble {
	t := Trouble{Level: Fail, Server: s.Name}
	switch {
	case s.Waiting >= hangs.Seconds():
		t.Section, t.Is = "TocsinServerHangs", "server "+s.Name+" "+s.trouble()
	case s.Away > 0:
		t.Section, t.Is = "TocsinServerDown", "server "+s.Name+" "+s.trouble()
	case s.Err != nil:
		t.Section, t.Is = "TocsinDatabaseUnusable", "what is overdue on server "+s.Name+" can't be read"
		if mysql.Unanswered(s.Err) {
			t.Section, t.Is = "TocsinServerDown", "server "+s.Name+" "+mysql.Fault(s.Err)
		}
		if why {
			t.Is += ": " + OneLine(s.Err)
		}
	case s.Unread > 0:
		t.Level, t.Section = Warn, "TocsinDatabaseUnusable"
		t.Is = fmt.Sprintf("%s of server %s can't be read: what is overdue there is not known", plural(s.Unread, "table"), s.Name)
	case s.Figures >= stale.Seconds():
		t.Level, t.Section, t.Is = Warn, "TocsinBacklogNotMeasured", "server "+s.Name+" "+s.trouble()
	default:
		return nil
	}
	return []Trouble{t}
}

// modes says what is wrong with a node in a mode.
var modes = map[string]string{
	string(node.Claim):    "can't prove its lease, and claims each task before it starts it",
	string(node.Sweeping): "started while etcd was away, and delivers only what is overdue",
	string(node.Waiting):  "delivers nothing: it waits for etcd or a server",
}

func (n NodeActivity) troubles() (all []Trouble) {
	say := func(level Level, section, is string) {
		all = append(all, Trouble{Level: level, Section: section, Node: n.ID, Is: "node " + titleOf(n) + " " + is})
	}
	if n.Error != "" {
		say(Warn, "TocsinNoMetrics", "does not answer: "+n.Error)
		return all
	}
	if is := modes[n.Mode]; is != "" {
		say(Warn, "TocsinNodeOutOfOrder", is)
	}
	if n.Unsettled > 0 && n.Oldest >= unsettledFor.Seconds() {
		say(Warn, "TocsinOutcomesWait", fmt.Sprintf("has %s that could not be stored, the oldest for %s", plural(n.Unsettled, "outcome"), seconds(n.Oldest)))
	}
	return all
}

// troubles tells of a biz type. within are the seconds that its rates are of.
func (t TypeOverview) troubles(within float64) (all []Trouble) {
	say := func(level Level, section, is string) {
		all = append(all, Trouble{Level: level, Section: section, BizType: t.Name, Is: t.Name + " " + is})
	}
	switch {
	case t.State == "lacking":
		say(Warn, "TocsinHandlerMissing", "can't be delivered by a node of its group: it lacks the handler, the secret or the sink")
	case t.State == "away":
		say(Fail, "TocsinTargetAway", "has a target that a node can't reach: its tasks wait there, and use no attempt")
	case t.State == "busy":
		say(Warn, "TocsinTargetAway", "has a target that wants to rest: its tasks wait, and one tries it now and then")
	case t.State == "full" && t.Age > 0:
		say(Warn, "TocsinLaneFull", fmt.Sprintf("uses all its %d slots, and tasks wait for one", t.Limit))
	}
	grows := t.Grows && t.Overdue != nil && *t.Overdue > backlogWarn
	switch {
	case t.State == "paused" && t.Age > 0:
		say(Warn, "TocsinTaskOverdue", "is paused, with "+t.waiting())
	case t.Age > overdueFail.Seconds():
		say(Fail, "TocsinTaskOverdue", "is late: "+t.waiting())
	case t.Age > overdueWarn.Seconds():
		say(Warn, "TocsinTaskOverdue", "is late: "+t.waiting())
	case grows && t.State != "paused":
		say(Warn, "TocsinBacklogGrows", "has a backlog: "+t.waiting())
	}
	if failed := t.Failed / (t.Failed + t.Delivered); t.Failed*within >= failingLeast && failed > failingWarn {
		level := Warn
		if failed > failingFail {
			level = Fail
		}
		say(level, "TocsinAttemptsFail", fmt.Sprintf("fails in %.0f %% of its attempts, %s a second", failed*100, rate(t.Failed)))
	}
	if t.Dead > 0 {
		say(Warn, "TocsinTasksDie", "has tasks that die, "+rate(t.Dead)+" a second")
	}
	return all
}

// waiting says what is overdue.
func (t TypeOverview) waiting() string {
	is := plural(int(*t.Overdue), "overdue task") + ", the oldest for " + seconds(t.Age)
	if t.AtLeast {
		is = "at least " + is
	}
	switch {
	case t.State == "paused":
		return is
	case t.Grows:
		return is + "; they do not become fewer"
	case t.Drain != nil:
		return is + "; at this pace none is left in " + seconds(*t.Drain)
	}
	return is
}
