package operator

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/health"
	"github.com/tocsinhq/tocsin/node"
)

var now = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

// due is a task that has been due for a second, in a table that node "host-a" owns, whose page says nothing special.
func due() facts {
	return facts{
		JobID: 513, Now: now, Grace: time.Minute, Server: taskServer{Name: "db1", Table: "toc_0.task_0001", Database: "toc_0"},
		Task:     &tocsin.Info{JobID: 513, BizType: "order.close", ActionTime: now.Add(-time.Second), DueTime: now.Add(-time.Second)},
		Policies: []biztype.Stored{{Policy: biztype.Policy{Name: "order.close", Number: 1, Group: "orders"}}},
		Group: taskGroup{Name: "orders", Owner: "host-a", Nodes: []assign.NodeState{
			{ID: "host-a", Info: assign.NodeInfo{Types: []string{"order.close"}}}, {ID: "host-b", Info: assign.NodeInfo{Types: []string{"order.close"}}},
		}},
		Pages: []statusPage{{Node: "host-a", Address: "a:1", Report: &node.Report{
			Node: "host-a", Mode: node.Ownership, Task: &dispatcher.Place{Stage: dispatcher.Queued, Admitted: true},
			Lanes: []dispatcher.LaneReport{{BizType: "order.close", State: dispatcher.Open, Limit: 64}},
		}}},
	}
}

func TestExplainADueTask(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(f *facts, r *node.Report)
		state  State
		says   []string
	}{
		"nothing special": {func(*facts, *node.Report) {}, StateQueued, []string{"0 of 64 slots"}},
		"an older program says nothing of lanes": {func(_ *facts, r *node.Report) { r.Lanes, r.Task = nil, nil }, StateDue,
			[]string{"nothing is known to be in its way"}},
		"the owner has not begun on its table": {func(_ *facts, r *node.Report) { r.Task = &dispatcher.Place{Stage: dispatcher.Nowhere} }, StateUnseen,
			[]string{"host-a, which owns its table, has not begun on the table yet"}},
		"the owner's server is away": {func(_ *facts, r *node.Report) {
			r.Task.Stage = dispatcher.Nowhere
			r.Databases = []health.Database{{Name: "toc_0", Is: health.Unreachable, Why: "no route"}, {Name: "toc_1", Is: health.Wrong, Why: "other"}}
		}, StateAway, []string{"for node host-a server db1 is away: no route"}},
		"the owner's database is wrong": {func(_ *facts, r *node.Report) {
			r.Databases = []health.Database{{Name: "toc_0", Is: health.Wrong, Why: "another cluster"}}
		}, StateRefused, []string{"is wrong: another cluster"}},
		"the owner takes it for an older copy": {func(_ *facts, r *node.Report) {
			r.Databases = []health.Database{{Name: "toc_0", Is: health.Wrong, Why: "it is held: run `tocsin ddl restore-check`"}}
		}, StateOlderCopy, []string{"restore-check"}},
		"another task of its biz_id goes first": {func(f *facts, _ *node.Report) { f.First = []tocsin.JobID{77} }, StateTurn,
			[]string{"it waits for job 77 of the same biz_id"}},
		"several tasks of its biz_id go first": {func(f *facts, _ *node.Report) { f.First = []tocsin.JobID{77, 78} }, StateTurn,
			[]string{"it waits for one of 2 jobs of the same biz_id, the first of them 77"}},
		"whose turn it is can't be read": {func(f *facts, _ *node.Report) { f.NoTurn = errors.New("timed out") }, StateQueued,
			[]string{"the tasks of the same biz_id: timed out"}},
		"the owner's server hangs": {func(_ *facts, r *node.Report) { r.Hangs = map[string]string{"db1": "no answer for 5s"} }, StateHangs,
			[]string{"for node host-a server db1 hangs: no answer for 5s"}},
		"the server is full": {func(f *facts, _ *node.Report) { f.Server.Full = errors.New("disk full") }, StateReadOnly, []string{"no room for writes: disk full"}},
		"an earlier delivery goes on": {func(_ *facts, r *node.Report) { r.Task.Overrun = true }, StateQueued,
			[]string{"an earlier delivery of it in host-a is over its time-out"}},
		"no owner among two nodes": {func(f *facts, _ *node.Report) { f.Group.Owner, f.Group.Last = "", "host-c" }, StateNoOwner,
			[]string{"no node owns its table; host-c took the table last", "group orders has 2 nodes"}},
		"nobody looks at its table": {func(f *facts, _ *node.Report) { f.Group.Owner, f.Group.Open = "", true }, StateNoOwner,
			[]string{"no node of group orders has been seen in toc_0"}},
		"another node answers at the address": {func(_ *facts, r *node.Report) { r.Node = "host-x" }, StateDue,
			[]string{"the status page of host-a at a:1: another node, host-x, answers there"}},
		"the policies can't be read": {func(f *facts, _ *node.Report) { f.Policies, f.NoTypes = nil, errors.New("denied") }, StateQueued,
			[]string{"the biz types: denied"}},
		"no lease": {func(_ *facts, r *node.Report) { r.Mode = node.Waiting }, StateQueued, []string{"has no lease and delivers nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := due()
			c.change(&f, f.Pages[0].Report)
			a := explain(f)
			all := strings.Join(slices.Concat([]string{a.Says}, a.Also, a.Unasked), "\n")
			if a.State != c.state {
				t.Errorf("state %s, want %s:\n%s", a.State, c.state, all)
			}
			for _, part := range c.says {
				if !strings.Contains(all, part) {
					t.Errorf("no %q in\n%s", part, all)
				}
			}
		})
	}
}

