package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// newGenerated is a site whose databases are on two servers.
func newGenerated(t *testing.T) *site {
	t.Helper()
	return newGeneratedOn(t, devtest.DSN(t), devtest.Prefix(t))
}

func newGeneratedOn(t *testing.T, dsn, prefix string) *site {
	t.Helper()
	return openSiteOn(t, apply(t, tocsin.Config{
		Layout:  tocsin.Layout{Databases: 2, Tables: 2, Prefix: prefix},
		Servers: []tocsin.Server{{Name: "db1", DSN: dsn, Databases: []int{0}}, {Name: "db2", DSN: dsn, Databases: []int{1}}},
	}), dsn)
}

// generator makes one with pools of its own.
func (s *site) generator(change func(*GeneratorConfig)) *Generator {
	s.t.Helper()
	tables := s.another().tables
	for server := range tables.Servers() {
		_, _ = tables.Measure(s.t.Context(), server) // one may be away
	}
	c := GeneratorConfig{Store: tables}
	if change != nil {
		change(&c)
	}
	return NewGenerator(c)
}

// creates makes schedules with names of their own.
func (s *site) creates(n int, cron string) {
	s.t.Helper()
	for i := range n {
		s.create(Definition{Name: fmt.Sprintf("s%d-%d", len(s.all()), i), BizType: "report.make", Cron: cron})
	}
}

