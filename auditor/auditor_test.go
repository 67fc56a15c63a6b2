package auditor

import (
	"database/sql"
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
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/store"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// small is enough for most tests.
var small = tocsin.Layout{Databases: 2, Tables: 2}

// site is a cluster of its own, with a pool beside the store.
type site struct {
	t      testing.TB
	layout tocsin.Layout
	store  *store.Store
	db     *sql.DB
}

func newSite(t testing.TB, layout tocsin.Layout) *site {
	t.Helper()
	layout.Prefix = devtest.Prefix(t)
	cfg := tocsin.Config{Layout: layout, Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}}}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{Cluster: "test"}); err != nil {
		t.Fatal(err)
	}
	return openSite(t, cfg)
}

func openSite(t testing.TB, cfg tocsin.Config) *site {
	t.Helper()
	s := &site{t: t, layout: cfg.Layout}
	var err error
	if s.store, err = store.Open(cfg); err != nil {
		t.Fatal(err)
	}
	if s.db, err = sql.Open("mysql", devtest.DSN(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = s.db.Close(), s.store.Close() })
	return s
}

func (s *site) exec(query string) {
	s.t.Helper()
	if _, err := s.db.Exec(query); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

// add puts one task in order for each biz_id, with changes.
func (s *site) add(kind int, status tocsin.Status, ago time.Duration, bizIDs ...uint64) {
	s.t.Helper()
	for _, bizID := range bizIDs {
		table := s.layout.TableOf(bizID)
		at := fmt.Sprintf("UTC_TIMESTAMP(3) - INTERVAL %d SECOND", int(ago.Seconds()))
		s.exec(fmt.Sprintf("INSERT INTO %s (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute) VALUES (%d, %s, %s, %d, %d, %d, %s, %s, '')",
			s.layout.Table(table), bizID<<22|uint64(table)<<9|uint64(kind), at, at, bizID, kind, status, at, at))
	}
}

func (s *site) auditor(change func(*Config)) *Auditor {
	s.t.Helper()
	cfg := Config{
		Tables: s.store, Now: s.store.Now, Servers: s.store.Servers(), TablesOf: s.store.TablesOf, ServerOf: s.store.ServerOf, Layout: s.layout,
		Policies: []biztype.Policy{{Name: "order.close", Number: 1}, {Name: "held", Number: 2, Paused: true}},
	}
	if change != nil {
		change(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func TestAuditOfTasksInOrderFindsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, small)
	for n := uint64(1); n <= 20; n++ {
		s.add(1, tocsin.Pending, 30*time.Second, n)
		s.add(2, tocsin.Pending, time.Hour, n)
		s.add(1, tocsin.Done, time.Hour, n+100)
		s.add(1, tocsin.Dead, 3*time.Hour, n+200)
	}
	r, err := s.auditor(nil).Audit(t.Context())
	if err != nil || len(r.Findings) != 0 || r.Tables != 4 || r.Cost.Rows != 60 || r.Cost.Statements != len(store.AuditStatuses)+2*2 || r.Cost.Busy <= 0 || r.Cost.Took < r.Cost.Busy {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := s.auditor(func(c *Config) { c.Settled = All }).Audit(t.Context()); err != nil || r.Cost.Rows != 80 {
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
	s.add(1, tocsin.Pending, time.Hour, of1...) // more than a page
	s.add(7, tocsin.Pending, 0, of1[0])
	s.exec("UPDATE " + s.layout.Table(1) + " SET crashes = 5 WHERE biz_type = 1 ORDER BY job_id LIMIT 2")
	s.add(1, tocsin.Done, 0, of1[3]+100000)
	s.add(1, tocsin.Done, 5*time.Hour, of1[3]+100001) // long settled, so not read
	s.exec("UPDATE " + s.layout.Table(s.layout.TableOf(of1[3]+100001)) + " SET gmt_create = gmt_modified + INTERVAL 1 DAY WHERE action_time < UTC_TIMESTAMP(3) - INTERVAL 4 HOUR")
	r, err := s.auditor(nil).Audit(t.Context())
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
	if r, err := s.auditor(func(c *Config) { c.Grace, c.Settled = 2*time.Hour, All }).Audit(t.Context()); err != nil || r.Faults["overdue"] != 0 || r.Faults["created_after"] != 1 {
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
	r, err := down.auditor(nil).Audit(t.Context())
	if err == nil || !strings.Contains(err.Error(), s.layout.Table(2)) || !strings.Contains(err.Error(), "db2") {
		t.Errorf("error %v", err)
	}
	if r.Tables != 1 || !reflect.DeepEqual(r.Failed, []string{"db1", "db2"}) {
		t.Errorf("%+v", r)
	}
	m, err := down.auditor(nil).Against(t.Context(), "order.close", each(slices.Collect(upTo(1000))))
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
	s.add(1, tocsin.Pending, 0, ids[:50]...)
	s.add(1, tocsin.Done, 999*time.Hour, 51, 52)
	s.add(2, tocsin.Pending, 0, 60)
	m, err := s.auditor(nil).Against(t.Context(), "order.close", each(append(ids, 60, 1)))
	if err != nil || m.Asked != 12_347 || m.Unread != 0 || !slices.Equal(m.BizIDs, ids[52:]) {
		t.Errorf("asked %d, %d missing, %d unread, %v", m.Asked, len(m.BizIDs), m.Unread, err)
	}
	if _, err := s.auditor(nil).Against(t.Context(), "unheard", each(nil)); err == nil || !strings.Contains(err.Error(), `unknown biz type "unheard"`) {
		t.Errorf("%v", err)
	}
	bad := errors.New("line 2")
	_, err = s.auditor(nil).Against(t.Context(), "held", func(yield func(uint64, error) bool) { _ = yield(1, nil) && yield(0, bad) })
	if !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
}
