package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/operator"
)

func TestBizApply(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.applyDDL()
	s.write("biz.yaml", bizYAML)
	s.run("biz", "apply", "biz.yaml", "--dry-run").says(t, "order.close    number 1  added", "nothing was written")
	s.run("biz", "list").says(t, "NAME")
	s.run("biz", "apply", "biz.yaml").says(t, "order.close    number 1  added", "2 databases written")
	s.write("biz.yaml", strings.Replace(bizYAML, "attempts: 3", "attempts: 4", 1)+"  - {name: order.more, number: 3, group: orders}\n")
	want := []biztype.TypeResult{
		{Name: "order.close", Number: 1, Verdict: biztype.Changed}, {Name: "coupon.remind", Number: 2, Verdict: biztype.Unchanged}, {Name: "order.more", Number: 3, Verdict: biztype.Added},
	}
	dry := decode[appliedBiz](t, s.run("biz", "apply", "biz.yaml", "--dry-run", "--json"))
	if list := decode[[]biztype.Policy](t, s.run("biz", "list", "--json")); !reflect.DeepEqual(dry.Types, want) || !dry.DryRun || dry.Databases != 0 || len(list) != 2 || list[0].Attempts != 3 {
		t.Errorf("dry run: %+v, and then %+v", dry, list)
	}
	got := decode[appliedBiz](t, s.run("biz", "apply", "biz.yaml", "--json"))
	if !reflect.DeepEqual(got.Types, want) || got.Databases != 2 || got.Revision == 0 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	s.run("biz", "apply", "biz.yaml").says(t, "0 databases written")
	s.run("biz", "pause", "order.close").says(t, "order.close  number 1  changed", "2 databases written")
	s.run("biz", "pause", "order.close").says(t, "order.close  number 1  unchanged", "0 databases written")
	if p := decode[biztype.Policy](t, s.run("biz", "show", "order.close", "--json")); !p.Paused || p.Attempts != 4 || p.Group != "orders" {
		t.Errorf("got %+v", p)
	}
	s.run("biz", "resume", "order.close").says(t, "changed")
	if p := decode[biztype.Policy](t, s.run("biz", "show", "order.close", "--json")); p.Paused {
		t.Errorf("got %+v", p)
	}
	s.write("bad.yaml", "biz_types:\n  - name: fresh\n    number: 4\n    tmeout: 3s\n")
	s.run("biz", "apply", "bad.yaml").refused(t, exitFailed, `bad.yaml:4: unknown key "tmeout"`)
	s.write("bad.yaml", "biz_types:\n  - {name: fresh, number: 4, group: g}\n  - {name: other, number: 1, group: g}\n")
	s.run("biz", "apply", "bad.yaml").refused(t, exitFailed, "other", "order.close", "a number never changes its name")
	for host, warned := range map[string]bool{"192.168.1.5": true, "127.0.0.1:8000": true, "[::1]": true, "[::ffff:192.168.1.5]": true, "[::ffff:10.0.0.1]": false, "10.1.2.3": false, "9.9.9.9": false, "[2606:4700::1111]": false, "localhost": false} {
		s.write("away.yaml", "biz_types:\n  - {name: away, number: 9, webhook: {url: 'http://"+host+"/x', allow: [10.0.0.0/8]}}\n")
		out := s.run("biz", "apply", "away.yaml", "--dry-run")
		if got := strings.Contains(out.stderr, "warning: biz type away: no callback will reach http://"+host+"/x: prohibited IP address: ") && strings.HasSuffix(out.stderr, "add its network to webhook.allow of the policy\n"); got != warned || out.code != 0 || out.stderr != "" && !warned {
			t.Errorf("%s: %q, want a warning: %v", host, out.stderr, warned)
		}
	}
	s.run("biz", "apply", "none.yaml").refused(t, exitFailed, "none.yaml")
	s.run("biz", "show", "fresh").refused(t, exitFailed, `unknown biz type "fresh"`)
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
	if err != nil || len(policies) != 1 || policies[0].Attempts != 3 || policies[0].Timeout.D() != 30*time.Second {
		t.Errorf("what is shown can't be applied: %v\n%s", err, shown)
	}
	p := decode[biztype.Policy](t, s.run("biz", "show", "coupon.remind", "--json"))
	if p.Number != 2 || !p.Paused || p.Webhook == nil {
		t.Errorf("got %+v", p)
	}
	s.run("biz", "show", "unheard").refused(t, exitFailed, `unknown biz type "unheard": `+"`tocsin biz list`")
}

func TestBizDeleteIsRefusedWhileSomethingRefersToTheType(t *testing.T) {
	t.Parallel()
	s := scheduleSite(t)
	s.write("more.yaml", bizYAML+"  - {name: order.more, number: 3, group: orders, alarm: {to: order.told}}\n  - {name: order.told, number: 4, group: orders}\n")
	s.run("biz", "apply", "more.yaml").ok(t)
	s.run("task", "add", "--type", "order.more", "--biz-id", "7", "--in", "1h").ok(t)
	s.run("biz", "delete", "order.close").refused(t, exitFailed, "biz type order.close is in use: ", "1 schedule")
	s.run("biz", "delete", "order.told").refused(t, exitFailed, "biz type order.told is in use: it delivers the alarms of order.more")
	s.run("biz", "delete", "order.more").refused(t, exitFailed, "biz type order.more is in use: 1 task (1 pending, 0 claimed, 0 done, 0 cancelled, 0 dead)")
	s.run("biz", "delete", "unheard").refused(t, exitFailed, `unknown biz type "unheard"`)
	for table := range s.layout.Total() {
		s.exec("DELETE FROM " + s.layout.Table(table) + " WHERE biz_type = 3")
	}
	if got := decode[deletedBiz](t, s.run("biz", "delete", "order.more", "--json")); got != (deletedBiz{"order.more", 3}) {
		t.Errorf("%+v", got)
	}
	s.run("biz", "show", "order.more").refused(t, exitFailed, `unknown biz type "order.more"`)
	s.run("biz", "delete", "order.told").says(t, "order.told  number 4  deleted")
	s.run("biz", "apply", "more.yaml").says(t, "order.more     number 3  added")
}

func TestBizStats(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.settled(1, tocsin.Dead, "1 MINUTE")
	s.set(s.add(2), "action_time = UTC_TIMESTAMP(3) - INTERVAL 1 HOUR")
	got := decode[[]operator.Stats](t, s.run("biz", "stats", "--json"))
	if len(got) != 2 || got[0].BizType != "coupon.remind" || got[1].Dead != 1 || got[1].Pending != 1 || got[1].Overdue < 3600 {
		t.Errorf("got %+v", got)
	}
	s.run("biz", "stats").says(t, "coupon.remind  0        0        0     0          0     -", "order.close    1        0        0     0          1     1h0m")
}
