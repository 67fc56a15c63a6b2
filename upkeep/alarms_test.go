package upkeep

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/webhook"
)

const (
	closeOrder = 3
	remind     = 4
)

// newAlarmed is a site whose biz types have alarms.
func newAlarmed(t *testing.T) *site {
	t.Helper()
	s := newSite(t, small)
	s.apply(alarmPolicies)
	return s
}

// apply stores policies.
func (s *site) apply(policies []biztype.Policy) {
	s.t.Helper()
	if _, err := biztype.Apply(s.t.Context(), s.cfg, policies); err != nil {
		s.t.Fatal(err)
	}
}

var alarmPolicies = []biztype.Policy{
	{Name: "order.close", Number: closeOrder, Group: "orders", Alarm: &biztype.Alarm{To: "ops.alarm"}},
	{Name: "coupon.remind", Number: remind, Group: "orders", Alarm: &biztype.Alarm{To: "ops.alarm", On: []string{biztype.OnMissed}}},
	{Name: "ops.alarm", Number: 9, Group: "ops"},
}

// process is an Alarms with a store of its own, as processes have it.
func (s *site) process(cfg tocsin.Config, log *devtest.Log) *Alarms {
	s.t.Helper()
	tables, err := store.Connect(s.t.Context(), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = tables.Close() })
	c := AlarmsConfig{Store: tables, Cluster: cfg, Policies: func() []biztype.Policy { return alarmPolicies }, Leads: func() bool { return true }}
	if log != nil {
		c.Logger = log.Logger()
	}
	a := NewAlarms(c)
	s.t.Cleanup(func() { a.end(context.Background()) })
	return a
}

// die adds tasks that became dead some seconds ago, one after the other over all tables.
func (s *site) die(bizType, n int, seconds float64) (ids []tocsin.JobID) {
	s.t.Helper()
	rows := make([][]string, s.cfg.Layout.Total())
	for range n {
		s.seq++
		table := s.seq % len(rows)
		id := tocsin.JobID(s.seq)<<22 | tocsin.JobID(table)<<9
		rows[table] = append(rows[table], fmt.Sprintf("(%d, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), %d, %d, 4, UTC_TIMESTAMP(3) - INTERVAL %f SECOND, UTC_TIMESTAMP(3), 16, 0, 0, '', 'no route to host', '')", id, s.seq, bizType, seconds))
		ids = append(ids, id)
	}
	for table, values := range rows {
		if len(values) > 0 {
			s.exec("INSERT INTO " + s.cfg.Layout.Table(table) + ` (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time,
				due_time, attempts, crashes, version, claimed_by, last_error, attribute) VALUES ` + strings.Join(values, ","))
		}
	}
	return ids
}

