package node_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// onTwoServers is a place whose database 1 is on another server, as far as nodes and clients can see.
func onTwoServers(t *testing.T, policies ...biztype.Policy) place {
	t.Helper()
	p := newPlace(t, policies...)
	return p.split(p.cfg.Servers[0].DSN)
}

// split is p with database 1 behind another DSN.
func (p place) split(second string) place {
	p.cfg.Servers = []tocsin.Server{
		{Name: "db1", DSN: p.cfg.Servers[0].DSN, Databases: []int{0}}, {Name: "db2", DSN: second, Databases: []int{1}},
	}
	return p
}

// throughRelay is p as a node sees it whose way to the second server can be cut.
func (p place) throughRelay(t *testing.T) (place, *devtest.Relay) {
	t.Helper()
	dsn := p.cfg.Servers[0].DSN
	address := strings.SplitN(strings.SplitN(dsn, "(", 2)[1], ")", 2)[0]
	way := devtest.NewRelay(t, address)
	return p.split(strings.Replace(dsn, address, way.Addr, 1)), way
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
	until(t, what, func() bool {
		owners, err := keys.Owners(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		return want(owners)
	})
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
	p := onTwoServers(t, closePolicy())
	apart, way := p.throughRelay(t)
	late := make(chan time.Duration, 10000)
	h := closing(func(_ context.Context, task *tocsin.Task[order]) error {
		late <- time.Since(task.DueTime)
		return nil
	})
	for name, seen := range map[string]place{"a": apart, "b": p} {
		cfg := seen.config("orders")
		cfg.Name, cfg.LeaseTTL = name, 2*time.Second
		run(t, cfg, h)
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

// A node that joins gets its share of the tables whose server is well, while those of a server that is away wait for
// outcomes that can't be stored there.
func TestTheTablesOfAServerThatIsAwayHoldUpNoOthersWhenANodeJoins(t *testing.T) {
	t.Parallel()
	policy := closePolicy()
	policy.Timeout = biztype.Duration(5 * time.Minute)
	p := onTwoServers(t, policy)
	apart, way := p.throughRelay(t)
	begun, over := make(chan int, 100), make(chan struct{})
	h := closing(func(_ context.Context, task *tocsin.Task[order]) error {
		begun <- task.JobID.Table()
		<-over
		return nil
	})
	logs := map[string]*devtest.Log{"a": {}, "b": {}}
	start := func(name string, seen place) {
		cfg := seen.config("orders")
		cfg.Name, cfg.LeaseTTL, cfg.Logger = name, time.Minute, logs[name].Logger() // what it can't reach is not told to others before half of that
		run(t, cfg, h)
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
