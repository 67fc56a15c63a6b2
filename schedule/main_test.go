package schedule

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// site is a cluster of two databases of its own.
type site struct {
	*Schedules
	t   testing.TB
	cfg tocsin.Config
	db  *sql.DB
}

var policies = []biztype.Policy{{Name: "report.make", Number: 1, Group: "reports"}, {Name: "mail.send", Number: 2, Group: "reports"}}

// cluster makes the tables.
func cluster(t testing.TB) tocsin.Config {
	t.Helper()
	return apply(t, tocsin.Config{
		Layout:  tocsin.Layout{Databases: 2, Tables: 2, Prefix: devtest.Prefix(t)},
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}},
	})
}

// apply makes the tables of a config.
func apply(t testing.TB, cfg tocsin.Config) tocsin.Config {
	t.Helper()
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := biztype.Apply(t.Context(), cfg, policies); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func newSite(t testing.TB) *site {
	t.Helper()
	return openSite(t, cluster(t))
}

func openSite(t testing.TB, cfg tocsin.Config) *site {
	t.Helper()
	return openSiteOn(t, cfg, devtest.DSN(t))
}

// openSiteOn opens a site whose own statements go to a server.
func openSiteOn(t testing.TB, cfg tocsin.Config, dsn string) *site {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	db, err := sql.Open("mysql", dsn+"?parseTime=true&interpolateParams=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &site{s, t, cfg, db}
}

// every is a schedule of a period.
func every(name, period string) Definition {
	return Definition{Name: name, BizType: "report.make", Cron: "@every " + period, Payload: "p of " + name}
}

func (s *site) create(d Definition) Schedule {
	s.t.Helper()
	made, err := s.Create(s.t.Context(), d)
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

func (s *site) get(name string) Schedule {
	s.t.Helper()
	found, err := s.Get(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// apply applies one definition.
func (s *site) apply(d Definition) Applied {
	s.t.Helper()
	all, err := s.Apply(s.t.Context(), []Definition{d}, false)
	if err != nil {
		s.t.Fatal(err)
	}
	return all[0]
}

func (s *site) make(id tocsin.JobID) Made {
	s.t.Helper()
	made, err := s.maker.Make(s.t.Context(), id, false)
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// another is a maker with pools of its own, as another node has it.
func (s *site) another() *maker {
	s.t.Helper()
	tables, err := store.Connect(s.t.Context(), s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = tables.Close() })
	return &maker{tables: tables}
}

// stored is a run as it stands in its table.
type stored struct {
	ID      tocsin.JobID
	Status  tocsin.Status
	Due     time.Time
	Action  time.Time
	Key     ids.RunKey // zero: it was cancelled
	Payload string
}

// runs reads all runs of a schedule, in the order of their due times.
func (s *site) runs(of Schedule) (all []stored) {
	s.t.Helper()
	r := &row{Schedule: of}
	rows, err := s.db.QueryContext(s.t.Context(), "SELECT job_id, status, due_time, action_time, dedup_key, attribute FROM "+
		s.cfg.Layout.Table(of.Table)+" WHERE biz_id = ? AND biz_key = ? ORDER BY due_time, job_id", r.subject(), of.Key)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var one stored
		var key []byte
		if err := rows.Scan(&one.ID, &one.Status, &one.Due, &one.Action, &key, &one.Payload); err != nil {
			s.t.Fatal(err)
		}
		if key != nil {
			var ok bool
			if one.Key, ok = ids.ParseRunKey(string(key)); !ok || one.Key.Schedule != uint64(of.ID) {
				s.t.Fatalf("run %s has the key %x", one.ID, key)
			}
		}
		all = append(all, one)
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return all
}

// pending reads the pending runs.
func (s *site) pending(of Schedule) []stored {
	return slices.DeleteFunc(s.runs(of), func(r stored) bool { return r.Status != tocsin.Pending })
}

// exec runs a statement. {schedule} is the table of a schedule, {task} that of its runs.
func (s *site) exec(of Schedule, query string, args ...any) {
	s.t.Helper()
	query = strings.NewReplacer("{schedule}", s.database(of)+".schedule", "{task}", s.cfg.Layout.Table(of.Table)).Replace(query)
	if _, err := s.db.ExecContext(s.t.Context(), query, args...); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

func (s *site) database(of Schedule) string {
	return s.cfg.Layout.Database(s.cfg.Layout.DatabaseOf(of.Table))
}

// now reads the server's clock.
func (s *site) now() (now time.Time) {
	s.t.Helper()
	if err := s.db.QueryRow("SELECT UTC_TIMESTAMP(3)").Scan(&now); err != nil {
		s.t.Fatal(err)
	}
	return now
}

func (s *site) count(query string) (n int) {
	s.t.Helper()
	if err := s.db.QueryRow(query).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}
