package operator_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/schedule"
)

// paged is one table of each kind, filled with rows of the same time, biz_id, task and schedule.
const paged = 10_000

// shelf is what reads them.
type shelf struct {
	*testing.T
	cfg       tocsin.Config
	client    *tocsin.Client
	operator  *operator.Operator
	store     *store.Store
	schedules *schedule.Schedules
	at        int64 // Unix ms, of all of them
}

// rowID names a row: they are numbered from 0 on.
func rowID(n int) tocsin.JobID { return tocsin.JobID(n+1) << 22 }

// fill stores the rows. {n} numbers them.
func (s *shelf) fill(db *sql.DB) {
	s.Helper()
	database, at := s.cfg.Layout.Database(0), "'"+time.UnixMilli(s.at).UTC().Format(time.DateTime)+"'"
	for _, statement := range []string{
		"INSERT INTO {task} (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute)" +
			" SELECT (n + 1) << 22, {at}, {at}, 7, 1, 4, {at}, {at}, 'x' FROM {n}",
		"INSERT INTO {task} (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute, dedup_key)" +
			" SELECT (n + 1) << 22 | 1, {at}, {at}, 8, 2, 4, {at}, {at}, 'x', LPAD(n, 6, '0') FROM {n}",
		"INSERT INTO {db}.run (run_id, job_id, schedule_id, biz_type, version, attempt, node, started, lateness_ms, duration_ms, outcome)" +
			" SELECT n + 1, 1 << 22, 2 << 22, 1, 0, 1, 'n', {at}, 0, 1, 'completed' FROM {n}",
		"INSERT INTO {db}.act SELECT n + 1, 'p', 'api', 'o', 'x', '', 'ok' FROM {n}",
		"INSERT INTO {db}.doorbell (id, table_no, job_id, biz_type, action_time) SELECT n + 1, 0, n, 1, {at} FROM {n}",
		"INSERT INTO {db}.relayed (outbox, id, created, job_id, gmt_create) SELECT 'o', n + 1, {at}, n + 1, {at} FROM {n}",
		"INSERT INTO {db}.schedule (schedule_id, gmt_create, gmt_modified, name, table_no, biz_type, biz_id, cron, zone, start_within_ms, missed, missed_most, overlap, state," +
			" revision, anchor, made_until, next_fire, attribute) SELECT (n + 1) << 22, {at}, {at}, CONCAT('s', LPAD(n, 6, '0')), 0, 1, 7, '@daily', 'UTC', 1, 'skip', 1, 'skip', 'active'," +
			" 1, {at}, {at}, {at}, '' FROM {n}",
	} {
		statement = strings.NewReplacer("{task}", s.cfg.Layout.Table(0), "{db}", database, "{at}", at,
			"{n}", "(SELECT ones.n + 100 * hundreds.n AS n FROM "+digits("ones")+", "+digits("hundreds")+") AS numbers").Replace(statement)
		if _, err := db.ExecContext(s.Context(), statement); err != nil {
			s.Fatalf("%s: %v", statement, err)
		}
	}
}

// analyse has the server count the rows: those of tables that are in use it has never counted.
func (s *shelf) analyse(db *sql.DB) {
	s.Helper()
	for _, table := range []string{s.cfg.Layout.TableName(0), "run", "act", "doorbell", "relayed", "schedule"} {
		if _, err := db.ExecContext(s.Context(), "ANALYZE TABLE "+s.cfg.Layout.Database(0)+"."+table); err != nil {
			s.Fatal(err)
		}
	}
}

// digits is a table of the numbers below 100.
func digits(name string) string {
	all := make([]string, 100)
	for n := range all {
		all[n] = fmt.Sprint("SELECT ", n, " AS n")
	}
	return "(" + strings.Join(all, " UNION ALL ") + ") AS " + name
}

