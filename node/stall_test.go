package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// A node that joins gets its share of the tables whose server is well, while those of a server that is away wait for
// outcomes that can't be stored there.
func TestTheTablesOfAServerThatIsAwayHoldUpNoOthersWhenANodeJoins(t *testing.T) {
	t.Parallel()
	policy := closePolicy()
	policy.Timeout = biztype.Duration(5 * time.Minute)
	p, port := onTwoServers(t, policy)
	apart, way := throughProxy(t, p, port)
	begun, over := make(chan int, 100), make(chan struct{})
	var h node.Handlers
	node.Handle(&h, orderClose, func(_ context.Context, task *tocsin.Task[order]) error {
		begun <- task.JobID.Table()
		<-over
		return nil
	})
	logs := map[string]*devtest.Log{"a": {}, "b": {}}
	start := func(name string, seen place) {
		cfg := seen.config("orders")
		cfg.Name, cfg.LeaseTTL, cfg.Logger = name, time.Minute, logs[name].Logger() // what it can't reach is not told to others before half of that
		run(t, cfg, &h)
	}
	start("a", apart)
	ownersAre(t, p, "a has all", func(owners []string) bool { return all(owners, "a") })
	inHand := map[int]bool{}
	for n := uint64(1); len(inHand) < 4; n++ {
		task := orderClose.New(n, order{n}, tocsin.In(0))
		if p.cfg.Layout.TableOf(n) >= 4 && !inHand[p.cfg.Layout.TableOf(n)] {
			add(t, p, task)
			inHand[receive(t, begun, "a delivery")] = true
		}
	}
	way.Cut()
	start("b", p)
	ownersAre(t, p, "b has its share of the first server, and a all of the second", func(owners []string) bool {
		return strings.HasPrefix(owners[1], "b-") && strings.HasPrefix(owners[3], "b-") && all(owners[4:], "a")
	})
	logs["a"].Await(t, "could not give up some tables, trying again")
	way.Mend(t)
	close(over)
	ownersAre(t, p, "b has its whole share", func(owners []string) bool {
		return !all(owners[4:], "a") && owners[5] != "" && owners[7] != ""
	})
}

// registered counts the nodes.
func registered(t *testing.T, p place) int {
	t.Helper()
	keys, err := assign.OpenRegistry(t.Context(), p.etcd, p.cfg.Cluster, p.cfg.Layout.Total())
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	nodes, err := keys.Nodes(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	return len(nodes)
}
