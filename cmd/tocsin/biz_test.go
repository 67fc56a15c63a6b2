package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/biztype"
)

func TestBizApplySaysWhatItChanged(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.applyDDL()
	s.write("biz.yaml", bizYAML)
	s.run("biz", "apply", "biz.yaml").says(t, "order.close    number 1  added", "2 databases written")
	s.write("biz.yaml", strings.Replace(bizYAML, "attempts: 3", "attempts: 4", 1))
	got := decode[appliedBiz](t, s.run("biz", "apply", "biz.yaml", "--json"))
	want := []appliedType{{"order.close", 1, biztype.Changed}, {"coupon.remind", 2, biztype.Unchanged}}
	if !reflect.DeepEqual(got.Types, want) || got.Databases != 2 || got.Revision == 0 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	s.run("biz", "apply", "biz.yaml").says(t, "0 databases written")
}

func TestBizApplyRefusesABadFileWhole(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("bad.yaml", "biz_types:\n  - name: fresh\n    number: 3\n    tmeout: 3s\n")
	s.run("biz", "apply", "bad.yaml").refused(t, exitFailed, `bad.yaml:4: unknown key "tmeout"`)
	s.write("bad.yaml", "biz_types:\n  - {name: fresh, number: 3, group: g}\n  - {name: other, number: 1, group: g}\n")
	s.run("biz", "apply", "bad.yaml").refused(t, exitFailed, "other", "order.close", "a number never changes its name")
	s.run("biz", "apply", "none.yaml").refused(t, exitFailed, "none.yaml")
	if list := decode[[]biztype.Policy](t, s.run("biz", "list", "--json")); len(list) != 2 {
		t.Errorf("%d types, want 2", len(list))
	}
}

func TestBizListAndShow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run("biz", "list").says(t,
		"NAME           NUMBER  GROUP     TARGET",
		"order.close    1       orders    Go handler                30s      3         64           active",
		"coupon.remind  2       callback  https://example.com/hook  30s      16        64           paused")
	shown := s.run("biz", "show", "order.close").ok(t)
	policies, err := biztype.Parse([]byte(shown), "shown")
	if err != nil || len(policies) != 1 || policies[0].Attempts != 3 || policies[0].Timeout.D() != biztype.DefaultTimeout {
		t.Errorf("what is shown can't be applied: %v\n%s", err, shown)
	}
	p := decode[biztype.Policy](t, s.run("biz", "show", "coupon.remind", "--json"))
	if p.Number != 2 || !p.Paused || p.Webhook == nil {
		t.Errorf("got %+v", p)
	}
	s.run("biz", "show", "unheard").refused(t, exitFailed, `unknown biz type "unheard": `+"`tocsin biz list`")
}