// A sweep leaves a task of a slow biz type alone for twice its time-out.
func TestExplainWhenASweepTakesASlowTask(t *testing.T) {
	t.Parallel()
	f := due()
	f.Policies[0].Timeout, f.Pages[0].Report.Hangs = biztype.Duration(10*time.Minute), map[string]string{"db1": "no answer for 5s"}
	all, want := strings.Join(explain(f).Also, "\n"), "takes it from 2026-11-22 09:19:59.000Z (in 19m59s) on, after the grace time of 20m0s"
	if !strings.Contains(all, want) {
		t.Errorf("no %q in\n%s", want, all)
	}
}

func TestExplainATargetThatIsAway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state dispatcher.State
		next  time.Duration
		want  State
		says  string
	}{
		"it can't be reached": {dispatcher.Away, 9 * time.Second, StateTargetAway,
			"node host-a can't reach the target of order.close since 2026-11-22 08:59:00.000Z (1m0s ago) (it said no): it tries one task at 2026-11-22 09:00:09.000Z (in 9s), and the others wait, without an attempt; 7 tasks wait there"},
		"it is being tried": {dispatcher.Away, 0, StateTargetAway, "it tries one task now, and the others wait, without an attempt"},
		"it wants to rest": {dispatcher.Busy, 4 * time.Second, StateTargetBusy,
			"the target of order.close has wanted to rest since 2026-11-22 08:59:00.000Z (1m0s ago) (it said no): node host-a tries one task at 2026-11-22 09:00:04.000Z (in 4s), and"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := due()
			l := &f.Pages[0].Report.Lanes[0]
			l.State, l.AwaySince, l.NextTry, l.Why, l.Queued = c.state, now.Add(-time.Minute), now.Add(c.next), "it said no", 7
			if a := explain(f); a.State != c.want || !strings.Contains(a.Says, c.says) || !a.Since.Equal(l.AwaySince) {
				t.Errorf("got %s, since %s: %s", a.State, a.Since, a.Says)
			}
		})
	}
}

func TestExplainADueTaskWithoutEtcd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last   string
		change func(r *node.Report)
		state  State
		part   string
	}{
		"nobody is known":                     {"", func(*node.Report) {}, StateNoEtcd, "etcd does not answer, so its table gets no new owner"},
		"the owner still runs":                {"host-a", func(*node.Report) {}, StateQueued, "host-a has it in its queue"},
		"the owner ended, and a node started": {"host-b", func(r *node.Report) { r.Node, r.Mode = "", node.Sweeping }, StateNoEtcd, "the node at a:1 started while etcd was away"},
	} {
		f := due()
		f.Group, f.NoEtcd = taskGroup{Name: "orders", Last: c.last}, errors.New("no answer")
		f.Pages[0].Report.Group = "orders"
		c.change(f.Pages[0].Report)
		a := explain(f)
		all := strings.Join(slices.Concat([]string{a.Says}, a.Also, a.Unasked), "\n")
		if a.State != c.state || !strings.Contains(all, c.part) || !strings.Contains(all, "etcd, which knows the owner of the table: no answer") {
			t.Errorf("%s: state %s:\n%s", name, a.State, all)
		}
		f.Pages[0].Report.Group = "mail"
		if a := explain(f); slices.ContainsFunc(a.Also, func(says string) bool { return strings.Contains(says, "started while etcd was away") }) {
			t.Errorf("%s: a node of another group is named: %q", name, a.Also)
		}
	}
}

func TestExplainAClaimOfAnotherTime(t *testing.T) {
	t.Parallel()
	f := due()
	f.Task.Status, f.Task.ClaimedBy, f.Task.ActionTime = tocsin.Claimed, "host-a", now.Add(time.Minute)
	f.Pages[0].Report.Task = &dispatcher.Place{Stage: dispatcher.Nowhere, Admitted: true}
	if a := explain(f); a.State != StateClaimed || !slices.Contains(a.Also, "node host-a does not have it any more, so the claim will run out") {
		t.Errorf("got %+v", a)
	}
}

func TestExplainARowThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	f := due()
	f.Task, f.Unread, f.NoTypes = nil, errors.New("refused"), errors.New("the same")
	f.Pages[0].Report.Databases = []health.Database{{Name: "toc_0", Is: health.Unreachable, Why: "no route"}}
	a := explain(f)
	if a.State != StateAway || len(a.Unasked) != 0 || !slices.Equal(a.Also, []string{"for node host-a server db1 is away: no route"}) {
		t.Errorf("got %+v", a)
	}
}

func TestExplainANewerPayload(t *testing.T) {
	t.Parallel()
	f := due()
	f.Task.PayloadVersion = 2
	f.Group.Nodes[1].Info.Versions = map[string]int{"order.close": 2}
	if a := explain(f); a.State != StateQueued {
		t.Errorf("a node reads it: %+v", a)
	}
	f.Task.PayloadVersion = 3
	want := "its payload has version 3, and no node of group orders reads it (host-a reads version 1 at most, host-b reads version 2 at most): it stays as it is until one does"
	if a := explain(f); a.State != StateNewer || a.Says != want {
		t.Errorf("no node reads it: %+v", a)
	}
}
