package operator

import (
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
)

// handling is a group of one node with the handlers of some biz types.
func handling(id, group string, types ...string) Group {
	return Group{Group: group, Nodes: []assign.NodeState{{ID: id, Info: assign.NodeInfo{Types: types}}}}
}

func TestWhatNodesLackIsFound(t *testing.T) {
	t.Parallel()
	remind := biztype.Policy{Name: "coupon.remind", Webhook: &biztype.Webhook{URL: "http://h"}}
	has := func(id string) Group { return handling(id, "callback", "coupon.remind") }
	lacks := func(id string) Group {
		return Group{Group: "callback", Nodes: []assign.NodeState{{ID: id, Info: assign.NodeInfo{Lacks: map[string]string{"coupon.remind": "no secret"}}}}}
	}
	for name, c := range map[string]struct {
		groups []Group
		want   []string
	}{
		"no node runs":      {nil, nil},
		"all have it":       {[]Group{has("a"), has("b")}, nil},
		"another group":     {[]Group{has("a"), handling("c", "orders", "order.close")}, nil},
		"one lacks it":      {[]Group{has("a"), lacks("b")}, []string{"warn : delivered: some nodes lack coupon.remind, and others stand in for them; b: no secret"}},
		"all lack it":       {[]Group{lacks("a"), lacks("b")}, []string{"fail : delivered: no node of group callback delivers coupon.remind: its tasks wait; a: no secret; b: no secret"}},
		"nobody knows it":   {[]Group{handling("a", "callback")}, []string{"fail : delivered: no node of group callback delivers coupon.remind: its tasks wait"}},
		"its group is away": {[]Group{handling("c", "orders", "order.close")}, []string{"warn : delivered: no node of group callback runs: tasks of coupon.remind wait"}},
	} {
		if got := complaints(delivered([]biztype.Policy{remind}, c.groups)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// That a node lacks a pull type is no fault while workers ask another.
func TestPullTypesThatNoWorkerAsksForAreFound(t *testing.T) {
	t.Parallel()
	policies := []biztype.Policy{{Name: "label.print", Group: "callback", Pull: &biztype.Pull{}}}
	asked := func(id string) Group { return handling(id, "callback", "label.print") }
	unasks := func(id string) Group {
		return Group{Group: "callback", Nodes: []assign.NodeState{{ID: id, Info: assign.NodeInfo{Lacks: map[string]string{"label.print": "no worker"}}}}}
	}
	const nobody = "no worker asks the nodes of group callback for tasks of label.print"
	last := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		groups []Group
		last   time.Time
		want   []string
	}{
		"no node runs":       {nil, last, nil},
		"another group runs": {[]Group{handling("a", "orders")}, last, nil},
		"one is asked":       {[]Group{unasks("a"), asked("b")}, last, nil},
		"none is asked":      {[]Group{unasks("a"), unasks("b")}, last, []string{"warn : workers: " + nobody + "; one asked last at 2026-11-22T09:00:00Z"}},
		"none ever was":      {[]Group{unasks("a"), unasks("b")}, time.Time{}, []string{"warn : workers: " + nobody}},
	} {
		if got := complaints(unasked(policies, c.groups, func([]Group, string) time.Time { return c.last })); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := complaints(delivered(policies, c.groups)); len(got) > 0 && name != "another group runs" {
			t.Errorf("%s: delivered %q", name, got)
		}
		listed := []Group{{Group: "callback"}}
		for _, g := range named(c.groups, "callback") {
			listed[0].Nodes = append(listed[0].Nodes, g.Nodes...)
		}
		addFaults(listed, policies, "")
		if slices.ContainsFunc(listed[0].Nodes, func(n assign.NodeState) bool { return len(n.Info.Lacks) > 0 }) {
			t.Errorf("%s: nodes still lack it: %+v", name, listed[0].Nodes)
		}
		if len(listed[0].Faults) != len(c.want) {
			t.Errorf("%s: faults %+v", name, listed[0].Faults)
		}
	}
}

func TestHandlersThatGetNoTaskAreFound(t *testing.T) {
	t.Parallel()
	policies := []biztype.Policy{{Name: "order.close", Group: "orders"}, {Name: "order.open", Group: "orders"}}
	const (
		away   = "no node of group orders runs: tasks of order.close, order.open wait"
		placed = "a, b of group shop: the handler of order.close gets no task, as its policy names group orders"
	)
	for name, c := range map[string]struct {
		groups        []Group
		idle, waiting []string
	}{
		"no node runs":       {nil, nil, nil},
		"all are right":      {[]Group{handling("a", "orders", "order.close", "order.open")}, nil, nil},
		"a group is away":    {[]Group{handling("a", "callback")}, nil, []string{"warn : delivered: " + away}},
		"in the wrong group": {[]Group{handling("a", "shop", "order.close"), handling("b", "shop", "order.close")}, []string{"warn : handlers: " + placed}, []string{"fail : delivered: " + away}},
		"in both groups": {
			[]Group{handling("a", "shop", "order.close"), handling("b", "shop", "order.close"), handling("c", "orders", "order.close", "order.open")},
			[]string{"warn : handlers: " + placed}, nil,
		},
		"without a policy": {
			[]Group{handling("a", "orders", "order.close", "order.opne", "order.open")},
			[]string{"warn : handlers: a of group orders: the handler of order.opne gets no task, as this biz type has no policy"}, nil,
		},
	} {
		if got := complaints(idleHandlers(policies, c.groups)); !slices.Equal(got, c.idle) {
			t.Errorf("%s: idle are %q, want %q", name, got, c.idle)
		}
		if got := complaints(delivered(policies, c.groups)); !slices.Equal(got, c.waiting) {
			t.Errorf("%s: delivered %q, want %q", name, got, c.waiting)
		}
	}
}
