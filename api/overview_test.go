package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
)

func TestATokenIsToldWhatItMayDo(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	s := serve(t, nil)
	for name, want := range map[string]api.Me{
		"read":  {Name: "read", Scope: "read", BizTypes: []string{"order.*"}, Tokens: true},
		"write": {Name: "write", Scope: "write", BizTypes: []string{"order.*"}, Tokens: true},
		"all":   {Name: "all", Scope: "operate", BizTypes: []string{"*"}, AllTypes: true, Tokens: true},
	} {
		me := mine(s, name)
		if me.Expires != nil || me.Name != want.Name || me.Scope != want.Scope || !slices.Equal(me.BizTypes, want.BizTypes) || me.AllTypes != want.AllTypes || !me.Tokens {
			t.Errorf("%s: %+v", name, me)
		}
	}
	if me := mine(over(t, s.Cluster, func(c *api.Config) { c.Tokens = nil }), "-"); me.Name != "none" || me.Scope != "operate" || !me.AllTypes || me.Tokens {
		t.Errorf("without tokens: %+v", me)
	}
	if got := s.do(get("/me").by("expired")); got.status != http.StatusUnauthorized {
		t.Errorf("%d %s", got.status, got.text)
	}
	ending := over(t, s.Cluster, func(c *api.Config) {
		set := c.Tokens()
		for id, token := range set {
			token.Expires = until
			set[id] = token
		}
	})
	if me := mine(ending, "all"); me.Expires == nil || !me.Expires.Equal(until) {
		t.Errorf("%+v", me)
	}
}

func mine(s *served, token string) api.Me {
	return want[api.Me](s, http.StatusOK, get("/me").by(token))
}

// An overview has what a token is for: the tasks of others are not in it, nor what is told of nodes.
func TestAnOverviewIsOfTheBizTypesOfTheToken(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	attend(t, s.Config, "test", "host-1-4mzkq7ta", `{"types": ["order.close"], "listen": "127.0.0.1:1"}`)
	layout := s.Client.Layout()
	for _, task := range []tocsin.NewTask{closing.New(1, "", tocsin.In(0)), remind.New(2, "", tocsin.In(0)), remind.New(3, "", tocsin.In(0))} {
		s.add(task)
	}
	for table := range layout.Total() {
		if _, err := s.DB.ExecContext(t.Context(), "UPDATE "+layout.Table(table)+" SET action_time = action_time - INTERVAL 1000 SECOND"); err != nil {
			t.Fatal(err)
		}
	}
	measured := func(token string) (o api.Overview) {
		for late := time.Now().Add(patience); len(o.BizTypes) == 0 || o.BizTypes[0].Overdue == nil; time.Sleep(10 * time.Millisecond) {
			if o = want[api.Overview](s, http.StatusOK, get("/overview").by(token)); time.Now().After(late) {
				t.Fatalf("%+v", o)
			}
		}
		return o
	}
	whole := measured("all")
	if len(whole.BizTypes) != 2 || whole.BizTypes[0].OldestMS < 1_000_000 || *whole.BizTypes[0].Overdue+*whole.BizTypes[1].Overdue != 3 || whole.BizTypes[0].State != "unknown" {
		t.Errorf("%+v", whole.BizTypes)
	}
	if n := whole.Nodes; n.Known != 1 || n.Answering != 0 || len(n.Silent) != 1 || n.Silent[0].ID != "host-1-4mzkq7ta" || n.Silent[0].Error == "" {
		t.Errorf("%+v", n)
	}
	if len(whole.Servers) != 1 || whole.Servers[0].Name != "test" || whole.Servers[0].OverdueAgeMS == nil || whole.Servers[0].Away {
		t.Errorf("%+v", whole.Servers)
	}
	var told []string
	for _, f := range whole.Faults {
		told = append(told, f.Level+" "+f.BizType+f.Node)
		if !strings.HasPrefix(f.Runbook, "https://github.com/tocsinhq/tocsin/blob/main/docs/runbook.md#tocsin") || f.Text == "" {
			t.Errorf("%+v", f)
		}
	}
	if slices.Sort(told); !slices.Equal(told, []string{"fail coupon.remind", "fail order.close", "warn host-1-4mzkq7ta"}) {
		t.Errorf("%v", told)
	}
	part := measured("read")
	if len(part.BizTypes) != 1 || part.BizTypes[0].BizType != "order.close" || *part.BizTypes[0].Overdue != 1 || len(part.Faults) != 1 || part.Faults[0].BizType != "order.close" {
		t.Errorf("%+v", part)
	}
	if n := part.Nodes; n.Known != 1 || n.Answering != 0 || n.Silent != nil {
		t.Errorf("%+v", n)
	}
}
