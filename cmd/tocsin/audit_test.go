package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/upkeep"
)

func TestAuditExitsWith1WhereSomethingDoesNotFit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	good, bad := s.add(1), s.add(2)
	s.run("audit").says(t, "audit: all fits; 8 tables, 2 rows read by 10 statements that took ")
	s.run("audit", "--outbox").says(t, "audit: all fits; 0 moved tasks looked for, 0 of them may be purged, the config has no outboxes; ")
	s.set(bad, "crashes = 5, action_time = UTC_TIMESTAMP(3) - INTERVAL 90 SECOND, due_time = action_time")
	r := s.run("audit")
	if want := "audit: overdue 1, too_many_crashes 1; 8 tables"; r.code != exitFailed || r.stderr != "" || !strings.HasPrefix(r.stdout, want) ||
		!strings.Contains(r.stdout, bad.String()) || strings.Contains(r.stdout, good.String()) {
		t.Errorf("exit code %d, stderr %q:\n%s", r.code, r.stderr, r.stdout)
	}
	got := decodeText[upkeep.AuditReport](t, s.run("audit", "--json").stdout)
	if len(got.Findings) != 2 || got.Findings[0].Type != "order.close" || got.Findings[0].Table != s.layout.Table(bad.Table()) || got.Cost.Rows != 2 {
		t.Errorf("%+v", got)
	}
	r = s.run("audit", "--grace", "1h")
	if want := "audit: too_many_crashes 1; "; r.code != exitFailed || !strings.HasPrefix(r.stdout, want) {
		t.Errorf("with more grace: exit code %d:\n%s", r.code, r.stdout)
	}
	s.set(bad, "status = 2, crashes = 0, gmt_create = gmt_modified + INTERVAL 1 SECOND, action_time = UTC_TIMESTAMP(3) - INTERVAL 3 HOUR, due_time = action_time")
	s.run("audit").says(t, "all fits")
	if r := s.run("audit", "--all"); r.code != exitFailed || !strings.Contains(r.stdout, "created_after") {
		t.Errorf("of all rows: exit code %d:\n%s", r.code, r.stdout)
	}
}

func TestAuditAgainstListsBizIDsWithoutATask(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for n := range 5 {
		s.add(n + 1)
	}
	s.write("paid", "1\n2\n\n77 \n5\n18446744073709551615\n")
	r := s.run("audit", "--type", "order.close", "--against", "paid")
	if want := "audit: 2 of 5 biz_ids have no task order.close, 0 could not be looked up"; r.code != exitFailed || r.stderr != "" ||
		!strings.HasPrefix(r.stdout, want) || !strings.HasSuffix(r.stdout, "\n77\n18446744073709551615\n") {
		t.Errorf("exit code %d, stderr %q:\n%s", r.code, r.stderr, r.stdout)
	}
	got := decode[missingTasks](t, callIn(t, s.dir, "1\n2\n3", "audit", "--type", "order.close", "--against", "-", "--json"))
	if got.Asked != 3 || got.BizIDs == nil || len(got.BizIDs) != 0 {
		t.Errorf("%+v", got)
	}
	got = decodeText[missingTasks](t, callIn(t, s.dir, fmt.Sprint(1), "audit", "--type", "coupon.remind", "--against", "-", "--json").stdout)
	if !reflect.DeepEqual(got.BizIDs, []string{"1"}) {
		t.Errorf("of another type: %+v", got)
	}
}