func (s *site) all() []Schedule {
	s.t.Helper()
	all, err := s.List(s.t.Context(), Query{Limit: MaxListed})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// age moves all cursors back, as if nothing had been made since. Runs for later fire times go.
func (s *site) age(by time.Duration) {
	s.t.Helper()
	for _, one := range s.all() {
		s.exec(one, "UPDATE {schedule} SET anchor = anchor - INTERVAL ? SECOND, made_until = UTC_TIMESTAMP(3) - INTERVAL ? SECOND, "+
			"next_fire = UTC_TIMESTAMP(3) - INTERVAL ? SECOND WHERE schedule_id = ?", by.Seconds(), by.Seconds(), by.Seconds(), uint64(one.ID))
		s.exec(one, "DELETE FROM {task}")
	}
}

// fires returns the nominal times of a schedule's runs, ascending.
func (s *site) fires(one Schedule) (times []time.Time) {
	s.t.Helper()
	for _, r := range s.runs(one) {
		times = append(times, r.Key.Nominal())
	}
	return times
}

// TestTwoGeneratorsAtOnceMakeEachFireTimeOnce over three windows of schedules that fire each second, and others.
func TestTwoGeneratorsAtOnceMakeEachFireTimeOnce(t *testing.T) {
	t.Parallel()
	s := newGenerated(t)
	s.creates(12, "@every 1s")
	s.creates(12, "* * * * *")
	s.age(5 * time.Second)
	first := make(map[tocsin.JobID]time.Time)
	for _, one := range s.all() {
		first[one.ID] = one.MadeUntil
	}
	registry := prometheus.NewRegistry()
	a, b := s.generator(func(c *GeneratorConfig) { c.Registerer = registry }), s.generator(nil)
	ctx, stop := context.WithCancel(t.Context())
	var both sync.WaitGroup
	var told atomic.Int64 // runs that they say they made
	for _, g := range []*Generator{a, b} {
		makes := g.makeOne
		g.makeOne = func(ctx context.Context, id tocsin.JobID, noWait bool) (Made, error) {
			made, err := makes(context.WithoutCancel(ctx), id, noWait) // the end of the test loses no answer
			told.Add(int64(made.Runs))
			return made, err
		}
		both.Go(func() {
			if err := g.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	s.await("all windows", func() bool {
		return !slices.ContainsFunc(s.all(), func(one Schedule) bool { return time.Until(one.NextFire) < Step+time.Minute })
	})
	stop()
	both.Wait()
	var stored int64 // runs
	for _, one := range s.all() {
		times, err := one.Times()
		if err != nil {
			t.Fatal(err)
		}
		var want []time.Time
		for f := times.Next(first[one.ID]); !f.After(one.MadeUntil); f = times.Next(f) {
			want = append(want, f)
		}
		got := s.fires(one)
		if stored += int64(len(got)); !slices.EqualFunc(got, want, time.Time.Equal) || uint64(len(got)) < 10 {
			t.Errorf("%s: %d runs, want %d", one.Name, len(got), len(want))
		}
	}
	if told.Load() != stored {
		t.Errorf("the generators say that they made %d runs, and %d are stored", told.Load(), stored)
	}
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 6 {
		t.Errorf("%d series, %v", n, err)
	}
}

// await polls until a condition holds.
func (s *site) await(what string, holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("waited too long for %s", what)
		}
	}
}

func TestAGeneratorMakesTheRunsOfItsTablesAlone(t *testing.T) {
	t.Parallel()
	s := newGenerated(t)
	s.creates(40, "@every 1m")
	s.age(0)
	g := s.generator(func(c *GeneratorConfig) { c.Mine = func(table int) bool { return table == 1 } })
	for server := range 2 {
		if _, err := g.pass(t.Context(), server, Step); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[bool]int{}
	for _, one := range s.all() {
		mine := one.Table == 1
		seen[mine]++
		if got := len(s.fires(one)) > 0; got != mine {
			t.Errorf("%s of table %d: made %v", one.Name, one.Table, got)
		}
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("schedules of this generator and others: %v", seen)
	}
}

// TestMoreTablesBeginAPass: a generator that has just taken tables does not wait for its next pass.
func TestMoreTablesBeginAPass(t *testing.T) {
	t.Parallel()
	s := newGenerated(t)
	s.creates(10, "@every 1m")
	s.age(time.Minute)
	var mu sync.Mutex
	tables := 0
	asked := make(chan struct{}, 100)
	g := s.generator(func(c *GeneratorConfig) {
		c.Tables = func() int { mu.Lock(); defer mu.Unlock(); return tables }
		c.Mine = func(int) bool {
			asked <- struct{}{}
			return c.Tables() > 0
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- g.Run(ctx) }()
	<-asked // the first passes find nothing that is theirs
	if n := len(s.fires(s.all()[0])); n != 0 {
		t.Errorf("%d runs are made", n)
	}
	mu.Lock()
	tables = 4
	mu.Unlock()
	s.await("the runs", func() bool {
		for len(asked) > 0 {
			<-asked
		}
		return !slices.ContainsFunc(s.all(), func(one Schedule) bool { return len(s.fires(one)) == 0 })
	})
	stop()
	go func() {
		for range asked { // whatever a pass still asks
		}
	}()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	close(asked)
}

// TestAServerThatIsAwayHidesNoOther, and its schedules are behind.
func TestAServerThatIsAwayHidesNoOther(t *testing.T) {
	t.Parallel()
	s := newGenerated(t)
	s.creates(30, "@every 1m")
	s.age(10 * time.Minute)
	s.cfg.Servers[0].DSN = "root@tcp(" + devtest.FreeAddress() + ")/"
	result, err := s.generator(nil).Overdue(t.Context())
	if err != nil { // who sweeps says so itself
		t.Error(err)
	}
	there := 0
	for _, one := range s.all() {
		on2 := s.cfg.Layout.DatabaseOf(one.Table) == 1
		if got := len(s.fires(one)) > 0; got != on2 {
			t.Errorf("%s of table %d: made %v", one.Name, one.Table, got)
		}
		if on2 {
			there++
		}
	}
	if result.Schedules != there || there == 0 || there == 30 {
		t.Errorf("%+v, %d schedules are on the server that answers", result, there)
	}
}

// TestSchedulesThatFailHoldUpNoOthers, though they are the earliest, and tell that they are behind.
func TestSchedulesThatFailHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	s := newGenerated(t)
	s.creates(20, "@every 1m")
	s.age(10 * time.Minute)
	all := s.all()
	slices.SortFunc(all, func(a, b Schedule) int {
		return cmp.Or(a.NextFire.Compare(b.NextFire), cmp.Compare(a.Table, b.Table), cmp.Compare(a.ID, b.ID))
	})
	bad := map[tocsin.JobID]bool{}
	for _, one := range all[:10] {
		bad[one.ID] = true
	}
	fails := true
	g := s.generator(nil)
	g.makeOne = func(ctx context.Context, id tocsin.JobID, noWait bool) (Made, error) {
		if fails && bad[id] {
			return Made{}, errors.New("refused")
		}
		return g.maker.Make(ctx, id, noWait)
	}
	result, err := g.Overdue(t.Context())
	if err != nil || result.Failed != 10 || result.Schedules != 10 {
		t.Errorf("%+v, %v", result, err)
	}
	for _, one := range s.all() {
		if got := len(s.fires(one)) > 0; got == bad[one.ID] {
			t.Errorf("%s: made %v", one.Name, got)
		}
	}
	if late := g.Behind(); late < 9*time.Minute || late > 15*time.Minute {
		t.Errorf("behind by %s", late)
	}
	fails = false
	if result, err := g.Overdue(t.Context()); err != nil || result.Failed != 0 || result.Schedules != 10 || g.Behind() != 0 {
		t.Errorf("then %+v, %v, behind by %s", result, err, g.Behind())
	}
}

// TestADatabaseThatCannotBeReadLeavesNothingBehind of what is made in others of its server.
func TestADatabaseThatCannotBeReadLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.creates(20, "@every 1m")
	s.age(10 * time.Minute)
	g := s.generator(nil)
	all := slices.DeleteFunc(s.all(), func(one Schedule) bool { return s.cfg.Layout.DatabaseOf(one.Table) == 1 })
	s.exec(Schedule{}, "RENAME TABLE "+s.cfg.Layout.Database(1)+".schedule TO "+s.cfg.Layout.Database(1)+".gone")
	if result, err := g.pass(t.Context(), 0, Step); err == nil || result.Schedules != len(all) || len(all) == 0 || g.Behind() != 0 {
		t.Errorf("%+v of %d schedules, %v, behind by %s", result, len(all), err, g.Behind())
	}
}

// TestLockedRowsHoldUpNoOtherDatabase of their server, and keep few of its connections, in however many databases they are: a few Makes wait for
// them, and the others come up again in the next pass.
func TestLockedRowsHoldUpNoOtherDatabase(t *testing.T) {
	t.Parallel()
	const free = 3 // the database whose rows nobody locks
	s := openSite(t, apply(t, tocsin.Config{
		Layout:  tocsin.Layout{Databases: free + 1, Tables: 1, Prefix: devtest.Prefix(t)},
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}},
	}))
	s.creates(60, "@every 1m")
	s.age(10 * time.Minute)
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for database := range free {
		locked, err := tx.QueryContext(t.Context(), "SELECT schedule_id FROM "+s.cfg.Layout.Database(database)+".schedule FOR UPDATE")
		if err != nil {
			t.Fatal(err)
		}
		_ = locked.Close()
	}
	in := func(database int, id tocsin.JobID) bool { return s.cfg.Layout.DatabaseOf(id.Table()) == database }
	var waited atomic.Int32
	g := s.generator(nil)
	g.makeOne = func(ctx context.Context, id tocsin.JobID, noWait bool) (Made, error) {
		began := time.Now()
		made, err := g.maker.Make(ctx, id, noWait)
		if !in(free, id) && !noWait {
			waited.Add(1)
		}
		if took := time.Since(began); !in(free, id) && (mysql.ClassOf(err) != mysql.Contended || took >= time.Second && noWait) { // a lock wait is a second
			t.Errorf("a Make met a locked row: %v after %s", err, took)
		}
		return made, err
	}
	if result, err := g.pass(t.Context(), 0, Step); err != nil || result.Failed == 0 {
		t.Errorf("%+v, %v", result, err)
	}
	made := func(unlocked bool) bool {
		return !slices.ContainsFunc(s.all(), func(one Schedule) bool { return in(free, one.ID) == unlocked && len(s.fires(one)) == 0 })
	}
	if !made(true) {
		t.Error("not all runs of the other database are made")
	}
	if n := waited.Load(); n > passWidth {
		t.Errorf("%d Makes waited for locks", n)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	g.makeOne = g.maker.Make
	if _, err := g.pass(t.Context(), 0, Step); err != nil || !made(false) {
		t.Errorf("the runs of the databases that were locked: %v", err)
	}
}

// TestARowThatMakesNothingEndsThePass: somebody has changed it by hand.
func TestARowThatMakesNothingEndsThePass(t *testing.T) {
	t.Parallel()
	s := newGenerated(t)
	s.creates(1, "@every 1m")
	s.age(time.Minute)
	one := s.all()[0]
	s.exec(one, "UPDATE {schedule} SET state = 'inactive' WHERE schedule_id = ?", uint64(one.ID))
	if result, err := s.generator(nil).Overdue(t.Context()); err != nil || result != (PassResult{Lost: 1}) {
		t.Errorf("%+v, %v", result, err)
	}
}

// TestDistantRunsAreSpread: of many schedules, only those whose runs are near are made at once.
func TestDistantRunsAreSpread(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for ahead, want := range map[time.Duration]time.Duration{-time.Hour: 0, 4 * time.Minute: 0, 6 * time.Minute: passSpread / 1000} {
		if got := pauseBefore(Due{Next: now.Add(ahead)}, 1000, now.UnixMilli()); got != want {
			t.Errorf("%s ahead: %s, want %s", ahead, got, want)
		}
	}
	if got := pauseBefore(Due{Next: now.Add(9 * time.Minute)}, 2, now.UnixMilli()); got != passPause {
		t.Errorf("one of two: %s", got)
	}
}

// TestFireTimesThatArePassedOverAreTold: once, with the first of them and their number.
func TestFireTimesThatArePassedOverAreTold(t *testing.T) {
	t.Parallel()
	s := newGenerated(t)
	s.creates(1, "@every 1m")
	s.age(time.Hour)
	one := s.all()[0]
	var told []MissedRun
	g := s.generator(func(c *GeneratorConfig) { c.Missed = func(m MissedRun) { told = append(told, m) } })
	result, err := g.Overdue(t.Context())
	if err != nil || result.PassedOver == 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	if want := (MissedRun{BizType: 1, Schedule: one.Name, Time: one.NextFire,
		Why: fmt.Sprintf("missed, with all that the schedule's policy passes over from then on: %d fire times", result.PassedOver)}); len(told) != 1 || told[0] != want {
		t.Errorf("told %+v, want %+v", told, want)
	}
	if result, err := g.Overdue(t.Context()); err != nil || result.PassedOver != 0 || len(told) != 1 {
		t.Errorf("then %+v, %v, told %+v", result, err, told)
	}
}

// TestAGeneratorThatCantReadRests: a look that failed counts as made until the next pass. The server counts what it is asked.
func TestAGeneratorThatCantReadRests(t *testing.T) {
	t.Parallel()
	server, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	s := newGeneratedOn(t, server.DSN(), "t")
	s.creates(8, "@every 1m")
	s.age(time.Minute)
	s.exec(Schedule{}, "RENAME TABLE {schedule} TO t_0.gone")
	var log devtest.Log
	g := s.generator(func(c *GeneratorConfig) { c.Logger = log.Logger() })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- g.Run(ctx) }()
	log.Await(t, "it can't be known whether schedules are made too far ahead")
	log.Await(t, "schedules can't be read: their next runs are made later")
	before := s.questions()
	time.Sleep(3 * time.Second)
	if n := s.questions() - before; n > 300 {
		t.Errorf("%d statements in 3 s, though schedules can't be read", n)
	}
	s.exec(Schedule{}, "RENAME TABLE t_0.gone TO {schedule}")
	s.await("the runs", func() bool {
		return !slices.ContainsFunc(s.all(), func(one Schedule) bool { return len(s.fires(one)) == 0 })
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// questions returns how many statements the server was sent.
func (s *site) questions() (n int) {
	s.t.Helper()
	var name string
	if err := s.db.QueryRow("SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// TestAClockIsSuspect at first, when it was set back by more than a minute, and each hour.
func TestAClockIsSuspect(t *testing.T) {
	t.Parallel()
	var c clock
	start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		in, off time.Duration // how far this process and the server's clock beside it are from the start
		unknown bool
		want    bool
	}{
		{unknown: true},
		{in: time.Second, want: true},
		{in: time.Minute},
		{in: 2 * time.Minute, off: 3 * time.Hour},
		{in: 3 * time.Minute, off: 3*time.Hour - 50*time.Second},
		{in: 4 * time.Minute, want: true},
		{in: 5 * time.Minute},
		{in: 63 * time.Minute},
		{in: 64 * time.Minute, want: true},
	} {
		now := start.Add(step.in)
		server := now.Add(step.off).UnixMilli()
		if step.unknown {
			server = 0
		}
		got := c.suspect(server, now)
		if got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
		if got {
			c.looked = now
		}
	}
}

// TestAFailedLookIsNoNews: it is made again in the next pass, and does not end the pause before it.
func TestAFailedLookIsNoNews(t *testing.T) {
	t.Parallel()
	var c clock
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		off        time.Duration // of the server's clock, beside this process's
		pass       bool          // else the rest between two passes
		news, look bool
	}{
		{news: true},
		{pass: true, look: true},
		{},
		{pass: true, look: true},
		{off: -time.Hour, news: true},
		{off: -time.Hour, news: true},
		{off: -time.Hour, pass: true, look: true},
		{off: -time.Hour},
	} {
		now = now.Add(time.Second)
		server := now.Add(step.off).UnixMilli()
		if step.pass {
			if got := c.suspect(server, now); got != step.look {
				t.Errorf("step %d: looks %v", i, got)
			}
		} else if got := c.note(server, now); got != step.news {
			t.Errorf("step %d: news %v", i, got)
		}
	}
}

// TestSchedulesThatAreMadeTooFarAheadAreTakenBack by any generator.
func TestSchedulesThatAreMadeTooFarAheadAreTakenBack(t *testing.T) {
	t.Parallel()
	s := newGenerated(t)
	s.creates(12, "@every 1m")
	all := s.all()
	wrong := all[:5]
	for _, one := range wrong {
		s.exec(one, "UPDATE {schedule} SET made_until = made_until + INTERVAL 3 DAY, next_fire = next_fire + INTERVAL 3 DAY WHERE schedule_id = ?", uint64(one.ID))
	}
	g := s.generator(func(c *GeneratorConfig) { c.Mine = func(int) bool { return false } })
	for server := range 2 {
		if !g.takeBack(t.Context(), server) {
			t.Error("it could not look")
		}
	}
	for _, one := range s.all() {
		if one.FarAhead() || time.Until(one.NextFire) > 2*Step+2*time.Minute || one.Revision != 1 {
			t.Errorf("%+v", one)
		}
		times := s.fires(one)
		if again := slices.CompactFunc(slices.Clone(times), time.Time.Equal); len(again) != len(times) || len(times) < 20 || len(times) > 22 {
			t.Errorf("%s: %d runs, %d fire times", one.Name, len(times), len(again))
		}
	}
}
