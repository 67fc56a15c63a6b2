package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// onTwoServers is a place whose database 1 is on a server of its own.
func onTwoServers(t *testing.T, policy biztype.Policy) (p place, port int) {
	t.Helper()
	return onTwoServersOf(t, newPlace(t, policy), policy)
}

// onTwoServersOf returns p with database 1 on a server of its own.
func onTwoServersOf(t *testing.T, p place, policy biztype.Policy) (place, int) {
	t.Helper()
	other := startServer(t)
	return onServers(t, p, other.DSN(), policy), other.Port()
}

// onServers returns p with database 1 on another server.
func onServers(t *testing.T, p place, other string, policy biztype.Policy) place {
	t.Helper()
	p.cfg.Servers = []tocsin.Server{
		{Name: "db1", DSN: p.cfg.Servers[0].DSN, Databases: []int{0}}, {Name: "db2", DSN: other, Databases: []int{1}},
	}
	return p.made(t, policy)
}

// throughProxy is p as a node sees it whose way to the second server can be cut.
func throughProxy(t *testing.T, p place, port int) (place, *devtest.Relay) {
	t.Helper()
	way := devtest.NewRelay(t, fmt.Sprintf("127.0.0.1:%d", port))
	servers := append([]tocsin.Server(nil), p.cfg.Servers...)
	servers[1].DSN = strings.Replace(servers[1].DSN, fmt.Sprintf("127.0.0.1:%d", port), way.Addr, 1)
	p.cfg.Servers = servers
	return p, way
}

// ownersAre waits until each table has the owner that want gives, by the beginning
// of its id.
func ownersAre(t *testing.T, p place, what string, want func(owners []string) bool) {
	t.Helper()
	keys, err := assign.OpenRegistry(t.Context(), p.etcd, p.cfg.Cluster, p.cfg.Layout.Total())
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		owners, err := keys.Owners(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if want(owners) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited too long until %s: %q", what, owners)
		}
	}
}

// all reports whether all ids begin with name.
func all(ids []string, name string) bool {
	for _, id := range ids {
		if !strings.HasPrefix(id, name+"-") {
			return false
		}
	}
	return true
}

func TestTablesOfAServerThatOneNodeCannotReachGoToTheOther(t *testing.T) {
	t.Parallel()
	p, port := onTwoServers(t, closePolicy())
	apart, way := throughProxy(t, p, port)
	late := make(chan time.Duration, 10000)
	var h node.Handlers
	node.Handle(&h, orderClose, func(_ context.Context, task *tocsin.Task[order]) error {
		late <- time.Since(task.DueTime)
		return nil
	})
	for name, seen := range map[string]place{"a": apart, "b": p} {
		cfg := seen.config("orders")
		cfg.Name, cfg.LeaseTTL = name, 2*time.Second
		run(t, cfg, &h)
	}
	shared := func(owners []string) bool {
		n := 0
		for _, id := range owners {
			if strings.HasPrefix(id, "a-") {
				n++
			}
		}
		return n == 4 && !slices.Contains(owners, "")
	}
	ownersAre(t, p, "both have their share", shared)
	way.Cut()
	cut := time.Now()
	var ids []tocsin.JobID
	for n := range uint64(400) {
		ids = append(ids, add(t, p, orderClose.New(n+1, order{n}, tocsin.In(time.Duration(n)*10*time.Millisecond))))
	}
	ownersAre(t, p, "b has the second server's tables, and a others for them", func(owners []string) bool {
		return all(owners[4:], "b") && all(owners[:4], "a")
	})
	t.Logf("the other node had the tables %.1f s after the cut, with a lease of 2 s", time.Since(cut).Seconds())
	worst := time.Duration(0)
	for _, id := range ids {
		await(t, p, id, "a task to be done while the way is cut", withStatus(tocsin.Done))
		worst = max(worst, receive(t, late, "its delivery"))
	}
	t.Logf("worst lateness %.1f s, %d second deliveries", worst.Seconds(), len(late))
	way.Mend(t)
}
