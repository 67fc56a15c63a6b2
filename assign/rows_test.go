package assign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestTablesAreDealtByWeight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var members []attendee
		total := 0
		for i := range rapid.IntRange(1, 12).Draw(rt, "nodes") {
			m := attendee{Member{fmt.Sprint("n", i), rapid.IntRange(1, 5).Draw(rt, "weight")}, rapid.Bool().Draw(rt, "lacks")}
			members = append(members, m)
		}
		able := slices.DeleteFunc(slices.Clone(members), func(m attendee) bool { return m.lacks })
		if len(able) == 0 {
			able = members
		}
		for _, m := range able {
			total += m.Weight
		}
		layout := tocsin.Layout{Databases: 1, Tables: 3 * total}
		seen := map[int]bool{}
		for _, m := range members {
			mine := firsts(m.ID, layout, map[int][]attendee{0: rapid.Permutation(members).Draw(rt, "order")})
			want := 0
			if slices.Contains(able, m) {
				want = 3 * m.Weight
			}
			if len(mine) != want {
				rt.Fatalf("%s of %v has %d of %d tables, want %d", m.ID, members, len(mine), layout.Tables, want)
			}
			for _, table := range mine {
				if seen[table] {
					rt.Fatalf("table %d has two nodes", table)
				}
				seen[table] = true
			}
		}
		if len(seen) != layout.Tables {
			rt.Fatalf("%d of %d tables have a node", len(seen), layout.Tables)
		}
	})
}

// nodeTables keeps the node rows of two databases, each on a server of its own.
type nodeTables struct {
	mu    sync.Mutex
	rows  map[string]store.Attendee
	at    map[string]time.Time
	fails [2]error // by server
	hangs [2]bool  // likewise: its statements end with their context
}

func (f *nodeTables) Servers() []string { return []string{"db1", "db2"} }

// answer waits for a server that hangs, and returns its failure.
func (f *nodeTables) answer(ctx context.Context, server int) error {
	f.mu.Lock()
	err, hangs := f.fails[server], f.hangs[server]
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		err = ctx.Err()
	}
	return err
}

func (f *nodeTables) Attend(ctx context.Context, server int, group, node, about string) error {
	err := f.answer(ctx, server)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.rows[node] = store.Attendee{Group: group, Node: node, About: about}
		f.at[node] = time.Now()
	}
	return err
}

func (f *nodeTables) Attending(ctx context.Context, server int, within time.Duration) (all []store.Attendee, err error) {
	err = f.answer(ctx, server)
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, a := range f.rows {
		if time.Since(f.at[id]) <= within && err == nil {
			a.Database = server
			all = append(all, a)
		}
	}
	return all, err
}

// failing makes servers fail.
func (f *nodeTables) failing(servers ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, server := range servers {
		f.fails[server] = errors.New("away")
	}
}

func (f *nodeTables) Depart(_ context.Context, _ int, _, node string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.rows, node)
	return nil
}

// attend runs a node until stop, or the end of the test.
func attend(t *testing.T, f *nodeTables, name string) (p *Rows, stop func()) {
	t.Helper()
	p = NewRows(RowsConfig{
		Tables: f, Layout: tocsin.Layout{Databases: 2, Tables: 4}, Group: "g", Node: name, Changed: func() {},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = p.Run(ctx); close(ended) }()
	return p, func() { cancel(); <-ended }
}

func TestNodesThatComeAndGoShareTheTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &nodeTables{rows: map[string]store.Attendee{}, at: map[string]time.Time{}}
		share := func(what string, want int, nodes ...*Rows) {
			t.Helper()
			synctest.Wait()
			for _, p := range nodes {
				if p.Owned() != want || p.Peers() != 8/max(want, 1) {
					t.Errorf("%s: %s has %d tables of %d nodes, want %d", what, p.ID(), p.Owned(), p.Peers(), want)
				}
			}
		}
		a, stopA := attend(t, f, "a")
		share("alone", 8, a)
		b, stopB := attend(t, f, "b")
		time.Sleep(attendEvery)
		share("two", 4, a, b)
		b.Tell(Told{Types: []string{"x"}, Lacks: map[string]string{}})
		time.Sleep(attendEvery)
		synctest.Wait()
		if elsewhere, known := a.Elsewhere("x"); !elsewhere || !known {
			t.Error("a does not know that b delivers x")
		}
		stopB()
		time.Sleep(attendEvery)
		share("one has ended", 8, a)
		f.mu.Lock()
		f.rows["c"], f.at["c"] = store.Attendee{Group: "g", Node: "c"}, time.Now() // and it is never seen again
		f.mu.Unlock()
		time.Sleep(attendEvery)
		share("one was killed", 4, a)
		time.Sleep(GoneAfter)
		share("one was killed long ago", 8, a)
		f.failing(0, 1)
		time.Sleep(time.Minute)
		share("the server is away", 8, a)
		stopA()
		if len(f.rows) > 1 {
			t.Errorf("rows are left: %v", f.rows)
		}
	})
}

func TestOneNodeLeadsWhileAServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &nodeTables{rows: map[string]store.Attendee{}, at: map[string]time.Time{}}
		var nodes []*Rows
		var stops []func()
		for _, name := range []string{"a", "b", "c"} {
			n, stop := attend(t, f, name)
			nodes, stops = append(nodes, n), append(stops, stop)
		}
		leader := func(what string) (leader int) {
			t.Helper()
			time.Sleep(GoneAfter + 2*attendEvery)
			synctest.Wait()
			leads := 0
			for i, n := range nodes {
				if n.Peers() != len(nodes) {
					t.Errorf("%s: %s knows of %d nodes, there are %d", what, n.ID(), n.Peers(), len(nodes))
				}
				if n.Leads() {
					leads, leader = leads+1, i
				}
			}
			if leads != 1 {
				t.Fatalf("%s: %d nodes lead", what, leads)
			}
			return leader
		}
		first := leader("all is well")
		f.failing(0)
		leader("the first server is away")
		stops[first]()
		nodes, stops = slices.Delete(nodes, first, first+1), slices.Delete(stops, first, first+1)
		leader("the node that led is gone too")
		n, stop := attend(t, f, "d")
		nodes, stops = append(nodes, n), append(stops, stop)
		leader("one more has come")
		f.failing(1)
		leader("no server can be read")
		for _, stop := range stops {
			stop()
		}
	})
}

func TestAServerThatHangsCountsAsAFailureOfItsNodeTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &nodeTables{rows: map[string]store.Attendee{}, at: map[string]time.Time{}, hangs: [2]bool{true, false}}
		n, stop := attend(t, f, "a")
		time.Sleep(time.Minute)
		stop()
		if hung, well := testutil.ToFloat64(n.failures.WithLabelValues("db1")), testutil.ToFloat64(n.failures.WithLabelValues("db2")); hung < 5 || well != 0 {
			t.Errorf("%v failures of the server that hangs, %v of the other one", hung, well)
		}
	})
}

func TestAWeightBeyondTheBoundCountsAsTheBound(t *testing.T) {
	t.Parallel()
	huge := attendeeOf("huge", readRow(`{"weight":1000000000}`))
	if huge.Weight > MaxWeight {
		t.Fatalf("it counts as %d", huge.Weight)
	}
	if order := seats([]attendee{huge, attendeeOf("one", readRow(`{"weight":1}`))}); len(order) != MaxWeight+1 {
		t.Errorf("%d seats", len(order))
	}
}

func TestANodeSaysOfItselfWhatFits(t *testing.T) {
	t.Parallel()
	p := NewRows(RowsConfig{Tables: &nodeTables{}, Layout: tocsin.Layout{Databases: 1, Tables: 1}, Group: "g", Node: "n", Changed: func() {}})
	p.Tell(Told{Types: []string{"x"}, Lacks: map[string]string{"y": "no secret"}})
	if got := readRow(p.text()); len(got.Types) != 1 || got.Lacks["y"] != "no secret" {
		t.Errorf("%+v", got)
	}
	other := NewRows(p.cfg)
	says := func(what string, delivers, known bool) {
		t.Helper()
		if text := p.text(); len(text) > maxAbout || len(readRow(text).Lacks) == 0 {
			t.Errorf("%s: %d bytes: %+v", what, len(text), readRow(text))
		}
		other.note(0, []store.Attendee{{Group: "g", Node: p.ID(), About: p.text()}})
		if is, isKnown := other.Elsewhere("x"); is != delivers || isKnown != known {
			t.Errorf("%s: another node takes it for one that delivers x: %t, known: %t", what, is, isKnown)
		}
		other.cfg.Tables = &nodeTables{rows: map[string]store.Attendee{"p": {Group: "g", Node: p.ID(), About: p.text()}}, at: map[string]time.Time{"p": time.Now()}}
		if types, told, err := other.Delivered(t.Context()); types["x"] != delivers || told != known || err != nil {
			t.Errorf("%s: another node that starts reads %v, told: %t (%v)", what, types, told, err)
		}
	}
	lacks := map[string]string{}
	for i := range 60 {
		lacks[fmt.Sprint("sms.", i)] = strings.Repeat("why ", 35)
	}
	p.Tell(Told{Types: []string{"x"}, Lacks: lacks})
	says("long reasons", true, true)
	if got := readRow(p.text()).Lacks; len(got) != 60 || got["sms.1"] == "" {
		t.Errorf("long reasons: %v", got)
	}
	p.Tell(Told{Types: append([]string{"x"}, slices.Repeat([]string{"some.biz.type"}, 1000)...), Lacks: map[string]string{"y": "no secret"}})
	says("too many types", false, false)
}

func TestANewerPayloadCountsIfEachServerHasANodeThatKnowsIt(t *testing.T) {
	t.Parallel()
	p := NewRows(RowsConfig{Tables: &nodeTables{}, Layout: tocsin.Layout{Databases: 2, Tables: 1}, Group: "g", Node: "n", Changed: func() {}})
	old := store.Attendee{Group: "g", Node: "old", About: `{"types":["x"],"versions":{"x":1}}`}
	newer := store.Attendee{Group: "g", Node: "new", About: `{"types":["x"],"versions":{"x":3}}`}
	self := store.Attendee{Group: "g", Node: p.ID(), About: `{"types":["x"],"versions":{"x":9}}`}
	foreign := store.Attendee{Group: "h", Node: "foreign", About: newer.About}
	p.note(0, []store.Attendee{self, old, newer, foreign})
	if got := p.Newest("x"); got != 0 {
		t.Errorf("version %d before the second server was read", got)
	}
	p.note(1, []store.Attendee{self, old, foreign})
	if got := p.Newest("x"); got != 1 {
		t.Errorf("version %d, and the second server has 1", got)
	}
	p.note(1, []store.Attendee{self, newer})
	if got := p.Newest("x"); got != 3 {
		t.Errorf("version %d, want 3", got)
	}
}
