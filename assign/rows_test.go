package assign

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	sessions "github.com/tocsinhq/tocsin/internal/session"
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

// listed are the sessions of two databases, each on a server of its own, as a process sees them.
type listed struct {
	members [2][]sessions.Member
	read    [2]time.Time
	told    string
}

func (l *listed) Sessions(database int) ([]sessions.Member, time.Time) {
	return l.members[database], l.read[database]
}

func (l *listed) Tell(about string) { l.told = about }

// list sets who is in the databases, as read now.
func (l *listed) list(members []sessions.Member, databases ...int) {
	for _, database := range databases {
		l.members[database], l.read[database] = members, time.Now()
	}
}

// member is a session of a node of group g.
func member(node, about string) sessions.Member {
	m := sessions.Member{}
	m.Group, m.Node, m.Seat, m.About = "g", node, true, about
	return m
}

// attend makes a node's membership.
func attend(name string) (*Rows, *listed) {
	l := &listed{}
	return NewRows(RowsConfig{
		Sessions: l, Layout: tocsin.Layout{Databases: 2, Tables: 4}, ServerOf: func(table int) int { return table / 4 },
		Group: "g", ID: name, Changed: func() {},
	}), l
}

func TestNodesThatComeAndGoShareTheTables(t *testing.T) {
	t.Parallel()
	a, l := attend("a")
	changed := 0
	a.cfg.Changed = func() { changed++ }
	b := member("b", `{"types":["x"],"lacks":{}}`)
	with := func(change func(*sessions.Member)) sessions.Member { m := b; change(&m); return m }
	foreign, sweep := with(func(m *sessions.Member) { m.Group = "h" }), with(func(m *sessions.Member) { m.Seat = false })
	silent := with(func(m *sessions.Member) { m.Silent = true })
	self := member("a", "{}")
	mute := self
	mute.Silent = true
	draining := with(func(m *sessions.Member) { m.Draining = true })
	for _, c := range []struct {
		what            string
		others          []sessions.Member
		tables, changed int
		peers           int
	}{
		{"alone", []sessions.Member{self}, 8, 1, 1},
		{"nobody of the group came", []sessions.Member{self, foreign, sweep}, 8, 1, 1},
		{"two", []sessions.Member{self, b}, 4, 2, 2},
		{"two, one with an old session beside", []sessions.Member{self, b, silent}, 4, 2, 2},
		{"one is silent", []sessions.Member{self, silent}, 8, 3, 2},
		{"one is heard again", []sessions.Member{self, b}, 4, 4, 2},
		{"one leaves", []sessions.Member{self, draining}, 8, 5, 2},
		{"one was ended", []sessions.Member{self}, 8, 5, 1},
		{"one can't work there", []sessions.Member{self, with(func(m *sessions.Member) { m.Unable = true })}, 8, 5, 2},
		{"all are silent", []sessions.Member{mute, silent}, 4, 6, 2},
	} {
		l.list(c.others, 0, 1)
		a.Note()
		if a.Owned() != c.tables || a.Peers() != c.peers || changed != c.changed {
			t.Errorf("%s: %d tables of %d nodes, changed %d times; want %d, %d, %d", c.what, a.Owned(), a.Peers(), changed, c.tables, c.peers, c.changed)
		}
	}
	if elsewhere, known := a.Elsewhere("x"); !elsewhere || !known {
		t.Error("a does not know that b delivers x")
	}
	l.list([]sessions.Member{self}, 1)
	a.Note()
	if a.Owned() != 6 || a.Wanted() != 6 || !a.LooksFirst(4) || a.LooksFirst(1) && a.LooksFirst(0) {
		t.Errorf("b is in one database alone: a has %d tables", a.Owned())
	}
}

func TestOneNodeLeadsWhileAServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := []sessions.Member{member("a", "{}"), member("b", "{}")}
		a, la := attend("a")
		b, lb := attend("b")
		lead := func(what string) {
			t.Helper()
			a.Note()
			b.Note()
			if a.Leads() == b.Leads() {
				t.Errorf("%s: a leads: %t, b leads: %t", what, a.Leads(), b.Leads())
			}
		}
		if a.Leads() {
			t.Error("a leads before it has read anything")
		}
		la.list(both, 0, 1)
		lb.list(both, 0, 1)
		lead("all is well")
		time.Sleep(GoneAfter + time.Second)
		la.list(both[:1], 1)
		a.Note()
		if !a.Leads() || a.Peers() != 1 {
			t.Errorf("the first server is away and b is gone: a leads: %t, of %d nodes", a.Leads(), a.Peers())
		}
		la.list(both, 1)
		lb.list(both, 1)
		lead("the first server is away")
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
	p, l := attend("n")
	p.Tell(Told{Types: []string{"x"}, Lacks: map[string]string{"y": "no secret"}})
	if got := readRow(l.told); len(got.Types) != 1 || got.Lacks["y"] != "no secret" {
		t.Errorf("%+v", got)
	}
	other, seen := attend("m")
	says := func(what string, delivers, known bool) {
		t.Helper()
		if len(l.told) > maxAbout || len(readRow(l.told).Lacks) == 0 {
			t.Errorf("%s: %d bytes: %+v", what, len(l.told), readRow(l.told))
		}
		seen.list([]sessions.Member{member("n", l.told)}, 0)
		other.Note()
		if is, isKnown := other.Elsewhere("x"); is != delivers || isKnown != known {
			t.Errorf("%s: another node takes it for one that delivers x: %t, known: %t", what, is, isKnown)
		}
	}
	lacks := map[string]string{}
	for i := range 60 {
		lacks[fmt.Sprint("sms.", i)] = strings.Repeat("why ", 35)
	}
	p.Tell(Told{Types: []string{"x"}, Lacks: lacks})
	says("long reasons", true, true)
	if got := readRow(l.told).Lacks; len(got) != 60 || got["sms.1"] == "" {
		t.Errorf("long reasons: %v", got)
	}
	p.Tell(Told{Types: append([]string{"x"}, slices.Repeat([]string{"some.biz.type"}, 1000)...), Lacks: map[string]string{"y": "no secret"}})
	says("too many types", false, false)
}

func TestANewerPayloadCountsIfEachServerHasANodeThatKnowsIt(t *testing.T) {
	t.Parallel()
	p, l := attend("n")
	old, newer := member("old", `{"types":["x"],"versions":{"x":1}}`), member("new", `{"types":["x"],"versions":{"x":3}}`)
	self, foreign := member("n", `{"types":["x"],"versions":{"x":9}}`), newer
	foreign.Group, foreign.Node = "h", "foreign"
	for _, c := range []struct {
		database int
		members  []sessions.Member
		want     int
	}{
		{0, []sessions.Member{self, old, newer, foreign}, 0}, // the second server was not read yet
		{1, []sessions.Member{self, old, foreign}, 1},
		{1, []sessions.Member{self, newer}, 3},
	} {
		l.list(c.members, c.database)
		p.Note()
		if got := p.Newest("x"); got != c.want {
			t.Errorf("version %d, want %d", got, c.want)
		}
	}
}
