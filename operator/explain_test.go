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
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/pull"
)

var now = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

// due is a task that has been due for a second, in a table that node "host-a" owns, whose page says nothing special.
func due() facts {
	return facts{
		JobID: 513, Now: now, Grace: time.Minute, Server: taskServer{Name: "db1", Table: "toc_0.task_0001", Database: "toc_0"},
		Task:     &tocsin.Info{JobID: 513, BizType: "order.close", ActionTime: now.Add(-time.Second), DueTime: now.Add(-time.Second)},
		Policies: []biztype.Stored{{Policy: biztype.Policy{Name: "order.close", Number: 1, Group: "orders"}}},
		Group: taskGroup{Name: "orders", Known: true, Owner: "host-a", Nodes: []assign.NodeState{
			{ID: "host-a", Info: assign.NodeInfo{Types: []string{"order.close"}}}, {ID: "host-b", Info: assign.NodeInfo{Types: []string{"order.close"}}},
		}},
		Pages: []statusPage{{Node: "host-a", Address: "a:1", Report: &node.Report{
			Node: "host-a", Mode: node.Ownership, Task: &dispatcher.Place{Stage: dispatcher.Queued, Admitted: true},
			Lanes: []dispatcher.LaneReport{{BizType: "order.close", State: dispatcher.Open, Limit: 64}},
		}}},
	}
}

// targetIn changes the lane of a task's biz type: its target was seen to be in a state a minute ago.
func targetIn(state dispatcher.State, next time.Duration) func(*facts, *node.Report) {
	return func(_ *facts, r *node.Report) {
		l := &r.Lanes[0]
		l.State, l.AwaySince, l.NextTry, l.Why, l.Queued = state, now.Add(-time.Minute), now.Add(next), "it said no", 7
		l.Rate = 1.5
	}
}

// etcdAway leaves nothing but the owner row, which names the node that had the table last. The page that answers is of a node of
// a group; a node that has started since works as a sweeper.
func etcdAway(last, group string, started bool) func(*facts, *node.Report) {
	return func(f *facts, r *node.Report) {
		f.Group, f.NoEtcd, r.Group = taskGroup{Name: "orders", Last: last}, errors.New("no answer"), group
		if started {
			r.Node, r.Mode = "", node.Sweeping
		}
	}
}

// payloadOf gives the task's payload a version. One of the two nodes reads version 2.
func payloadOf(version int) func(*facts, *node.Report) {
	return func(f *facts, _ *node.Report) {
		f.Task.PayloadVersion, f.Group.Nodes[1].Info.Versions = version, map[string]int{"order.close": 2}
	}
}

const noOwner = "not asked: etcd, which knows the owner of the table: no answer"