// raised returns the alarms about a biz type, the first first.
func (s *site) raised(bizType uint64) (all []webhook.Alarm) {
	s.t.Helper()
	client, err := tocsin.Open(s.t.Context(), s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	infos, err := client.List(s.t.Context(), bizType)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, info := range infos {
		if info.BizType == "ops.alarm" {
			alarm, err := webhook.AlarmOf(webhook.Task{JobID: info.JobID, Payload: info.Payload})
			if err != nil {
				s.t.Error(err)
			}
			all = append(all, alarm)
		}
	}
	return all
}

// later makes the alarms so far older, by their time and what they say.
func (s *site) later(bizType uint64, by time.Duration) {
	s.t.Helper()
	s.exec("UPDATE "+s.cfg.Layout.Table(s.cfg.Layout.TableOf(bizType))+" SET gmt_create = gmt_create - INTERVAL ? SECOND WHERE biz_type = 9", int(by.Seconds()))
}

// now raises what waits, whether its time has come or not.
func (a *Alarms) now(t *testing.T) { a.raiseAll(t.Context(), true) }

func TestAThousandDeadTasksMakeOneAlarmWhoeverNotices(t *testing.T) {
	t.Parallel()
	s := newAlarmed(t)
	all := []*Alarms{s.process(s.cfg, nil), s.process(s.cfg, nil), s.process(s.cfg, nil)}
	ids := s.die(closeOrder, 1000, 10)
	s.die(remind, 5, 10) // is told of missed runs only
	for i, id := range ids {
		all[i%2].Died(closeOrder, id)
	}
	all[0].Died(remind, 7)
	all[2].look(t.Context(), lag) // by the process that was told of none
	ended := make(chan struct{})
	for _, a := range all {
		go func() { a.now(t); ended <- struct{}{} }()
	}
	for range all {
		<-ended
	}
	got := s.raised(closeOrder)
	if len(got) != 1 {
		t.Fatalf("%d alarms: %+v", len(got), got)
	}
	a := got[0]
	if a.Kind != "dead" || a.BizType != "order.close" || a.Count != 1000 || a.AtLeast || len(a.JobIDs) < s.cfg.Layout.Total() || len(a.JobIDs) > alarmExamples || a.LastError != "no route to host" || a.Unread != nil ||
		!slices.Contains(a.Do, "tocsin task redrive --type order.close") {
		t.Errorf("got %+v", a)
	}
	if other := s.raised(remind); len(other) != 0 {
		t.Errorf("an alarm that no policy asks for: %+v", other)
	}
	for _, a := range all { // they know it all by now
		a.looked = nil
		a.look(t.Context(), lag)
		a.now(t)
	}
	s.later(closeOrder, time.Hour)
	all[1].looked = nil
	all[1].look(t.Context(), lag)
	all[1].now(t)
	if got := s.raised(closeOrder); len(got) != 1 {
		t.Errorf("deaths were told twice: %+v", got)
	}
}

func TestTheNextAlarmComesInItsTimeAndCountsWhatDiedSince(t *testing.T) {
	t.Parallel()
	s := newAlarmed(t)
	one, other := s.process(s.cfg, nil), s.process(s.cfg, nil)
	s.die(closeOrder, 3, 10)
	one.look(t.Context(), lag)
	one.now(t)
	first := s.raised(closeOrder)
	if len(first) != 1 || first[0].Count != 3 {
		t.Fatalf("first %+v", first)
	}
	until := first[0].Until
	s.exec("UPDATE "+s.cfg.Layout.Table(s.cfg.Layout.TableOf(closeOrder))+` SET attribute = REPLACE(attribute, ?, ?) WHERE biz_type = 9`,
		until.Format("15:04:05"), until.Add(-6*time.Second).Format("15:04:05"))
	ids := s.die(closeOrder, 7, 4) // after it
	n := &noted{count: 1, first: time.Now(), last: time.Now(), jobs: ids[:1]}
	if again := other.raise(t.Context(), about{closeOrder, biztype.OnDead}, n); !again || time.Until(n.at) < 4*time.Minute || time.Until(n.at) > 5*time.Minute {
		t.Errorf("again %v, in %s: want in not quite five minutes", again, time.Until(n.at))
	}
	if got := s.raised(closeOrder); len(got) != 1 {
		t.Fatalf("too early: %+v", got)
	}
	s.later(closeOrder, 5*time.Minute)
	if again := other.raise(t.Context(), about{closeOrder, biztype.OnDead}, n); !again || n.count != 0 {
		t.Errorf("again %v, %+v: the last death may not be counted yet", again, n)
	}
	got := s.raised(closeOrder)
	if len(got) != 2 || got[1].Count != 7 || !got[1].Since.Equal(until.Add(-6*time.Second)) || !slices.Contains(ids, got[1].JobIDs[0]) {
		t.Errorf("got %+v", got)
	}
}

// The databases of a server are counted one after the other. However long the first takes, the second counts from the same time on.
func TestADatabaseThatIsCountedLateLosesNoDeath(t *testing.T) {
	t.Parallel()
	s := newAlarmed(t)
	a := s.process(s.cfg, nil)
	of := about{closeOrder, biztype.OnDead}
	s.die(closeOrder, 1, 10)
	a.raise(t.Context(), of, &noted{})
	first := s.raised(closeOrder)
	if len(first) != 1 || first[0].Count != 1 {
		t.Fatalf("first %+v", first)
	}
	s.die(closeOrder, s.layout.Total(), 0) // one in each table, just after what the first alarm has counted
	until, form := first[0].Until, "2006-01-02 15:04:05.000"
	for table := range s.layout.Total() {
		s.exec("UPDATE "+s.layout.Table(table)+" SET action_time = ? WHERE biz_type = 3 AND action_time > ?", until.Add(time.Millisecond).Format(form), until.Format(form))
	}
	s.later(closeOrder, 5*time.Minute)
	held, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	home := s.layout.TableOf(closeOrder) // has the alarms
	if _, err := held.ExecContext(t.Context(), fmt.Sprintf("LOCK TABLES %s WRITE, %s WRITE", s.layout.Table(home^1), s.layout.Table(3-home))); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); a.raise(t.Context(), of, &noted{}) }()
	for waiting := 0; waiting == 0; {
		if err := held.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%' AND info LIKE ?",
			"%tocsin deaths%"+s.layout.Prefix+"%").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := held.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	<-ended
	if got := s.raised(closeOrder); len(got) != 2 || got[1].Count != s.layout.Total() || got[1].Unread != nil {
		t.Errorf("got %+v", got)
	}
}

