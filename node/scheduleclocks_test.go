package node_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/schedule"
)

// twoClocks is a cluster of two servers, one two minutes ahead of this machine and one two minutes behind.
type twoClocks struct {
	*planned
	pools []*sql.DB // by database number
	early atomic.Int32
	late  chan time.Duration // of tasks of no schedule
}

// onClocks makes the cluster of a place that is not made yet.
func onClocks(t *testing.T, p place, dsns ...string) *twoClocks {
	t.Helper()
	s := &twoClocks{late: make(chan time.Duration, 100)}
	p.cfg.Servers = nil
	for i, dsn := range dsns {
		p.cfg.Servers = append(p.cfg.Servers, tocsin.Server{Name: fmt.Sprint("db", i), DSN: dsn, Databases: []int{i}})
		s.pools = append(s.pools, openDB(t, dsn))
	}
	p = p.made(t, closePolicy())
	timers, err := schedule.Open(t.Context(), p.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = timers.Close() })
	s.planned = &planned{hourly: &hourly{T: t, p: p}, Schedules: timers, seen: map[string][]time.Time{}}
	return s
}

// handlers record, and count what is early by the clock of its own server.
func (s *twoClocks) handlers() *node.Handlers {
	h := s.planned.handlers()
	h.Use(func(next node.HandlerFunc) node.HandlerFunc {
		return func(ctx context.Context, tasks []tocsin.Info) []error {
			for _, task := range tasks {
				now := clockOf(s.T, s.pools[s.database(task.JobID.Table())])
				if now.Before(task.FireTime) {
					s.early.Add(1)
				}
				if task.Schedule == "" {
					s.late <- now.Sub(task.ActionTime)
				}
			}
			return next(ctx, tasks)
		}
	})
	return h
}

func (s *twoClocks) database(table int) int { return s.p.cfg.Layout.DatabaseOf(table) }

// tasks adds tasks that are due in a while, and at a time of their server's clock.
func (s *twoClocks) tasks(database int) {
	s.Helper()
	for i := range 20 {
		id := s.p.bizIDIn(database, i)
		add(s.T, s.p, orderClose.New(id, order{7}, tocsin.In(time.Duration(i)*50*time.Millisecond)))
		add(s.T, s.p, orderClose.New(id, order{7}, tocsin.At(clockOf(s.T, s.pools[database]).Add(time.Duration(i)*77777*time.Microsecond))))
	}
	for range 40 {
		if late := receive(s.T, s.late, "a delivery"); late < 0 || late > time.Minute {
			s.Errorf("delivered %s after its time by the server's clock", late)
		}
	}
}

// beat creates a schedule of each second in a database.
func (s *twoClocks) beat(name string, database int, overlap schedule.Overlap) schedule.Schedule {
	s.Helper()
	return s.create(schedule.Definition{Name: name, BizID: s.p.bizIDIn(database, 0), Cron: "@every 1s", Overlap: overlap})
}

// all waits until the fire times of so many seconds after a time were delivered.
func (s *twoClocks) all(name string, after time.Time, seconds int) {
	s.Helper()
	until(s.T, "all fire times of "+name, func() bool {
		got := s.delivered(name)
		for i := range seconds {
			want := after.Add(time.Duration(i+1) * time.Second)
			if !slices.ContainsFunc(got, want.Equal) {
				return false
			}
		}
		return true
	})
}

// nextIsRight holds the next fire time against the clock of the schedule's server.
func (s *twoClocks) nextIsRight(name string, database int) {
	s.Helper()
	from := clockOf(s.T, s.pools[database])
	next, err := s.Next(s.Context(), name, 1)
	if err != nil {
		s.Fatal(err)
	}
	if to := clockOf(s.T, s.pools[database]).Add(time.Second); next[0].Time.Before(from.Truncate(time.Millisecond)) || next[0].Time.After(to) {
		s.Errorf("the next fire time of %s is %s, want one between %s and %s", name, next[0].Time, from, to)
	}
}

