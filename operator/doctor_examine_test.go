package operator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// ward answers for servers: by index what Facts and Check say. A server without an entry never answers.
type ward map[int]struct{ facts, check error }

func (w ward) Facts(ctx context.Context, i int) (store.Facts, error) {
	said, ok := w[i]
	if !ok {
		<-ctx.Done()
		return store.Facts{}, ctx.Err()
	}
	f := healthy()
	f.ServerID += string(rune('a' + i))
	return f, said.facts
}

func (w ward) Commit(_ context.Context, i int) (bool, error) { return w[i].check == nil, nil }

func (w ward) Trial(context.Context, int, store.Rights) ([]store.Flaw, string, error) {
	return nil, "toc@%", nil
}

func (w ward) Sightings(context.Context, int) []mysql.Sighting { return nil }

func (w ward) Check(_ context.Context, i int) error { return w[i].check }

func well(w ward) patient {
	return patient{
		uses: []serverUse{{Name: "db1", Tables: 512, Conns: 32}, {Name: "db2", Tables: 512, Conns: 32}}, servers: w, timeout: answerWithin,
		types: func(context.Context) ([]biztype.Policy, error) { return []biztype.Policy{{Name: "a"}}, nil },
		etcd:  func(context.Context) (string, error, error) { return "1 member", nil, nil },
		nodes: func() ([]Group, bool) { return nil, true },
	}
}

// complaints are the subjects and names of what is not well.
func complaints(checks []Check) []string {
	var all []string
	for _, c := range checks {
		if c.Level != OK {
			all = append(all, c.Level.String()+" "+c.Subject+": "+c.Name+": "+c.Is)
		}
	}
	return all
}

var bothWell = ward{0: {}, 1: {}}

// identityOf is what etcd says of the databases' identity.
func identityOf(id string, refused error) func(*patient) {
	return func(p *patient) { p.identity = func(context.Context) (string, error) { return id, refused } }
}

var examinations = map[string]struct {
	ward  ward
	spoil func(*patient)
	want  []string
}{
	"a healthy cluster has no complaint": {ward: bothWell},
	"a server that is down fails alone": {
		ward: ward{0: {facts: errors.New("refused")}, 1: {}},
		want: []string{"fail server db1: reachable: refused"},
	},
	"a server that never answers fails after the time-out": {
		ward: ward{1: {}},
		want: []string{"fail server db1: reachable: context deadline exceeded"},
	},
	"a foreign layout": {
		ward: ward{0: {}, 1: {check: errors.New("8x16, not 8x1024")}},
		want: []string{"fail server db2: layout: 8x16, not 8x1024"},
	},
	"servers that are down, and so neither biz types nor an identity": {
		ward: ward{0: {facts: errors.New("refused")}, 1: {facts: errors.New("refused")}},
		spoil: func(p *patient) {
			p.types = func(context.Context) ([]biztype.Policy, error) { return nil, errors.New("refused") }
			identityOf("", nil)(p)
		},
		want: []string{"fail server db1: reachable: refused", "fail server db2: reachable: refused"},
	},
	"another cluster's database, and so neither biz types nor an identity": {
		ward: ward{0: {check: errors.New("of another cluster")}, 1: {}},
		spoil: func(p *patient) {
			p.types = func(context.Context) ([]biztype.Policy, error) { return nil, errors.New("of another cluster") }
			identityOf("", nil)(p)
		},
		want: []string{"fail server db1: layout: of another cluster"},
	},
	"no biz types, no etcd in the config": {
		ward: bothWell,
		spoil: func(p *patient) {
			p.types = func(context.Context) ([]biztype.Policy, error) { return nil, nil }
			p.etcd = nil
		},
		want: []string{
			"warn biz types: stored: none, so no task can be added",
			"warn etcd: health: the config names no endpoints: nodes can't run, sweepers can",
		},
	},
	"one identity": {ward: bothWell, spoil: identityOf("x", nil)},
	"no identity": {ward: bothWell, spoil: identityOf("", nil), want: []string{
		"warn etcd: identity: no database that answers has one, so nodes of another cluster with the same id are not kept out"}},
	"another cluster's identity": {ward: bothWell, spoil: identityOf("x", errors.New("foreign")), want: []string{"fail etcd: identity: foreign"}},
	"an endpoint of etcd that is dead": {
		ward: bothWell,
		spoil: func(p *patient) {
			p.etcd = func(context.Context) (string, error, error) {
				return "one of a:1, b:1 answers", errors.New("etcd b:1: refused"), nil
			}
		},
		want: []string{"warn etcd: endpoints: etcd b:1: refused"},
	},
	"biz types and etcd that can't be read": {
		ward: bothWell,
		spoil: func(p *patient) {
			p.types = func(context.Context) ([]biztype.Policy, error) { return nil, errors.New("no table") }
			p.etcd = func(ctx context.Context) (string, error, error) { <-ctx.Done(); return "", nil, errors.New("silence") }
		},
		want: []string{"fail biz types: stored: no table", "fail etcd: health: silence"},
	},
}

// A server that never answers keeps nodes of the session tables, and the databases' identity, from being known for as long as it is waited
// for: all of that is asked at once.
func TestAllIsAskedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := well(ward{1: {}})
		slow := func() { time.Sleep(answerWithin) }
		p.nodes = func() ([]Group, bool) { slow(); return []Group{handling("n", "orders", "a")}, true }
		p.identity = func(context.Context) (string, error) { slow(); return "x", nil }
		p.Sinks = func(ctx context.Context, _ biztype.Policy) error { return ctx.Err() }
		p.types = func(ctx context.Context) ([]biztype.Policy, error) {
			return []biztype.Policy{{Name: "a", Group: "orders", Sink: &biztype.Sink{}}}, nil
		}
		begin := time.Now()
		got := complaints(p.examine(t.Context()))
		if want := []string{"fail server db1: reachable: context deadline exceeded"}; !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
		if took := time.Since(begin); took > answerWithin {
			t.Errorf("took %s", took)
		}
	})
}

func TestExamine(t *testing.T) {
	t.Parallel()
	for name, c := range examinations {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := well(c.ward)
				if c.spoil != nil {
					c.spoil(&p)
				}
				checks := p.examine(t.Context())
				if got := complaints(checks); !slices.Equal(got, c.want) {
					t.Errorf("got %q\nwant %q", got, c.want)
				}
				for _, check := range checks {
					if check.Subject == "" || (check.Fix == "") != (check.Level == OK) {
						t.Errorf("%+v: wants a subject, and a fix where it is not ok", check)
					}
				}
			})
		})
	}
}

func TestPausedTypesAreCounted(t *testing.T) {
	t.Parallel()
	if c := storedTypes([]biztype.Policy{{}, {Paused: true}}, nil); c.Level != OK || c.Is != "2, of which 1 paused" {
		t.Errorf("%+v", c)
	}
}

func TestACheckAsJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Check{Level: Fail, Subject: "etcd", Name: "health", Is: "down", Fix: "start it"})
	if want := `{"level":"fail","subject":"etcd","check":"health","is":"down","fix":"start it"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}

func TestWorst(t *testing.T) {
	t.Parallel()
	checks := []Check{{Level: OK}, {Level: Fail}, {Level: Warn}, {Level: Warn}}
	if Worst(checks) != Fail || Worst(nil) != OK {
		t.Errorf("worst %s", Worst(checks))
	}
}
