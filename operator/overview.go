package operator

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/upkeep"
)

// Overview is how each biz type does, which nodes and servers answer, and what is wrong (Troubles). A Sampler makes it.
type Overview struct {
	At      time.Time        // when the nodes were asked
	Seconds float64          // that rates are of; 0: there are none yet
	Types   []TypeOverview   // overdue ones first, then the busiest
	Nodes   []NodeActivity   // by group and id
	Servers []ServerOverview // in the order of the config

	policies []biztype.Policy
	unlisted error // why the nodes could not be listed just now: Nodes are the last known
	unread   error // why a policy could not be read
}

// TypeOverview is one biz type. Overdue, Age and Drain are of the Sampler's walk over all tables, which needs no node.
type TypeOverview struct {
	TypeActivity           // without a node that answers, State is paused or Unknown
	AtLeast      bool      // there may be more that are overdue: in tables with many, or that could not be read
	Grows        bool      // the overdue tasks do not become fewer
	Measured     time.Time // when the oldest of the walks that Overdue, Age and Drain are of ended; zero: none has yet
	Past         []Sample  // each 5 s for 5 minutes at most while somebody asks, the latest last; not to be changed

	nobody bool      // all nodes of its group answer, and none can deliver it
	due    time.Time // of the oldest overdue task, as of the walk; zero: none is known
}

// Oldest is for how long the oldest overdue task has been due by now; Age is as of the walk.
func (t TypeOverview) Oldest() time.Duration {
	if t.due.IsZero() {
		return secondsOf(t.Age)
	}
	return time.Since(t.due)
}

// Sample is how a biz type did for some seconds.
type Sample struct {
	Late99            *float64 // seconds; nil: nothing was delivered
	Delivered, Failed float64  // a second
}

// Unknown is the State of a biz type if no node that delivers it has answered.
const Unknown = "unknown"

// ServerOverview is one MySQL server.
type ServerOverview struct {
	ServerTrouble           // what the nodes say of it
	Measured      time.Time // when the last walk over its tables ended; zero: none has yet
	Unread        int       // tables that could not be read in it
	Err           error     // why the walk after it failed; nil: it did not, or has not ended
}

// overview puts together what is known.
func (now *sampling) overview() Overview {
	found, walked := now.backlog.Overdue()
	o := Overview{
		At: now.nodes.At, Seconds: now.nodes.Seconds, Types: []TypeOverview{}, Nodes: now.nodes.Nodes, Servers: []ServerOverview{},
		policies: now.policies, unlisted: now.unlisted, unread: now.unread,
	}
	var measured time.Time
	lacking := false
	for _, w := range walked {
		server := ServerOverview{ServerTrouble: ServerTrouble{Name: w.Server}, Measured: w.At, Unread: w.Unread, Err: w.Err}
		if i := slices.IndexFunc(now.nodes.Servers, func(s ServerTrouble) bool { return s.Name == w.Server }); i >= 0 {
			server.ServerTrouble = now.nodes.Servers[i]
		}
		o.Servers = append(o.Servers, server)
		lacking = lacking || w.At.IsZero() || w.Unread > 0
		if !w.At.IsZero() && (measured.IsZero() || w.At.Before(measured)) {
			measured = w.At
		}
	}
	types := now.types(found)
	for _, name := range slices.Sorted(maps.Keys(types)) {
		t := types[name]
		if t.AtLeast = t.AtLeast || lacking; measured.IsZero() || now.policies == nil {
			t.Overdue, t.AtLeast = nil, false
		} else {
			t.Measured = measured
		}
		t.Past = now.past[name]
		o.Types = append(o.Types, *t)
	}
	slices.SortStableFunc(o.Types, func(a, b TypeOverview) int {
		return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(b.Delivered+b.Failed, a.Delivered+a.Failed))
	})
	return o
}

// types returns, by name, every biz type that a node delivers, that has a policy, or that has overdue tasks.
func (now *sampling) types(found map[uint64]upkeep.OverdueTasks) map[string]*TypeOverview {
	types := map[string]*TypeOverview{}
	of := func(name, state string) *TypeOverview {
		if types[name] == nil {
			types[name] = &TypeOverview{TypeActivity: TypeActivity{Name: name, State: state}}
		}
		types[name].Overdue = new(float64)
		return types[name]
	}
	for _, t := range now.nodes.Types {
		one := of(t.Name, t.State)
		one.TypeActivity = t
		one.Overdue, one.Age, one.Drain = new(float64), 0, nil
	}
	for _, p := range now.policies {
		state := Unknown
		if p.Paused {
			state = "paused"
		}
		t := of(p.Name, state)
		if p.Paused && (t.State == "lacking" || t.State == noWorker) { // it waits to be resumed first
			t.State = state
		}
		t.nobody = (t.State == "lacking" || t.State == noWorker) && !t.able && !slices.ContainsFunc(now.nodes.Nodes, func(n NodeActivity) bool { return n.Group == p.Group && n.Error != "" })
	}
	if now.policies == nil {
		return types // nobody knows which type a number means
	}
	for number, f := range found {
		t := of(biztype.NameOf(now.policies, number), Unknown)
		*t.Overdue, t.Age, t.AtLeast, t.Grows, t.due = float64(f.Tasks), f.Oldest.Seconds(), f.AtLeast, math.IsInf(f.Drain, 1), f.Due
		if !math.IsInf(f.Drain, 0) && !math.IsNaN(f.Drain) {
			t.Drain = &f.Drain
		}
	}
	return types
}