// TestTasksAndFireTimesByClocksThatAreMinutesOff: the clock of the server that holds a task or schedule counts, whatever the clocks
// of other servers, of nodes and of commands say. Each fire time is delivered once, and none early, over an edit, a deactivation
// and an activation.
func TestTasksAndFireTimesByClocksThatAreMinutesOff(t *testing.T) {
	t.Parallel()
	ahead, behind := devtest.WrongClock(t, 2*time.Minute).DSN(), devtest.WrongClock(t, -2*time.Minute).DSN()
	for ownership, kind := range map[string]place{
		"etcd": {etcd: node.EtcdConfig{Endpoints: []string{devtest.Etcd(t)}}}, "rows": {ownership: node.ByRows},
	} {
		t.Run(ownership, func(t *testing.T) {
			t.Parallel()
			p := unmade(t, 2)
			p.etcd, p.ownership = kind.etcd, kind.ownership
			s := onClocks(t, p, ahead, behind)
			for database, want := range []time.Duration{2 * time.Minute, -2 * time.Minute} {
				if off := time.Until(clockOf(t, s.pools[database])); (off - want).Abs() > 10*time.Second {
					t.Fatalf("the clock of server db%d is off by %s, want %s: with right clocks this test proves nothing", database, off, want)
				}
			}
			run(t, s.p.config("orders"), s.handlers())
			s.changes("ahead", "behind")
			for database, name := range []string{"by.hand.ahead", "by.hand.behind"} {
				s.beat(name, database, schedule.OverlapQueue)
				if _, err := s.RunNow(t.Context(), name); err != nil {
					t.Fatal(err)
				}
				until(t, "the run by hand of "+name, func() bool { return slices.ContainsFunc(s.delivered(name), time.Time.IsZero) })
			}
			if n := s.early.Load(); n > 0 {
				t.Errorf("%d were early", n)
			}
		})
	}
}

// changes edits, deactivates and activates schedules of the databases between their runs.
func (s *twoClocks) changes(names ...string) {
	s.Helper()
	first, back, since := make([]schedule.Schedule, len(names)), make([]schedule.Schedule, len(names)), make([]time.Time, len(names))
	for database, name := range names {
		first[database] = s.beat(name, database, schedule.OverlapAllow)
		if off := first[database].Anchor.Sub(clockOf(s.T, s.pools[database])).Abs(); off > time.Minute {
			s.Fatalf("%s began %s from its server's time", name, off)
		}
		s.tasks(database)
	}
	for database, name := range names {
		s.all(name, first[database].Anchor, 2)
		edited := first[database].Definition
		edited.Payload = `{"id":8}`
		if after, err := s.Update(s.Context(), edited, 0); err != nil || after.Revision != 2 {
			s.Fatalf("%+v, %v", after, err)
		}
		s.nextIsRight(name, database)
	}
	for database, name := range names {
		s.all(name, first[database].Anchor, int(clockOf(s.T, s.pools[database]).Sub(first[database].Anchor).Seconds())+3)
		_, changed, err := s.Deactivate(s.Context(), name)
		if err != nil || !changed {
			s.Fatal(changed, err)
		}
		since[database] = clockOf(s.T, s.pools[database]) // a run that began while the change waited was not too many
		back[database], changed, err = s.Activate(s.Context(), name)
		if err != nil || !changed {
			s.Fatal(changed, err)
		}
		s.nextIsRight(name, database)
	}
	for database, name := range names {
		s.all(name, back[database].Anchor, 3)
		got := s.delivered(name)
		slices.SortFunc(got, time.Time.Compare)
		for i, f := range got {
			if i > 0 && f.Equal(got[i-1]) {
				s.Errorf("%s: %s was delivered twice", name, f)
			}
			if f.After(since[database]) && !f.After(back[database].Anchor) {
				s.Errorf("%s: %s was delivered, when the schedule was inactive from %s to %s", name, f, since[database], back[database].Anchor)
			}
		}
	}
}