// pages reads a page of 100 behind row n of each list that is read page by page, and returns how many rows it had.
func (s *shelf) pages() map[string]func(ctx context.Context, n int) (int, error) {
	list := func(q tocsin.ListQuery, after func(n int) *tocsin.ListPlace) func(context.Context, int) (int, error) {
		return func(ctx context.Context, n int) (int, error) {
			q := q
			q.After, q.Limit = after(n), 100
			found, _, err := s.client.ListPage(ctx, q)
			return len(found), err
		}
	}
	find := func(sees ...string) func(context.Context, int) (int, error) {
		return func(ctx context.Context, n int) (int, error) {
			q := operator.Query{Status: tocsin.Dead, Limit: 100, After: &operator.Place{ActionTime: time.UnixMilli(s.at), Type: 2, JobID: rowID(paged-n) | 1}}
			if len(sees) > 0 {
				q.Sees = func(name string) bool { return strings.Contains(strings.Join(sees, " "), name) }
			}
			page, err := s.operator.FindPage(ctx, q)
			return len(page.Tasks), err
		}
	}
	all := s.engines()
	maps.Copy(all, map[string]func(context.Context, int) (int, error){
		"tasks of a biz_id without keys": list(tocsin.ListQuery{BizID: 7}, func(n int) *tocsin.ListPlace { return &tocsin.ListPlace{Type: 1, JobID: rowID(n)} }),
		"tasks of a biz_id with keys": list(tocsin.ListQuery{BizID: 8}, func(n int) *tocsin.ListPlace {
			return &tocsin.ListPlace{Type: 2, JobID: rowID(n) | 1, DedupKey: fmt.Appendf(nil, "%06d", n)}
		}),
		"tasks in a status":          find(),
		"tasks of one biz type":      find(remind.Name()),
		"tasks of several biz types": find(remind.Name(), closing.Name()),
	})
	return all
}

// listed reads a page of schedules.
func (s *shelf) listed(q schedule.Query) func(context.Context, int) (int, error) {
	return func(ctx context.Context, n int) (int, error) {
		q := q
		q.Limit = 100
		page, err := s.schedules.Page(ctx, q, schedule.Place{Name: fmt.Sprintf("s%06d", n), Fire: time.UnixMilli(s.at).UTC(), ID: rowID(n)})
		return len(page.Schedules), err
	}
}

func (s *shelf) behind(n int) duequeue.Entry {
	return duequeue.Entry{JobID: rowID(n), Type: 1, Due: s.at}
}

// engines are the lists that no client of the package tocsin reads.
func (s *shelf) engines() map[string]func(ctx context.Context, n int) (int, error) {
	peek := func(q store.PeekQuery) func(context.Context, int) (int, error) {
		return func(ctx context.Context, n int) (int, error) {
			q := q
			q.Status, q.Tables, q.Until, q.After, q.Limit = tocsin.Dead, []int{0}, s.at, s.behind(n), 100
			page, err := s.store.Peek(ctx, q)
			return len(page.Entries), err
		}
	}
	runs := func(q store.RunsQuery) func(context.Context, int) (int, error) {
		return func(ctx context.Context, n int) (int, error) {
			q := q
			q.Before, q.Limit = uint64(paged-n), 100
			found, err := s.store.Runs(ctx, q)
			return len(found), err
		}
	}
	rest := store.AuditRest{Limit: 100, Types: []uint64{1}}
	return map[string]func(context.Context, int) (int, error){
		"entries of one biz type":      peek(store.PeekQuery{Types: []uint64{1}}),
		"entries of several biz types": peek(store.PeekQuery{Types: []uint64{1, 2, 3}}),
		"entries of any biz type":      peek(store.PeekQuery{Any: true}),
		"runs of a task":               runs(store.RunsQuery{JobID: 1 << 22}),
		"runs of a schedule":           runs(store.RunsQuery{Schedule: 2 << 22}),
		"schedules by name":            s.listed(schedule.Query{}),
		"schedules by next fire time":  s.listed(schedule.Query{ByNext: true}),
		"schedules in an audit": func(ctx context.Context, n int) (int, error) {
			rest := rest
			rest.Place = uint64(rowID(n))
			page, _, err := s.store.AuditSchedules(ctx, rest)
			return page.Rows, err
		},
		"runs in an audit": func(ctx context.Context, n int) (int, error) {
			rest := rest
			rest.Place = uint64(paged - n)
			page, _, err := s.store.AuditRuns(ctx, rest)
			return page.Rows, err
		},
		"tasks in an audit": func(ctx context.Context, n int) (int, error) {
			page, err := s.store.Audit(ctx, store.AuditQuery{Tables: []int{0}, Status: tocsin.Dead, After: s.behind(n), Limit: 100, Types: []uint64{1, 2}})
			return page.Rows, err
		},
		"rows of the ledger": func(ctx context.Context, n int) (int, error) {
			found, err := s.store.Relayed(ctx, 0, store.RelayedKey{Outbox: "o", ID: uint64(n)}, 100)
			return len(found), err
		},
		"acts": func(ctx context.Context, n int) (int, error) {
			page, err := s.store.Acts(ctx, 0, uint64(paged-n), 100)
			return len(page.Acts), err
		},
		"old runs": func(ctx context.Context, n int) (int, error) {
			done, err := s.store.PurgeRuns(ctx, store.RunsPage{After: uint64(n), Limit: 100, Until: s.at + 1}, []store.Kept{{Types: []uint64{1}, Since: s.at + 1}}, true)
			return done.Removed, err
		},
		"old bells": func(ctx context.Context, n int) (int, error) {
			_, _, err := s.store.PurgeBells(ctx, 0, 0, uint64(n), 1, 100)
			return 100, err
		},
	}
}

