package schedule

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// throughProxy is a site whose server is reached through a proxy.
func throughProxy(t *testing.T) (*site, *devtest.Proxy) {
	t.Helper()
	cfg := cluster(t)
	p, dsn := devtest.NewProxy(t, devtest.DSN(t))
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn}}
	return openSite(t, cfg), p
}

// Each change is made once, and says so, whether its commit or the answer to that got lost.
func TestALostAnswerIsFoundOut(t *testing.T) {
	t.Parallel()
	hour := time.Now().UTC().Truncate(time.Hour).Add(-time.Hour)
	for name, c := range map[string]struct {
		do       func(*site) error
		revision uint32 // then; 0: it is gone
		runs     int    // pending ones
	}{
		"create": {func(s *site) error {
			_, err := s.Create(s.t.Context(), every("new", "1m"))
			return errors.Join(err, s.Delete(s.t.Context(), "new"))
		}, 1, 20},
		"edit": {func(s *site) error {
			d := every("report", "1m")
			d.Payload = "new"
			a, err := s.Update(s.t.Context(), d, 1)
			if a.Verdict != Changed || a.Revision != 2 || len(a.Changes) != 1 {
				s.t.Errorf("%+v", a)
			}
			return err
		}, 2, 20},
		"deactivate": {func(s *site) error {
			after, changed, err := s.Deactivate(s.t.Context(), "report")
			if !changed || after.State != Inactive {
				s.t.Errorf("%t, %+v", changed, after)
			}
			return err
		}, 2, 0},
		"delete":  {func(s *site) error { return s.Delete(s.t.Context(), "report") }, 0, 0},
		"run now": {func(s *site) error { return second(s.RunNow(s.t.Context(), "report")) }, 1, 21},
		"backfill": {func(s *site) error {
			b, err := s.Backfill(s.t.Context(), "report", hour, hour.Add(5*time.Minute), false)
			if b.Made != 5 || b.There != 0 || len(b.Times) != 5 {
				s.t.Errorf("%+v", b)
			}
			return err
		}, 1, 25},
	} {
		for how, before := range map[string]bool{"the answer is lost": false, "the commit is lost": true} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				s, p := throughProxy(t)
				made := s.create(every("report", "1m"))
				p.BreakAt("\x03COMMIT", before, 1)
				if err := c.do(s); err != nil || p.Breaks() != 1 {
					t.Errorf("%v, %d connections broke", err, p.Breaks())
				}
				got, err := s.Get(t.Context(), made.Name)
				if c.revision == 0 && !errors.Is(err, ErrNotFound) || c.revision != 0 && (err != nil || got.Revision != c.revision) {
					t.Errorf("%+v, %v", got, err)
				}
				if n := len(s.pending(made)); n != c.runs {
					t.Errorf("%d runs are pending, want %d", n, c.runs)
				}
			})
		}
	}
}

func TestAChangeThatCannotBeAskedAboutIsUnknown(t *testing.T) {
	t.Parallel()
	s, p := throughProxy(t)
	s.create(every("report", "1m"))
	p.BreakAt("\x03COMMIT", false, 1)
	p.DownAtBreak()
	if _, _, err := s.Deactivate(p.EndAfterBreak(t, time.Second), "report"); !errors.Is(err, tocsin.ErrUnknownOutcome) || strings.Contains(err.Error(), "\n") {
		t.Fatal(err)
	}
	p.SetDown(false)
	if got := s.get("report"); got.State != Inactive {
		t.Errorf("%+v", got)
	}
}

// A maker whose commit gets lost makes nothing twice when it comes again.
func TestALostMakeIsRepeated(t *testing.T) {
	t.Parallel()
	for how, before := range map[string]bool{"the answer is lost": false, "the commit is lost": true} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s, p := throughProxy(t)
			made := s.create(every("each.second", "1s"))
			p.BreakAt("\x03COMMIT", before, 1)
			if _, err := s.maker.Make(t.Context(), made.ID, false); err == nil || p.Breaks() != 1 {
				t.Fatalf("%v, %d connections broke", err, p.Breaks())
			}
			s.make(made.ID)
			runs := s.pending(made)
			if once(t, runs); len(runs) != 2*MaxRuns {
				t.Errorf("%d runs", len(runs))
			}
		})
	}
}