// What died while the alarm before was added is a day old before the next alarm of such a biz type may come.
func TestAnAlarmOnceADayCountsFromTheOneBeforeOn(t *testing.T) {
	t.Parallel()
	s := newAlarmed(t)
	a := s.process(s.cfg, nil)
	daily := slices.Clone(alarmPolicies)
	daily[0].Alarm = &biztype.Alarm{To: "ops.alarm", AtMostEvery: biztype.Duration(24 * time.Hour)}
	a.cfg.Policies = func() []biztype.Policy { return daily }
	of := about{closeOrder, biztype.OnDead}
	s.die(closeOrder, 3, 10)
	a.raise(t.Context(), of, &noted{})
	first := s.raised(closeOrder)
	if len(first) != 1 || first[0].Count != 3 {
		t.Fatalf("first %+v", first)
	}
	const passed = 24*time.Hour + 10*time.Minute
	until, form := first[0].Until.Add(-passed), "2006-01-02T15:04:05"
	s.later(closeOrder, passed)
	s.exec("UPDATE "+s.layout.Table(s.layout.TableOf(closeOrder))+" SET attribute = REPLACE(attribute, ?, ?) WHERE biz_type = 9", first[0].Until.Format(form), until.Format(form))
	for table := range s.layout.Total() {
		s.exec("UPDATE "+s.layout.Table(table)+" SET action_time = ? WHERE biz_type = 3", until.Add(time.Second).Format("2006-01-02 15:04:05.000"))
	}
	a.raise(t.Context(), of, &noted{})
	if got := s.raised(closeOrder); len(got) != 2 || got[1].Count != 3 || !got[1].Since.Equal(until) {
		t.Errorf("got %+v", got)
	}
}

// A transaction may end so late that no count sees its row.
func TestAProcessTellsWhatItWasToldOfEvenIfTheTablesDoNotShowIt(t *testing.T) {
	t.Parallel()
	s := newAlarmed(t)
	a := s.process(s.cfg, nil)
	a.Died(closeOrder, 77)
	a.Died(closeOrder, 78)
	a.now(t)
	if got := s.raised(closeOrder); len(got) != 1 || got[0].Count != 2 || !got[0].AtLeast || !slices.Equal(got[0].JobIDs, []tocsin.JobID{77, 78}) {
		t.Errorf("got %+v", got)
	}
}

func TestADatabaseThatCannotBeReadIsCountedByTheNextAlarm(t *testing.T) {
	t.Parallel()
	s := newAlarmed(t)
	a := s.process(s.cfg, nil)
	s.die(closeOrder, 8, 10)
	gone := s.cfg.Layout.Table(3 - s.cfg.Layout.TableOf(closeOrder)) // in the other database
	s.exec("RENAME TABLE " + gone + " TO " + gone + "_away")
	a.look(t.Context(), lag)
	a.now(t)
	first := s.raised(closeOrder)
	name := s.cfg.Layout.Database(s.cfg.Layout.DatabaseOf(3 - s.cfg.Layout.TableOf(closeOrder)))
	if len(first) != 1 || first[0].Count != 4 || !first[0].AtLeast || len(first[0].Unread) != 1 || first[0].Unread[name].IsZero() {
		t.Fatalf("first %+v", first)
	}
	s.exec("RENAME TABLE " + gone + "_away TO " + gone)
	s.later(closeOrder, 5*time.Minute)
	a.look(t.Context(), lag)
	if a.count() != 1 {
		t.Fatal("the look does not begin where it failed")
	}
	a.now(t)
	if got := s.raised(closeOrder); len(got) != 2 || got[1].Count != 4 || got[1].Unread != nil {
		t.Errorf("then %+v", got)
	}
}

