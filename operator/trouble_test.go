package operator

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/biztype"
)

// late returns a biz type with overdue tasks.
func late(state string, overdue, age float64, change ...func(*TypeOverview)) TypeOverview {
	t := TypeOverview{TypeActivity: TypeActivity{Name: "order.close", State: state, Overdue: &overdue, Age: age, Limit: 64}}
	for _, c := range change {
		c(&t)
	}
	return t
}

// Each thing that is wrong is a sentence, with a section that the runbook has.
func TestTroublesAreSentencesWithASectionOfTheRunbook(t *testing.T) {
	t.Parallel()
	runbook, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	drain := 90.
	attempts := func(delivered, failed, dead float64) func(*TypeOverview) {
		return func(t *TypeOverview) { t.Rates = Rates{Delivered: delivered, Failed: failed, Dead: dead} }
	}
	nobody := func(t *TypeOverview) { t.nobody = true }
	policies := []biztype.Policy{{Name: "order.close", Group: "orders"}, {Name: "cart.remind", Group: "orders", Paused: true}}
	for want, o := range map[string]Overview{
		"": {Types: []TypeOverview{late("open", 5, 60), late("limited", 0, 0)}, Nodes: []NodeActivity{{Mode: "rows"}}},
		"order.close is paused, with 2 overdue tasks, the oldest for 1m0s": {Types: []TypeOverview{late("paused", 2, 60)}},
		"order.close is late: 1 overdue task, the oldest for 3m0s; at this pace none is left in 1m30s": {
			Types: []TypeOverview{late("open", 1, 180, func(t *TypeOverview) { t.Drain = &drain })},
		},
		"order.close is late: at least 9 overdue tasks, the oldest for 20m0s; they do not become fewer": {
			Types: []TypeOverview{late("open", 9, 1200, func(t *TypeOverview) { t.AtLeast, t.Grows = true, true })},
		},
		"order.close has a backlog: 101 overdue tasks, the oldest for 9s; they do not become fewer": {
			Types: []TypeOverview{late("open", 101, 9, func(t *TypeOverview) { t.Grows = true })},
		},
		"order.close can't be delivered by a node of its group: it lacks the handler, the secret or the sink": {Types: []TypeOverview{late("lacking", 0, 0)}},
		"order.close can't be delivered: no node of its group has the handler, the secret or the sink":        {Types: []TypeOverview{late("lacking", 0, 0, nobody)}},
		"order.close can't be delivered: no node of its group has the handler, the secret or the sink; 200 overdue tasks, the oldest for 20m0s; they do not become fewer": {
			Types: []TypeOverview{late("lacking", 200, 1200, nobody, func(t *TypeOverview) { t.Grows = true })},
		},
		"order.close has a target that a node can't reach: its tasks wait there, and use no attempt":  {Types: []TypeOverview{late("away", 0, 0)}},
		"order.close has a target that says later: its tasks wait, and are delivered at 2.5 a second": {Types: []TypeOverview{late("busy", 0, 0, func(t *TypeOverview) { t.Throttled = 2.5 })}},
		"order.close uses all its 64 slots, and tasks wait for one":                                   {Types: []TypeOverview{late("full", 1, 2)}},
		"order.close fails in 50 % of its attempts, 4.0 a second":                                     {Seconds: 5, Types: []TypeOverview{late("open", 0, 0, attempts(4, 4, 0))}},
		"order.close has tasks that die, 0.2 a second":                                                {Seconds: 5, Types: []TypeOverview{late("open", 0, 0, attempts(4, .2, .2))}},
		"node n-1 at h:1 does not answer: refused":                                                    {Nodes: []NodeActivity{{ID: "n-1", Address: "h:1", Error: "refused"}}},
		"node n-1 can't prove its lease, and claims each task before it starts it":                    {Nodes: []NodeActivity{{ID: "n-1", Mode: "claim"}}},
		"node n-1 has 3 outcomes that could not be stored, the oldest for 31s":                        {Nodes: []NodeActivity{{ID: "n-1", Unsettled: 3, Oldest: 31}}},
		"no node of group orders runs: tasks of order.close wait":                                     {policies: policies},
		"not all biz types can be read: denied":                                                       {unread: errors.New("denied")},
		"the nodes can't be listed in full, these are the last known: etcd is away":                   {unlisted: errors.New("etcd is away"), policies: policies},
		"server db1 has not answered a statement for 9s":                                              {Servers: []ServerOverview{{ServerTrouble: ServerTrouble{Name: "db1", Waiting: 9}}}},
		"server db1 does not answer 2 nodes":                                                          {Servers: []ServerOverview{{ServerTrouble: ServerTrouble{Name: "db1", Away: 2}}}},
		"server db1 does not answer: unexpected EOF":                                                  {Servers: []ServerOverview{{ServerTrouble: ServerTrouble{Name: "db1"}, Err: io.ErrUnexpectedEOF}}},
		"what is overdue on server db1 can't be read: denied":                                         {Servers: []ServerOverview{{ServerTrouble: ServerTrouble{Name: "db1"}, Err: errors.New("denied")}}},
		"1 table of server db1 can't be read: what is overdue there is not known":                     {Servers: []ServerOverview{{ServerTrouble: ServerTrouble{Name: "db1"}, Unread: 1}}},
		"server db1 has overdue figures that are 3m0s old":                                            {Servers: []ServerOverview{{ServerTrouble: ServerTrouble{Name: "db1", Figures: 180}}}},
	} {
		got := o.Troubles(nil)
		switch {
		case want == "" && len(got) == 0:
		case len(got) != 1 || got[0].Is != want:
			t.Errorf("%q: got %+v", want, got)
		case !strings.Contains(string(runbook), "\n### "+got[0].Section+"\n"):
			t.Errorf("%q: the runbook has no section %s", want, got[0].Section)
		}
	}
}

func TestTroublesBeginWithTheWorst(t *testing.T) {
	t.Parallel()
	o := Overview{
		Types:   []TypeOverview{late("open", 9, 180), late("away", 0, 0)},
		Nodes:   []NodeActivity{{ID: "n-1", Error: "refused", Group: "orders"}},
		Servers: []ServerOverview{{ServerTrouble: ServerTrouble{Name: "db1", Away: 1}}},
	}
	sections := func(sees func(string) bool) (all []string) {
		for _, trouble := range o.Troubles(sees) {
			all = append(all, trouble.Level.String()+" "+trouble.Section)
		}
		return all
	}
	if got := sections(nil); !slices.Equal(got, []string{"fail TocsinServerDown", "fail TocsinTargetAway", "warn TocsinNoMetrics", "warn TocsinTaskOverdue"}) {
		t.Error(got)
	}
	if got := sections(func(name string) bool { return name != "order.close" }); !slices.Equal(got, []string{"fail TocsinServerDown"}) {
		t.Errorf("of other biz types: %v", got)
	}
}

// An error of a server may name its address, which only a token for everything is told.
func TestErrorsAreForThoseWhoSeeEverything(t *testing.T) {
	t.Parallel()
	o := Overview{Servers: []ServerOverview{{ServerTrouble: ServerTrouble{Name: "db1"}, Err: errors.New("denied for 'tocsin'@'10.0.0.7'")}}}
	if got := o.Troubles(func(string) bool { return true }); len(got) != 1 || got[0].Is != "what is overdue on server db1 can't be read" {
		t.Errorf("%+v", got)
	}
}
