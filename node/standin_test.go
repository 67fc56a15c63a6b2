package node_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/node"
)

const callbackSecret = "whsec_dG9jc2luLWRldi1zZWNyZXQtbm90LXNlY3JldA=="

// call is one callback, as its receiver sees it.
type call struct{ key, node string }

// receiver takes callbacks.
func receiver(t *testing.T) (url string, calls chan call) {
	t.Helper()
	calls = make(chan call, 10000)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls <- call{r.Header.Get("webhook-id"), r.Header.Get("Tocsin-Node")}
	}))
	t.Cleanup(server.Close)
	return server.URL, calls
}

// nodesOf reads a group's nodes, by the names they were given.
func nodesOf(t *testing.T, p place, group string) map[string]assign.NodeState {
	t.Helper()
	keys, err := assign.OpenRegistry(t.Context(), p.etcd, p.cfg.Cluster, p.cfg.Layout.Total())
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	nodes, err := keys.Nodes(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]assign.NodeState{}
	for _, n := range nodes {
		byName[n.ID[:strings.LastIndex(n.ID, "-")]] = n
	}
	return byName
}

// round adds a task to each table and waits until all have ended. It returns which node delivered the tasks of each
// table.
func round(t *testing.T, p place, biz tocsin.BizType[order], calls chan call, from *uint64) map[int]string {
	t.Helper()
	ids, by := map[string]tocsin.JobID{}, map[int]string{}
	for _, bizID := range p.oneInEach(from) {
		id := add(t, p, biz.New(bizID, order{bizID}, tocsin.In(0)))
		ids[id.String()+".0"] = id
	}
	for range ids {
		c := receive(t, calls, "a delivery")
		id, ours := ids[c.key]
		if _, twice := by[id.Table()]; !ours || twice {
			t.Errorf("%+v: of this round %t, a second time %t", c, ours, twice)
		}
		by[id.Table()] = c.node
	}
	for _, id := range ids {
		await(t, p, id, "its outcome", withStatus(tocsin.Done))
	}
	return by
}

func TestTasksOfANodeWithoutTheSecretAreDeliveredByOneThatHasItUntilItHasItToo(t *testing.T) {
	t.Parallel()
	url, calls := receiver(t)
	remind := tocsin.Define[order]("coupon.remind")
	p := newPlace(t, biztype.Policy{Name: remind.Name(), Number: 7, Timeout: biztype.Duration(5 * time.Second),
		Webhook: &biztype.Webhook{URL: url, Secrets: []string{"HOOK"}, Allow: []string{"127.0.0.0/8"}}})
	dir := t.TempDir()
	nodes := map[string]*node.Node{}
	for name, secret := range map[string]string{"with": callbackSecret, "without": ""} {
		cfg := p.config("callback")
		cfg.Name, cfg.Getenv = name, func(string) string { return secret }
		if secret == "" {
			cfg.SecretsDir = dir
		}
		nodes[name], _ = run(t, cfg, nil)
	}
	until(t, "both own tables, and one says that it lacks the type", func() bool {
		now := nodesOf(t, p, "callback")
		return now["with"].Tables == 4 && now["without"].Tables == 4 && len(now["with"].Info.Types) == 1 &&
			len(now["without"].Info.Types) == 0 && strings.Contains(now["without"].Info.Lacks[remind.Name()], "HOOK")
	})
	if report, _ := nodes["without"].Report(); len(report.Types) != 0 || report.Lacks[remind.Name()] == "" {
		t.Errorf("its status page says %+v", report)
	}
	next := uint64(1)
	for table, by := range round(t, p, remind, calls, &next) {
		if by != "with" {
			t.Errorf("table %d: delivered by %q, which has no secret", table, by)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "HOOK"), []byte(callbackSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "it lacks nothing any more", func() bool {
		now := nodesOf(t, p, "callback")
		return len(now["without"].Info.Types) == 1 && len(now["without"].Info.Lacks) == 0
	})
	count := map[string]int{}
	for _, by := range round(t, p, remind, calls, &next) {
		count[by]++
	}
	if count["with"] < 4 || count["with"]+count["without"] != 8 { // a stand-in may be the first for a moment
		t.Errorf("delivered by %v", count)
	}
	until(t, "each delivers in its own tables", func() bool {
		count := map[string]int{}
		for _, by := range round(t, p, remind, calls, &next) {
			count[by]++
		}
		return count["with"] == 4 && count["without"] == 4
	})
	if len(calls) != 0 {
		t.Errorf("%d calls too many", len(calls))
	}
}

// A rolling deploy brings a new type: nodes that have it deliver it, also in the tables of the others, which give up no
// table.
func TestTasksOfANewTypeAreDeliveredAtOnceByTheNodesThatHaveIt(t *testing.T) {
	t.Parallel()
	orderOpen := tocsin.Define[order]("order.open")
	p := newPlace(t, closePolicy())
	calls := make(chan call, 100)
	start := func(name string, both bool) func() {
		h := closing(closes)
		if both {
			node.Handle(h, orderOpen, func(_ context.Context, task *tocsin.Task[order]) error {
				calls <- call{task.Key(), name}
				return nil
			})
		}
		cfg := p.config("orders")
		cfg.Name = name
		_, stop := run(t, cfg, h)
		return stop
	}
	stops := []func(){start("old1", false), start("old2", false)}
	start("new1", true)
	until(t, "all own tables", func() bool {
		now := nodesOf(t, p, "orders")
		return now["old1"].Tables >= 2 && now["old2"].Tables >= 2 && now["new1"].Tables >= 2
	})
	opening := closePolicy()
	opening.Name, opening.Number = orderOpen.Name(), 9
	if _, err := biztype.Apply(t.Context(), p.cfg, []biztype.Policy{closePolicy(), opening}); err != nil {
		t.Fatal(err)
	}
	until(t, "the old ones say that they lack it", func() bool {
		now := nodesOf(t, p, "orders")
		return now["old1"].Info.Lacks[orderOpen.Name()] != "" && now["old2"].Info.Lacks[orderOpen.Name()] != ""
	})
	next := uint64(1)
	for table, by := range round(t, p, orderOpen, calls, &next) {
		if by != "new1" {
			t.Errorf("table %d: delivered by %q", table, by)
		}
	}
	if now := nodesOf(t, p, "orders"); now["new1"].Tables > 4 {
		t.Errorf("the new one has taken %d of 8 tables", now["new1"].Tables)
	}
	start("new2", true)
	stops[0]() // the deploy goes on
	round(t, p, orderOpen, calls, &next)
	stops[1]()
	round(t, p, orderOpen, calls, &next)
}
