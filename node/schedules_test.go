package node_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/schedule"
)

// planned is a cluster with schedules, whose deliveries are recorded.
type planned struct {
	*hourly // for its database
	*schedule.Schedules

	mu   sync.Mutex
	seen map[string][]time.Time // fire times that were delivered, by schedule
}

func newPlanned(t *testing.T, p place) *planned {
	t.Helper()
	s, err := schedule.Open(t.Context(), p.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &planned{hourly: newHourly(t, p), Schedules: s, seen: map[string][]time.Time{}}
}

// handlers record.
func (s *planned) handlers() *node.Handlers {
	h := &node.Handlers{}
	node.Handle(h, orderClose, func(_ context.Context, task *tocsin.Task[order]) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen[task.Schedule] = append(s.seen[task.Schedule], task.FireTime)
		return nil
	})
	return h
}

func (s *planned) delivered(name string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen[name])
}

// create makes a schedule of orders.
func (s *planned) create(d schedule.Definition) schedule.Schedule {
	s.Helper()
	d.BizType, d.Payload = "order.close", `{"id":7}`
	one, err := s.Create(s.Context(), d)
	if err != nil {
		s.Fatal(err)
	}
	return one
}

func (s *planned) get(name string) schedule.Schedule {
	s.Helper()
	one, err := s.Get(s.Context(), name)
	if err != nil {
		s.Fatal(err)
	}
	return one
}

// stop undoes what was made of a schedule since an hour and 30 s ago: nothing has run since. Its latest fire time, one a minute,
// was 30 s ago, and the next one is in 30 s.
func (s *planned) stop(one schedule.Schedule) {
	s.Helper()
	layout := s.p.cfg.Layout
	from, until := ids.RunKeys(uint64(one.ID))
	s.exec("DELETE FROM "+layout.Table(one.Table)+" WHERE dedup_key >= ? AND dedup_key < ?", []byte(from), []byte(until))
	s.exec("UPDATE "+layout.Database(layout.DatabaseOf(one.Table))+".schedule SET anchor = UTC_TIMESTAMP(3) - INTERVAL 3630 SECOND, "+
		"made_until = anchor, next_fire = anchor + INTERVAL 60 SECOND WHERE schedule_id = ?", uint64(one.ID))
}

// TestAllNodesWereStoppedForAnHour: what each policy for missed runs makes of that, with its bound.
func TestAllNodesWereStoppedForAnHour(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		s := newPlanned(t, p)
		policies := map[string]struct {
			missed schedule.Missed
			most   int
			want   int
		}{
			"skip":  {schedule.MissedSkip, 0, 0},
			"once":  {schedule.MissedOnce, 0, 1},
			"all":   {schedule.MissedAll, 0, 60}, // the default bound is 100
			"seven": {schedule.MissedAll, 7, 7},
			"alone": {schedule.MissedOnce, 0, 1},
		}
		for name, c := range policies {
			d := schedule.Definition{Name: name, Cron: "@every 1m", StartWithin: seconds(20), Missed: c.missed, MissedMost: c.most}
			if name == "alone" {
				d.Overlap = schedule.OverlapSkip
			}
			s.stop(s.create(d))
		}
		_, stop := run(t, p.config("orders"), s.handlers())
		for name, c := range policies {
			until(t, name+" to be made", func() bool {
				return s.get(name).NextFire.After(time.Now()) && len(s.delivered(name)) >= c.want
			})
		}
		stop()
		for name, c := range policies {
			one, got := s.get(name), s.delivered(name)
			got = slices.DeleteFunc(got, func(f time.Time) bool { return f.After(one.Anchor.Add(61 * time.Minute)) }) // of now
			slices.SortFunc(got, time.Time.Compare)
			if len(got) != c.want || one.PassedOver != uint64(60-c.want) {
				t.Errorf("%s: %d runs are delivered and %d fire times passed over, want %d and %d", name, len(got), one.PassedOver, c.want, 60-c.want)
			}
			for i, f := range got { // the latest ones
				if want := one.Anchor.Add(time.Duration(60-len(got)+i+1) * time.Minute); !f.Equal(want) {
					t.Errorf("%s: delivered %s, want %s", name, f, want)
				}
			}
		}
	})
}

// TestFireTimesAcrossARestart: none is lost, none comes twice, and none early.
func TestFireTimesAcrossARestart(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		s := newPlanned(t, p)
		one := s.create(schedule.Definition{Name: "beat", Cron: "@every 1s"})
		var early atomic.Int32
		h := s.handlers()
		h.Use(func(next node.HandlerFunc) node.HandlerFunc {
			return func(ctx context.Context, tasks []tocsin.Info) []error {
				if time.Now().Before(tasks[0].FireTime.Add(-50 * time.Millisecond)) { // the server is on this machine
					early.Add(1)
				}
				return next(ctx, tasks)
			}
		})
		for _, runs := range []int{2, 4, 6} {
			_, stop := run(t, p.config("orders"), h)
			until(t, "runs", func() bool { return len(s.delivered("beat")) >= runs })
			stop()
		}
		got := s.delivered("beat")
		slices.SortFunc(got, time.Time.Compare)
		for i, f := range got {
			if want := one.Anchor.Add(time.Duration(i+1) * time.Second); !f.Equal(want) {
				t.Fatalf("delivery %d is for %s, want %s", i, f, want)
			}
		}
		if n := early.Load(); n > 0 {
			t.Errorf("%d were early", n)
		}
	})
}