func TestMissedRunsAreTold(t *testing.T) {
	t.Parallel()
	s := newAlarmed(t)
	one, other := s.process(s.cfg, nil), s.process(s.cfg, nil)
	at := time.Date(2026, 3, 1, 2, 30, 0, 0, time.UTC)
	for i := range 7 {
		one.Missed(schedule.MissedRun{BizType: remind, Schedule: "nightly", Time: at.AddDate(0, 0, i), Why: "later than start_within"})
	}
	other.Missed(schedule.MissedRun{BizType: remind, Schedule: "hourly", Why: "paused after 3 failures in a row"})
	one.now(t)
	if again := other.raise(t.Context(), about{remind, biztype.OnMissed}, other.waiting[about{remind, biztype.OnMissed}]); !again {
		t.Error("what came second is forgotten")
	}
	s.later(remind, 5*time.Minute)
	other.now(t)
	got := s.raised(remind)
	if len(got) != 2 || got[0].Kind != "missed" || got[0].Count != 7 || len(got[0].Runs) != alarmExamples || got[0].Runs[0] != "nightly 2026-03-01T02:30:00Z: later than start_within" ||
		!slices.Equal(got[0].Do, []string{"tocsin schedule runs nightly", "tocsin schedule run-now nightly"}) {
		t.Fatalf("got %+v", got)
	}
	if got[1].Count != 1 || got[1].Runs[0] != "hourly: paused after 3 failures in a row" || !slices.Contains(got[1].Do, "tocsin schedule activate hourly") {
		t.Errorf("then %+v", got[1])
	}
}

func TestAnAlarmThatMayNotBeAddedWaitsAndTheLogSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newAlarmed(t)
	user := s.cfg.Layout.Prefix + "u"
	s.exec("CREATE USER '" + user + "'@'%' IDENTIFIED BY 'x'")
	t.Cleanup(func() { _, _ = s.db.Exec("DROP USER '" + user + "'@'%'") })
	grant := func(role string) {
		plans, err := ddl.Grants(s.cfg, ddl.GrantOptions{Roles: []string{role}, User: user})
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(plans[0].Text) {
			if strings.HasPrefix(line, "GRANT") {
				s.exec(strings.TrimSuffix(strings.TrimSpace(line), ";"))
			}
		}
	}
	grant("read-only") // a node that was granted its rights before nodes made runs of schedules lacks INSERT too
	parsed, err := mysql.ParseDSN(devtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	parsed.User, parsed.Passwd = user, "x"
	cfg := s.cfg
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: parsed.FormatDSN()}}
	var log devtest.Log
	a := s.process(cfg, &log)
	s.die(closeOrder, 1, 10)
	a.look(t.Context(), lag)
	n := a.waiting[about{closeOrder, biztype.OnDead}]
	if again := a.raise(t.Context(), about{closeOrder, biztype.OnDead}, n); !again || len(s.raised(closeOrder)) != 0 {
		t.Errorf("again %v, with %+v", again, s.raised(closeOrder))
	}
	lines := log.Lines("an alarm can't be added for lack of rights: grant the role client-add too, see `tocsin ddl grants --role client-add`")
	if len(lines) != 1 || lines[0]["level"] != "error" || lines[0]["biz_type"] != "order.close" || !strings.Contains(fmt.Sprint(lines[0]["error"]), "INSERT command denied") {
		t.Errorf("the log says %v", log.Lines())
	}
	grant("client-add")
	a.now(t)
	if got := s.raised(closeOrder); len(got) != 1 {
		t.Errorf("with the right: %+v; the log says %v", got, log.Lines())
	}
}