// An edit that another one overtook while its answer was lost, and one that met a maker in between.
func TestALostEditThatAnotherFollowed(t *testing.T) {
	t.Parallel()
	s, p := throughProxy(t)
	made := s.create(every("each.second", "1s"))
	held, release := p.HoldAt("\x03COMMIT")
	changed := make(chan Applied)
	go func() {
		d := every("each.second", "1s")
		d.Payload = "mine"
		a, _ := s.Update(context.Background(), d, 0)
		changed <- a
	}()
	<-held // its row is locked
	others := make(chan Made)
	go func() {
		got, err := openSite(t, withDSN(s.cfg, devtest.DSN(t))).maker.Make(context.Background(), made.ID, false)
		if err != nil {
			t.Error(err)
		}
		others <- got
	}()
	release()
	if a := <-changed; a.Verdict != Changed || a.Revision != 2 {
		t.Errorf("%+v", a)
	}
	if got := <-others; got.Runs != MaxRuns {
		t.Errorf("%+v", got)
	}
	pending := s.pending(made)
	once(t, pending)
	mine := slices.DeleteFunc(slices.Clone(pending), func(r stored) bool { return r.Key.Revision != 2 })
	if n := len(mine); n < 2*MaxRuns-20 || mine[n-1].Payload != "mine" {
		t.Fatalf("%d runs of the edit", n)
	}
	for _, r := range pending { // those of before the edit that were due when it came are left
		if r.Key.Revision != 2 && !r.Due.Before(mine[0].Due) {
			t.Errorf("the first run of the edit is due at %s, and pending is %+v", mine[0].Due, r)
		}
	}
}

func withDSN(cfg tocsin.Config, dsn string) tocsin.Config {
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn}}
	return cfg
}

func TestAServerThatIsAwayIsNoProofThatAScheduleIs(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	p, dsn := devtest.NewProxy(t, devtest.DSN(t))
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0}}, {Name: "db2", DSN: dsn, Databases: []int{1}}}
	s := openSite(t, cfg)
	here, there := every("here", "1m"), every("there", "1m")
	here.BizID, there.BizID = s.bizID(0), s.bizID(1)
	s.create(here)
	s.create(there)
	p.SetDown(true)
	p.BreakAt("tocsin", true, 1000) // pooled connections break too
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if got, err := s.Get(ctx, "here"); err != nil || got.Name != "here" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, err := range []error{second(s.Get(ctx, "there")), second(s.Create(ctx, every("new", "1m")))} {
		if err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "db2") {
			t.Error(err)
		}
	}
	all, err := s.List(ctx, Query{Limit: 10})
	if err == nil || len(all) != 1 || all[0].Name != "here" {
		t.Errorf("%v, %v", all, err)
	}
	if due, err := s.maker.Due(ctx, 0, time.Hour, 10, nil); err != nil || len(due) != 1 {
		t.Errorf("%v, %v", due, err)
	}
	if _, err := s.maker.Due(ctx, 1, time.Hour, 10, nil); err == nil {
		t.Error("a server that is down has nothing due")
	}
}

func second[T any](_ T, err error) error { return err }

// bizID finds a biz_id of a database.
func (s *site) bizID(database int) uint64 {
	for id := uint64(1); ; id++ {
		if s.cfg.Layout.DatabaseOf(s.cfg.Layout.TableOf(id)) == database {
			return id
		}
	}
}

func TestOlderTablesHaveNoSchedules(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := s.create(every("report", "1m"))
	for db := range 2 {
		s.exec(made, "UPDATE "+s.cfg.Layout.Database(db)+".layout SET works_with = 2")
	}
	for what, err := range map[string]error{
		"create": second(s.Create(t.Context(), every("new", "1m"))), "run": second(s.RunNow(t.Context(), "report")),
		"edit": second(s.Update(t.Context(), every("report", "2m"), 0)), "make": second(s.maker.Make(t.Context(), made.ID, false)),
	} {
		if !errors.Is(err, tocsin.ErrSchema) || !strings.Contains(err.Error(), "programs for version 2 may still use") || !strings.Contains(err.Error(), "`tocsin ddl finish`") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for db := range 2 {
		s.exec(made, "UPDATE "+s.cfg.Layout.Database(db)+".layout SET schema_version = 2")
		s.exec(made, "DROP TABLE "+s.cfg.Layout.Database(db)+".schedule")
	}
	s = openSite(t, s.cfg)
	for what, err := range map[string]error{
		"get": second(s.Get(t.Context(), "report")), "list": second(s.List(t.Context(), Query{Limit: 1})), "create": second(s.Create(t.Context(), every("new", "1m"))),
	} {
		if !errors.Is(err, tocsin.ErrSchema) || !strings.Contains(err.Error(), "run `tocsin ddl apply`") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if due, err := s.maker.Due(t.Context(), 0, Step, 10, nil); err != nil || len(due) != 0 {
		t.Errorf("%v, %v", due, err)
	}
	if _, err := ddl.Apply(t.Context(), s.cfg, ddl.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ddl.Finish(t.Context(), s.cfg); err != nil {
		t.Fatal(err)
	}
	s.create(every("report", "1m"))
}
