package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator/cluster"
)

// faults returns doctor's complaints about what nodes deliver.
func (s *site) faults() (all []string) {
	s.t.Helper()
	for _, c := range decodeText[examined](s.t, s.run("doctor", "--json").stdout).Checks {
		if (c.Check == "handlers" || c.Check == "delivered") && c.Level != "ok" {
			all = append(all, c.Level+" "+c.Is)
		}
	}
	return all
}

func TestHandlersWithoutTasksAndGroupsWithoutNodesAreShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if got := s.faults(); got != nil {
		t.Errorf("before a node was started, doctor says %q", got)
	}
	shop := s.node("shop", "host-a", 8, "order.close", "order.opne")
	s.run("cluster", "nodes").says(t,
		"note: "+shop+" of group shop: the handler of order.close gets no task, as its policy names group orders; to mend it, start these nodes in group orders, or name group shop in the policy",
		"note: "+shop+" of group shop: the handler of order.opne gets no task, as this biz type has no policy; to mend it, apply one with `tocsin biz apply`, or remove the handler",
		"group orders: 0 nodes\nnote: no node of group orders runs: tasks of order.close wait; to mend it, start a node of group orders",
		"group callback: 0 nodes\nnote: no node of group callback runs: tasks of coupon.remind wait")
	want := []string{
		"warn no node of group callback runs: tasks of coupon.remind wait", "fail no node of group orders runs: tasks of order.close wait",
		"warn " + shop + " of group shop: the handler of order.close gets no task, as its policy names group orders",
		"warn " + shop + " of group shop: the handler of order.opne gets no task, as this biz type has no policy",
	}
	if got := s.faults(); !slices.Equal(got, want) {
		t.Errorf("doctor says %q, want %q", got, want)
	}
	groups := decode[[]cluster.Group](t, s.run("cluster", "nodes", "--json", "--group", "shop"))
	if len(groups) != 1 || len(groups[0].Faults) != 2 || groups[0].Faults[0].Fix == "" {
		t.Errorf("group shop: %+v", groups)
	}
	s.node("orders", "host-b", 8, "order.close")
	out := s.run("cluster", "nodes").ok(t)
	if strings.Contains(out, "no node of group orders") || !strings.Contains(out, shop+" of group shop: the handler of order.close gets no task") {
		t.Errorf("with a node of the right group:\n%s", out)
	}
}

func TestWithoutEtcdHandlersWithoutTasksAreShownToo(t *testing.T) {
	t.Parallel()
	s, _ := rowsSite(t)
	if out := s.run("cluster", "nodes").ok(t); !strings.Contains(out, noNodes) {
		t.Errorf("without nodes:\n%s", out)
	}
	file, err := config.Load(s.dir + "/tocsin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var h node.Handlers
	node.Handle(&h, tocsin.Define[string]("order.opne"), func(context.Context, *tocsin.Task[string]) error { return nil })
	n, err := node.New(node.Config{Tables: file.Tocsin(), Ownership: node.ByRows, Group: "shop", Name: "host-a"}, &h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	s.waitFor("it is shown", func() bool {
		out := s.run("cluster", "nodes").ok(t)
		return strings.Contains(out, " of group shop: the handler of order.opne gets no task, as this biz type has no policy") &&
			strings.Contains(out, "group callback: 0 nodes\nnote: no node of group callback runs: tasks of coupon.remind wait")
	})
	if report, running := n.Report(); !running || !strings.Contains(report.Idle["order.opne"], "tocsin biz apply") {
		t.Errorf("its status page says %+v", report.Idle)
	}
	if got := s.faults(); len(got) != 2 || !strings.HasPrefix(got[0], "warn no node of group callback") || !strings.Contains(got[1], "order.opne gets no task") {
		t.Errorf("doctor says %q", got)
	}
}
