package dispatcher

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/quantile"
	"github.com/tocsinhq/tocsin/internal/store"
)

// What lower priorities may load falls while rows are late, down to a least, and rises again while none is and more is wanted.
func TestLowerPrioritiesFindTheirRate(t *testing.T) {
	t.Parallel()
	var y yields
	y.mixed.Store(true)
	now := time.Now()
	loaded := func(seconds int, late time.Duration) (rows int) {
		for range seconds * 100 {
			now = now.Add(10 * time.Millisecond)
			y.began(high, late, now)
			n := y.most(low, 1000, now)
			y.load(low, n)
			rows += n
		}
		return rows / seconds
	}
	if n := y.most(low, 1000, now); n != 1000 {
		t.Errorf("%d rows with no other priority in sight", n)
	}
	first := loaded(1, 0)
	quick := loaded(3, 0)
	loaded(10, time.Second)
	slow := loaded(10, time.Second)
	again := loaded(10, 0)
	if first < 900 || quick < 2*first || slow < 80 || slow > 120 || again < 10*slow {
		t.Errorf("at first %d rows a second, then %d, %d while rows were late, %d later", first, quick, slow, again)
	}
	if n := y.most(high, 1000, now); n != 1000 {
		t.Errorf("the highest priority may load %d rows", n)
	}
	if r := y.to(high, now); r < 10*yieldLeast {
		t.Errorf("rate %g", r)
	}
	y.began(normal, 0, now)
	if y.gives(normal, now.Add(yieldAfter+1)) || y.most(low, 1000, now.Add(yieldAfter+1)) != 1000 {
		t.Error("a priority of which nothing begins holds up others")
	}
}

// busyStore takes a while for each row, one statement after another, as a server without a processor to spare.
type busyStore struct {
	*memory
	one chan struct{} // a slot
}

func (b *busyStore) Load(ctx context.Context, server int, ids []tocsin.JobID) (store.Loaded, error) {
	b.one <- struct{}{}
	defer func() { <-b.one }()
	time.Sleep(time.Duration(len(ids)) * 200 * time.Microsecond)
	return b.memory.Load(ctx, server, ids)
}

func (b *busyStore) ClaimRows(ctx context.Context, c store.RowsClaim) (store.ClaimedRows, error) {
	b.one <- struct{}{}
	defer func() { <-b.one }()
	time.Sleep(time.Duration(len(c.Rows)) * 200 * time.Microsecond)
	return b.memory.ClaimRows(ctx, c)
}

// Rows of a high priority begin on time beside a backlog of a low one, which goes on, and not as fast as it could.
func TestALowBacklogGivesWay(t *testing.T) { eachWay(t, testALowBacklogGivesWay) }

func testALowBacklogGivesWay(t *testing.T) {
	worst := func(t *testing.T, one, other tocsin.Priority) (late time.Duration, backlog int) {
		var mu sync.Mutex
		var lates []time.Duration
		a, b := policy("order.close", 1), policy("report.mail", 2)
		a.Priority, b.Priority = one, other
		sinks := map[string]Sink{
			a.Name: handler(func(_ context.Context, task tocsin.Info) error {
				mu.Lock()
				defer mu.Unlock()
				lates = append(lates, time.Since(task.ActionTime))
				return nil
			}),
			b.Name: handler(func(context.Context, tocsin.Info) error { mu.Lock(); defer mu.Unlock(); backlog++; return nil }),
		}
		inBubbleOf(t, []biztype.Policy{a, b}, sinks, func(c *Config) { c.Store = &busyStore{c.Store.(*memory), make(chan struct{}, 1)} }, func(r *rig) {
			for i := range 1000 {
				r.add(i%rigTables, 1, time.Duration(i)*10*time.Millisecond)
			}
			time.Sleep(2 * time.Second)
			for i := range 60_000 {
				r.add(i%rigTables, 2, -time.Second)
			}
			pass(7 * time.Second)
		})
		slices.Sort(lates)
		return quantile.Of(lates, 0.99), backlog
	}
	late, n := worst(t, tocsin.High, tocsin.Low)
	_, alike := worst(t, "", "")
	t.Logf("p99 %s beside %d rows; without priorities beside %d", late, n, alike)
	if late > 50*time.Millisecond || n < 700 || alike < n+5000 {
		t.Errorf("p99 %s beside %d rows; without priorities beside %d", late, n, alike)
	}
}

// Lanes are looked at by priority, and in turn; every eighth time the lowest comes first.
func TestLanesInTheOrderOfPriority(t *testing.T) { eachWay(t, testLanesInTheOrderOfPriority) }

func testLanesInTheOrderOfPriority(t *testing.T) {
	t.Parallel()
	s := &server{}
	for i, c := range []class{low, normal, high, normal} {
		k := &kind{number: uint64(i)}
		k.rule.Store(&rule{class: c})
		s.order = append(s.order, &lane{kind: k})
	}
	firsts := map[uint64]int{}
	for range 16 {
		lanes := s.inTurn()
		firsts[lanes[0].kind.number]++
		if len(lanes) != 4 || lanes[1].kind.number%2 != 1 || lanes[2].kind.number%2 != 1 {
			t.Errorf("lanes %v", lanes)
		}
	}
	if firsts[2] != 14 || firsts[0] != 2 {
		t.Errorf("first: %v", firsts)
	}
}

// What was loaded while no other priority was in sight is no debt: when one begins, the lower ones go on at the first rate.
func TestNobodyPaysForRowsLoadedWhileNobodyGaveWay(t *testing.T) {
	t.Parallel()
	var y yields
	y.mixed.Store(true)
	now := time.Now()
	for range 3 { // each time after a while in which nothing of the high priority began
		y.load(low, 1_000_000)
		now = now.Add(time.Minute)
		loaded := 0
		for range 50 {
			y.began(high, 0, now)
			now = now.Add(10 * time.Millisecond)
			n := y.most(low, 1000, now)
			y.load(low, n)
			loaded += n
		}
		if loaded < yieldLeast {
			t.Errorf("%d rows in half a second", loaded)
		}
	}
}
