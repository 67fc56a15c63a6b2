package upkeep

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/store"
)

// task puts one task in order for each biz_id.
func (s *site) task(kind int, status tocsin.Status, ago time.Duration, bizIDs ...uint64) {
	s.t.Helper()
	for _, bizID := range bizIDs {
		table := s.layout.TableOf(bizID)
		at := fmt.Sprintf("UTC_TIMESTAMP(3) - INTERVAL %d SECOND", int(ago.Seconds()))
		s.exec(fmt.Sprintf("INSERT INTO %s (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute) VALUES (%d, %s, %s, %d, %d, %d, %s, %s, '')",
			s.layout.Table(table), bizID<<22|uint64(table)<<9|uint64(kind), at, at, bizID, kind, status, at, at))
	}
}

// auditPolicies are those of the audits.
var auditPolicies = []biztype.Policy{{Name: "order.close", Number: 1}, {Name: "held", Number: 2, Paused: true}}

// audit audits with a change of the config.
func (s *site) audit(change func(*AuditConfig)) (AuditReport, error) {
	s.t.Helper()
	cfg := AuditConfig{Store: s.store, Policies: auditPolicies}
	if change != nil {
		change(&cfg)
	}
	return Audit(s.t.Context(), cfg)
}

func TestAuditOfTasksInOrderFindsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	for n := uint64(1); n <= 20; n++ {
		s.task(1, tocsin.Pending, 30*time.Second, n)
		s.task(2, tocsin.Pending, time.Hour, n)
		s.task(1, tocsin.Done, time.Hour, n+100)
		s.task(1, tocsin.Dead, 3*time.Hour, n+200)
	}
	r, err := s.audit(nil)
	if err != nil || len(r.Findings) != 0 || r.Tables != 4 || r.Cost.Rows != 60 || r.Cost.Statements != len(store.AuditStatuses)+2*2 || r.Cost.Busy <= 0 || r.Cost.Took < r.Cost.Busy {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := s.audit(func(c *AuditConfig) { c.Settled = All }); err != nil || r.Cost.Rows != 80 {
		t.Errorf("all: %+v, %v", r, err)
	}
}

func TestAuditPrintsWhatDoesNotFitByTableAndType(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	var of1 []uint64 // biz_ids of table 1
	for n := uint64(1); len(of1) < 1200; n++ {
		if s.layout.TableOf(n) == 1 {
			of1 = append(of1, n)
		}
	}
	s.task(1, tocsin.Pending, time.Hour, of1...) // more than a page
	s.task(7, tocsin.Pending, 0, of1[0])
	s.exec("UPDATE " + s.layout.Table(1) + " SET crashes = 5 WHERE biz_type = 1 ORDER BY job_id LIMIT 2")
	s.task(1, tocsin.Done, 0, of1[3]+100000)
	s.task(1, tocsin.Done, 5*time.Hour, of1[3]+100001) // long settled, so not read
	s.exec("UPDATE " + s.layout.Table(s.layout.TableOf(of1[3]+100001)) + " SET gmt_create = gmt_modified + INTERVAL 1 DAY WHERE action_time < UTC_TIMESTAMP(3) - INTERVAL 4 HOUR")
	r, err := s.audit(nil)
	if err != nil || r.Cost.Rows != 1202 {
		t.Errorf("%+v, %v", r.Cost, err)
	}
	first := func(kind int, n int) (ids []tocsin.JobID) {
		for _, bizID := range of1[:n] {
			ids = append(ids, tocsin.JobID(bizID<<22|1<<9|uint64(kind)))
		}
		return ids
	}
	table := s.layout.Table(1)
	want := []Finding{
		{table, "order.close", "overdue", 1200, first(1, 3), nil},
		{table, "order.close", "too_many_crashes", 2, first(1, 2), nil},
		{table, "#7", "unknown_type", 1, first(7, 1), nil},
	}
	for i := range r.Findings { // which rows stand for them is the server's choice
		if len(r.Findings[i].Examples) != len(want[i].Examples) {
			t.Errorf("examples of %+v", r.Findings[i])
		}
		r.Findings[i].Examples = want[i].Examples
	}
	if !reflect.DeepEqual(r.Findings, want) || !reflect.DeepEqual(r.Faults, map[string]int{"overdue": 1200, "too_many_crashes": 2, "unknown_type": 1}) {
		t.Errorf("got  %+v\nwant %+v\n%v", r.Findings, want, r.Faults)
	}
	if r, err := s.audit(func(c *AuditConfig) { c.Grace, c.Settled = 2*time.Hour, All }); err != nil || r.Faults["overdue"] != 0 || r.Faults["created_after"] != 1 {
		t.Errorf("with more grace, and all: %+v, %v", r.Faults, err)
	}
}

func TestAuditGoesRoundWhatItCannotRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	s.exec("DROP TABLE " + s.layout.Table(2))
	down := openSite(t, tocsin.Config{Layout: s.layout, Servers: []tocsin.Server{
		{Name: "db1", DSN: devtest.DSN(t), Databases: []int{1}}, {Name: "db2", DSN: "root@tcp(127.0.0.1:1)/", Databases: []int{0}},
	}})
	r, err := down.audit(nil)
	if err == nil || !strings.Contains(err.Error(), s.layout.Table(2)) || !strings.Contains(err.Error(), "db2") {
		t.Errorf("error %v", err)
	}
	if r.Tables != 1 || !reflect.DeepEqual(r.Failed, []string{"db1", "db2"}) {
		t.Errorf("%+v", r)
	}
	m, err := Against(t.Context(), down.store, auditPolicies, "order.close", each(slices.Collect(upTo(1000))))
	if err == nil || len(m.BizIDs) == 0 || m.Unread == 0 || len(m.BizIDs)+m.Unread != 1000 {
		t.Errorf("%d missing, %d unread, %v", len(m.BizIDs), m.Unread, err)
	}
}

func each(bizIDs []uint64) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		for _, n := range bizIDs {
			if !yield(n, nil) {
				return
			}
		}
	}
}

func upTo(n uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for i := uint64(1); i <= n && yield(i); i++ {
		}
	}
}

func TestAgainstListsBizIDsWithoutATask(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	ids := slices.Collect(upTo(12_345)) // more than are taken in hand at once
	s.task(1, tocsin.Pending, 0, ids[:50]...)
	s.task(1, tocsin.Done, 999*time.Hour, 51, 52)
	s.task(2, tocsin.Pending, 0, 60)
	m, err := Against(t.Context(), s.store, auditPolicies, "order.close", each(append(ids, 60, 1)))
	if err != nil || m.Asked != 12_347 || m.Unread != 0 || !slices.Equal(m.BizIDs, ids[52:]) {
		t.Errorf("asked %d, %d missing, %d unread, %v", m.Asked, len(m.BizIDs), m.Unread, err)
	}
	if _, err := Against(t.Context(), s.store, auditPolicies, "unheard", each(nil)); err == nil || !strings.Contains(err.Error(), `unknown biz type "unheard"`) {
		t.Errorf("%v", err)
	}
	bad := errors.New("line 2")
	_, err = Against(t.Context(), s.store, auditPolicies, "held", func(yield func(uint64, error) bool) { _ = yield(1, nil) && yield(0, bad) })
	if !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
}