// Rows that are passed over within InnoDB are in no counter unless index conditions are tested above it. Not parallel: the counters are the server's.
func TestAPageCostsTheSameEverywhere(t *testing.T) {
	db, err := sql.Open("mysql", devtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	examined := devtest.Examined(t, db)
	layout := tocsin.Layout{Databases: 1, Tables: 1, Prefix: devtest.Prefix(t)}
	s := shelf{T: t, at: time.Now().Add(-time.Hour).Truncate(time.Second).UnixMilli(), cfg: tocsin.Config{
		Layout: layout, Cluster: layout.Prefix, Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0}}},
	}}
	s.open()
	s.fill(db)
	s.sameEverywhere("never analysed", examined)
	s.analyse(db)
	s.sameEverywhere("analysed", examined)
}

func (s *shelf) sameEverywhere(state string, examined func(func()) int) {
	s.Helper()
	for name, page := range s.pages() {
		var cost []int
		for _, n := range []int{100, paged / 2, paged - 200} {
			rows, err := 0, error(nil)
			cost = append(cost, examined(func() { rows, err = page(s.Context(), n) }))
			if err != nil || rows < 98 || rows > 100 {
				s.Errorf("%s, %s: %d rows behind row %d, %v", name, state, rows, n, err)
			}
		}
		if most := 2*cost[0] + 20; cost[1] > most || cost[2] > most || cost[0] > 2500 {
			s.Errorf("%s, %s: the first, the middle and the last page examine %d rows", name, state, cost)
		}
	}
}

// open makes the tables, and opens what reads them.
func (s *shelf) open() {
	s.Helper()
	if _, err := ddl.Apply(s.Context(), s.cfg, ddl.Options{Cluster: s.cfg.Cluster}); err != nil {
		s.Fatal(err)
	}
	policies := []biztype.Policy{{Name: closing.Name(), Number: 1, Group: "orders"}, {Name: remind.Name(), Number: 2, Group: "orders"}, {Name: "order.none", Number: 3, Group: "orders"}}
	if _, err := biztype.Apply(s.Context(), s.cfg, policies); err != nil {
		s.Fatal(err)
	}
	var err error
	if s.client, err = tocsin.Open(s.Context(), s.cfg); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = s.client.Close() })
	if s.operator, err = operator.Open(s.Context(), s.cfg); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = s.operator.Close() })
	if s.store, err = store.Open(s.cfg); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = s.store.Close() })
	if s.schedules, err = schedule.Open(s.Context(), s.cfg); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = s.schedules.Close() })
}