// TestANewOwnerMakesTheRunsOfItsTables, and leaves those of others alone.
func TestANewOwnerMakesTheRunsOfItsTables(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	s := newPlanned(t, p)
	first, stopFirst := run(t, named(p.config("orders"), "a"), s.handlers())
	awaitOwned(t, first, 8)
	var all []schedule.Schedule
	for i := range 24 {
		all = append(all, s.create(schedule.Definition{Name: string(rune('a' + i)), Cron: "@every 1m", StartWithin: seconds(20), Missed: schedule.MissedSkip}))
	}
	made := func() (n int) {
		for _, one := range all {
			if s.get(one.Name).PassedOver > 0 {
				n++
			}
		}
		return n
	}
	until(t, "the passes that follow the last table, after which the next is minutes away", func() bool {
		for _, one := range all {
			s.hourly.exec("UPDATE "+p.cfg.Layout.Database(p.cfg.Layout.DatabaseOf(one.Table))+".schedule SET made_until = UTC_TIMESTAMP(3) - INTERVAL 1 HOUR, "+
				"next_fire = UTC_TIMESTAMP(3) - INTERVAL 59 MINUTE, passed_over = 0 WHERE schedule_id = ?", uint64(one.ID))
		}
		<-time.After(2 * time.Second) // a pass begins within a second of a new table
		return made() == 0
	})
	second, _ := run(t, named(p.config("orders"), "b"), s.handlers())
	awaitOwned(t, second, 4)
	until(t, "the runs of some", func() bool { return made() > 0 })
	stopFirst()
	until(t, "the runs of all", func() bool { return made() == len(all) })
}

// named gives a config another name.
func named(cfg node.Config, name string) node.Config {
	cfg.Name = name
	return cfg
}

func seconds(n int) biztype.Duration { return biztype.Duration(time.Duration(n) * time.Second) }

// TestASweepMakesOverdueRuns, if no node does, and delivers them, or the next sweep does: it makes them while it walks.
func TestASweepMakesOverdueRuns(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	s := newPlanned(t, p)
	s.stop(s.create(schedule.Definition{Name: "late", Cron: "@every 1m", StartWithin: seconds(20)}))
	sweeper := newSweeper(t, p.sweepConfig(), s.handlers())
	if result, err := sweeper.DryRun(t.Context()); err != nil || result.Made != 0 {
		t.Errorf("a dry run: %s, %v", result, err)
	}
	result, err := sweeper.Sweep(t.Context())
	if err != nil || result.Made == 0 || result.Made != int(s.get("late").Made-20) { // 20 of the creation
		t.Errorf("%s, %v, the schedule is %+v", result, err, s.get("late"))
	}
	if result.Upkeep["runs_made"] != result.Made || result.Upkeep["times_passed_over"] != int(s.get("late").PassedOver) || result.Upkeep["schedules_failed"] != 0 {
		t.Errorf("beside delivering: %v", result.Upkeep)
	}
	next, err := sweeper.Sweep(t.Context())
	if recorded, delivered := result.Upkeep["runs_recorded"]+next.Upkeep["runs_recorded"], result.Delivered+next.Delivered; err != nil ||
		next.Upkeep["runs_made"] != 0 || delivered != 1 || recorded < 1 { // one for the run, and for each that it misses
		t.Errorf("%+v, %+v, %v", result, next, err)
	}
	if got := s.delivered("late"); len(got) != 1 {
		t.Errorf("delivered %v", got)
	}
}

// TestAScheduleIsPausedWhoseRunsDie: after two in a row, with its pending runs.
func TestAScheduleIsPausedWhoseRunsDie(t *testing.T) {
	t.Parallel()
	policy := closePolicy()
	policy.Attempts = 1
	s := newPlanned(t, newPlace(t, policy))
	s.create(schedule.Definition{Name: "beat", Cron: "@every 1s", PauseAfter: 2})
	var calls atomic.Int32
	run(t, s.p.config("orders"), closing(func(context.Context, *tocsin.Task[order]) error {
		calls.Add(1)
		return errors.New("no paper")
	}))
	until(t, "the pause", func() bool { return s.get("beat").State == schedule.Paused })
	one := s.get("beat")
	if n := calls.Load(); n < 2 || one.Failures < 2 || !one.NextFire.IsZero() || !strings.HasPrefix(one.Reason, "paused after 2 failures in a row at ") {
		t.Errorf("after %d deliveries it is %+v", n, one)
	}
	until(t, "no run is pending", func() bool { // one may have been in delivery
		var pending int
		err := s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+s.p.cfg.Layout.Table(one.Table)+" WHERE status = 0").Scan(&pending)
		return err == nil && pending == 0
	})
}