// An alarm about tasks of one server does not wait for another one that hangs.
func TestAServerThatHangsIsLeftOut(t *testing.T) {
	t.Parallel()
	other, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Stop() })
	layout := tocsin.Layout{Databases: 2, Tables: 2, Prefix: devtest.Prefix(t)}
	home := layout.DatabaseOf(layout.TableOf(closeOrder))
	s := applySite(t, tocsin.Config{Layout: layout, Servers: []tocsin.Server{
		{Name: "db1", DSN: devtest.DSN(t), Databases: []int{home}}, {Name: "db2", DSN: other.DSN(), Databases: []int{1 - home}},
	}})
	s.apply(alarmPolicies)
	var log devtest.Log
	a := s.process(s.cfg, &log)
	if err := syscall.Kill(other.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw := sync.OnceFunc(func() { _ = syscall.Kill(other.Pid(), syscall.SIGCONT) })
	t.Cleanup(thaw)
	a.Died(closeOrder, 77)
	a.now(t)
	got := s.raised(closeOrder)
	if len(got) != 1 || got[0].Count != 1 || len(got[0].Unread) != 1 || got[0].Unread[layout.Database(1-home)].IsZero() {
		t.Errorf("got %+v; the log says %v", got, log.Lines())
	}
	hung := make(chan error, 1)
	go func() { _, err := a.cfg.Store.Measure(context.WithoutCancel(t.Context()), 1); hung <- err }()
	for a.cfg.Store.Waiting(1) <= hangs {
		time.Sleep(10 * time.Millisecond)
	}
	if err := a.measure(context.WithoutCancel(t.Context()), 1); err == nil || !strings.Contains(err.Error(), "server db2: no answer for") {
		t.Errorf("got %v", err)
	}
	thaw()
	if err := <-hung; err != nil {
		t.Error(err)
	}
}

func TestATypeWithoutAnAlarmWaitsForNothing(t *testing.T) {
	t.Parallel()
	s := newAlarmed(t)
	a := s.process(s.cfg, nil)
	a.Died(9, 1)      // alarms themselves
	a.Died(remind, 1) // has an alarm for missed runs
	a.Died(1234, 1)
	a.Missed(schedule.MissedRun{BizType: 9, Schedule: "x"})
	if n := a.count(); n != 0 {
		t.Errorf("%d wait", n)
	}
}

func TestWhenTheNextAlarmMayComeAndWhatItCounts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	alarm := func(created, until time.Duration) *store.Row {
		text := fmt.Sprintf(`{"kind":"dead","biz_type":"a","until":%q}`, now.Add(until).Format(time.RFC3339Nano))
		return &store.Row{Info: tocsin.Info{Created: now.Add(created), Payload: text}}
	}
	for name, c := range map[string]struct {
		latest *store.Row
		key    time.Duration // from now
		since  time.Duration
		wait   time.Duration
	}{
		"there is none":                       {nil, -time.Duration(now.UnixNano()), -time.Duration(now.UnixNano()), 0},
		"a minute ago":                        {alarm(-time.Minute, -62*time.Second), -62 * time.Second, -62 * time.Second, 4 * time.Minute},
		"just now":                            {alarm(0, -2*time.Second), -2 * time.Second, -2 * time.Second, 5 * time.Minute},
		"long ago":                            {alarm(-time.Hour, -time.Hour), -time.Hour, -time.Hour, -55 * time.Minute},
		"a task of somebody else":             {&store.Row{Info: tocsin.Info{Created: now.Add(-time.Hour), Payload: "x"}}, -time.Hour, -time.Hour, -55 * time.Minute},
		"the clock was set back an hour":      {alarm(time.Hour, time.Hour-2*time.Second), time.Hour - 2*time.Second, -5 * time.Minute, 0},
		"and an alarm came after that":        {alarm(-time.Minute, time.Hour), time.Hour, -5 * time.Minute, 4 * time.Minute},
		"just now, by a clock a little ahead": {alarm(time.Second, -time.Second), -time.Second, -time.Second, 5*time.Minute + time.Second},
	} {
		l := &link{policy: biztype.Policy{Alarm: &biztype.Alarm{To: "b", AtMostEvery: biztype.Duration(5 * time.Minute)}}, now: now.UnixMilli()}
		l.after(c.latest)
		if l.key != now.Add(c.key).UnixMilli() || l.since != now.Add(c.since).UnixMilli() || l.wait != c.wait {
			t.Errorf("%s: key %d, since %d, wait %s", name, l.key-l.now, l.since-l.now, l.wait)
		}
		if next := l.until(lag); next.UnixMilli() <= l.key {
			t.Errorf("%s: until %s does not follow the one before", name, next)
		}
	}
}