// explanations are how a due task changes, and parts of the answer then; "! " stands before what is no part.
var explanations = map[string]struct {
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
		r.Databases = []store.Database{{Name: "toc_0", Is: store.Unreachable, Why: "no route"}, {Name: "toc_1", Is: store.Wrong, Why: "other"}}
	}, StateAway, []string{"for node host-a server db1 is away: no route"}},
	"the owner's database is wrong": {func(_ *facts, r *node.Report) {
		r.Databases = []store.Database{{Name: "toc_0", Is: store.Wrong, Why: "another cluster"}}
	}, StateRefused, []string{"is wrong: another cluster"}},
	"the owner takes it for an older copy": {func(_ *facts, r *node.Report) {
		r.Databases = []store.Database{{Name: "toc_0", Is: store.Wrong, Why: "it is held: run `tocsin ddl restore-check`"}}
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
	"another server is away, and the nodes lack its secret": {func(f *facts, _ *node.Report) {
		f.Group.Open, f.NoEtcd, f.Policies[0].Webhook = true, errors.New("db2 is away"), &biztype.Webhook{}
		for i := range f.Group.Nodes {
			f.Group.Nodes[i].Info = assign.NodeInfo{Lacks: map[string]string{"order.close": "no secret"}}
		}
	}, StateNoSecret, []string{"host-a, which looks at its table first, can't deliver it (no secret)", "not asked: the session tables: db2 is away"}},
	"its own server says nothing of the nodes": {func(f *facts, r *node.Report) {
		f.Group, f.NoEtcd, r.Node = taskGroup{Name: "orders", Open: true}, errors.New("db1 is away"), "host-x"
	}, StateDue, []string{"not asked: the session tables: db1 is away"}},
	"it is claimed under a session": {func(f *facts, r *node.Report) {
		f.Task.Status, f.Task.ClaimedBy, f.Holder, f.Group.Open = tocsin.Claimed, "abcdefghjkmn000000000001", &holder{Node: "host-a"}, true
		r.Task = nil
	}, StateClaimed, []string{"it is claimed by host-a: only that process may deliver it, until it has settled it or its session ends"}},
	"the session of its claim has ended": {func(f *facts, _ *node.Report) {
		f.Task.Status, f.Task.ClaimedBy, f.Holder, f.Group.Open = tocsin.Claimed, "abcdefghjkmn000000000001", &holder{}, true
	}, StateRunOut, []string{"the session of its claim has ended: its process has died, or was cut off from the server", "a node takes the claim back within a minute or so"}},
	"nobody looks at its table": {func(f *facts, _ *node.Report) { f.Group.Owner, f.Group.Open = "", true }, StateNoOwner,
		[]string{"no node of group orders has been seen in toc_0"}},
	"another node answers at the address": {func(_ *facts, r *node.Report) { r.Node = "host-x" }, StateDue,
		[]string{"the status page of host-a at a:1: another node, host-x, answers there"}},
	"the policies can't be read": {func(f *facts, _ *node.Report) { f.Policies, f.NoTypes = nil, errors.New("denied") }, StateQueued,
		[]string{"the biz types: denied"}},
	"no worker has asked any node": {func(f *facts, _ *node.Report) { f.Policies[0].Pull = &biztype.Pull{} }, StateNoWorker,
		[]string{"says: it waits for a worker: none has asked the nodes of group orders for tasks of order.close since they started\n"}},
	"no worker asks any more": {func(f *facts, r *node.Report) {
		f.Policies[0].Pull, r.Asked = &biztype.Pull{}, map[string]pull.Asked{"order.close": {Last: now.Add(-time.Hour)}}
		f.Pages = append(f.Pages, statusPage{Node: "host-b", Report: &node.Report{Node: "host-b", Asked: map[string]pull.Asked{"order.close": {Last: now.Add(-time.Minute)}}}})
	}, StateNoWorker, []string{"since: 08:59:00", "says: it waits for a worker: none waits for tasks of order.close now, and one asked last at 2026-11-22 08:59:00.000Z (1m0s ago)\n"}},
	"a worker asks another node": {func(f *facts, _ *node.Report) {
		f.Policies[0].Pull = &biztype.Pull{}
		f.Pages = append(f.Pages, statusPage{Node: "host-b", Report: &node.Report{Node: "host-b", Asked: map[string]pull.Asked{"order.close": {Waiting: 1}}}})
	}, StateQueued, nil},
	"no lease": {func(_ *facts, r *node.Report) { r.Mode = node.Waiting }, StateQueued, []string{"has no lease and delivers nothing"}},
	"its target can't be reached": {targetIn(dispatcher.Away, 9*time.Second), StateTargetAway, []string{"since: 08:59:00",
		"says: node host-a can't reach the target of order.close since 2026-11-22 08:59:00.000Z (1m0s ago) (it said no): it tries one task at 2026-11-22 09:00:09.000Z (in 9s), and the others wait, without an attempt; 7 tasks wait there\n"}},
	"its target can't be reached, nor its fallback be used": {func(f *facts, r *node.Report) {
		targetIn(dispatcher.Away, 0)(f, r)
		r.Single = map[string]string{"order.close": "no sink is named gone"}
	}, StateTargetAway, []string{"also: node host-a can't use the fallback of order.close (no sink is named gone)"}},
	"its target is being tried": {targetIn(dispatcher.Away, 0), StateTargetAway, []string{"since: 08:59:00",
		"says: node host-a can't reach the target of order.close since 2026-11-22 08:59:00.000Z (1m0s ago) (it said no): it tries one task now, and the others wait, without an attempt"}},
	"its target said later, and rests": {targetIn(dispatcher.Busy, 4*time.Second), StateTargetBusy, []string{"since: 08:59:00",
		"says: the target of order.close has said later since 2026-11-22 08:59:00.000Z (1m0s ago) (it said no): node host-a has slowed down to 1.5 deliveries a second, makes the next one at 2026-11-22 09:00:04.000Z (in 4s), and the others wait, without an attempt; 7 tasks wait there\n"}},
	"its target said later": {func(f *facts, r *node.Report) {
		targetIn(dispatcher.Busy, 0)(f, r)
		r.Lanes[0].NextTry = time.Time{}
	}, StateTargetBusy, []string{"since: 08:59:00", "(it said no): node host-a has slowed down to 1.5 deliveries a second, and the others wait, without an attempt; 7 tasks wait there\n"}},
	"without etcd, nobody is known":                     {etcdAway("", "orders", false), StateNoEtcd, []string{noOwner, "etcd does not answer, so its table gets no new owner"}},
	"without etcd, the owner still runs":                {etcdAway("host-a", "orders", false), StateQueued, []string{noOwner, "host-a has it in its queue"}},
	"without etcd, the owner ended, and a node started": {etcdAway("host-b", "orders", true), StateNoEtcd, []string{noOwner, "the node at a:1 started while etcd was away"}},
	"without etcd, a node of another group started":     {etcdAway("host-b", "mail", true), StateNoEtcd, []string{noOwner, "! started while etcd was away"}},
	"a sweep leaves a task of a slow biz type alone for twice its time-out": {func(f *facts, r *node.Report) {
		f.Policies[0].Timeout, r.Hangs = biztype.Duration(10*time.Minute), map[string]string{"db1": "no answer for 5s"}
	}, StateHangs, []string{"also: a sweep of a program with the handler (node.Sweep, group orders) takes it from 2026-11-22 09:19:59.000Z (in 19m59s) on, after the grace time of 20m0s"}},
	"a claim of another time": {func(f *facts, r *node.Report) {
		f.Task.Status, f.Task.ClaimedBy, f.Task.ActionTime = tocsin.Claimed, "host-a", now.Add(time.Minute)
		r.Task = &dispatcher.Place{Stage: dispatcher.Nowhere, Admitted: true}
	}, StateClaimed, []string{"also: node host-a does not have it any more, so the claim will run out\n"}},
	"a node reads its payload": {payloadOf(2), StateQueued, nil},
	"no node reads its payload": {payloadOf(3), StateNewer,
		[]string{"says: its payload has version 3, and no node of group orders reads it (host-a reads version 1 at most, host-b reads version 2 at most): it stays as it is until one does\n"}},
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for name, c := range explanations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := due()
			c.change(&f, f.Pages[0].Report)
			a := explain(f)
			all := "since: " + a.Since.Format(time.TimeOnly) + "\nsays: " + a.Says + "\nalso: " + strings.Join(a.Also, "\nalso: ") + "\nnot asked: " + strings.Join(a.Unasked, "\nnot asked: ")
			if a.State != c.state {
				t.Errorf("state %s, want %s:\n%s", a.State, c.state, all)
			}
			for _, part := range c.says {
				if part, not := strings.CutPrefix(part, "! "); strings.Contains(all, part) == not {
					t.Errorf("%q is in it: %t\n%s", part, not, all)
				}
			}
		})
	}
}

func TestExplainARowThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	f := due()
	f.Task, f.Unread, f.NoTypes = nil, errors.New("refused"), errors.New("the same")
	f.Pages[0].Report.Databases = []store.Database{{Name: "toc_0", Is: store.Unreachable, Why: "no route"}}
	a := explain(f)
	if a.State != StateAway || len(a.Unasked) != 0 || !slices.Equal(a.Also, []string{"for node host-a server db1 is away: no route"}) {
		t.Errorf("got %+v", a)
	}
}
