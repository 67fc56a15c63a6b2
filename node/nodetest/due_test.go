package nodetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/node/nodetest"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/tocsintest"
	"github.com/tocsinhq/tocsin/webhook"
)

// inEachMode runs a test on a cluster whose tables have owners, the default, and on one whose rows are claimed.
func inEachMode(t *testing.T, policies []biztype.Policy, test func(*testing.T, *tocsintest.Cluster)) {
	t.Helper()
	for _, mode := range []string{node.ByEtcd, node.ByRows} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := tocsintest.StartWith(t, policies...)
			if mode == node.ByRows {
				nodetest.Config(t, c)
			}
			test(t, c)
		})
	}
}

// handlers are the types' handlers, all of which do this.
func handlers(do func(context.Context, *tocsin.Task[string]) error, types ...tocsin.BizType[string]) *node.Handlers {
	h := &node.Handlers{}
	for _, biz := range types {
		node.Handle(h, biz, do)
	}
	return h
}

func done(context.Context, *tocsin.Task[string]) error { return nil }

func plan(t *testing.T, c *tocsintest.Cluster, definitions ...schedule.Definition) {
	t.Helper()
	s, err := schedule.Open(t.Context(), c.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.Apply(t.Context(), definitions, false); err != nil {
		t.Fatal(err)
	}
}

// fires are the fire times of the runs of a schedule among deliveries.
func fires(all []nodetest.Delivery, name string) (times []time.Time) {
	for _, d := range all {
		if d.Task.Schedule == name {
			times = append(times, d.Task.FireTime)
		}
	}
	return times
}

func TestRunDueMakesAndDeliversTheRunsOfSchedules(t *testing.T) {
	t.Parallel()
	inEachMode(t, []biztype.Policy{{Name: remind.Name(), Number: 1}, {Name: expire.Name(), Number: 2}}, func(t *testing.T, c *tocsintest.Cluster) {
		payout := schedule.Definition{Name: "payout.weekly", BizType: expire.Name(), Cron: "0 9 * * 1", StartWithin: biztype.Duration(time.Second)}
		plan(t, c, payout, schedule.Definition{Name: "poll", BizType: remind.Name(), Cron: "@every 5m", Overlap: schedule.OverlapSkip})
		h := handlers(done, remind, expire)
		begin := time.Now()
		all := nodetest.RunDue(t, c, h, begin.Add(time.Hour))
		polls := fires(all, "poll")
		if len(polls) != 12 || !slices.IsSortedFunc(polls, time.Time.Compare) {
			t.Errorf("%d polls in an hour: %v", len(polls), polls)
		}
		all = nodetest.RunDue(t, c, h, begin.Add(90*time.Minute))
		if polls := fires(all, "poll"); len(polls) != 6 {
			t.Errorf("%d polls in the next half hour: %v", len(polls), polls)
		}
		for _, d := range all {
			if d.Outcome.Verb != tocsin.Completed {
				t.Error(d)
			}
		}
	})
}

func TestRunDueDeliversTheWeeklyPayoutOfEachWeek(t *testing.T) {
	t.Parallel()
	inEachMode(t, []biztype.Policy{{Name: expire.Name(), Number: 2}}, func(t *testing.T, c *tocsintest.Cluster) {
		payout := schedule.Definition{Name: "payout.weekly", BizType: expire.Name(), Cron: "0 9 * * 1", Missed: schedule.MissedSkip, StartWithin: biztype.Duration(time.Second)}
		plan(t, c, payout)
		want, err := payout.Next(time.Now(), 5)
		if err != nil {
			t.Fatal(err)
		}
		failed := map[time.Time]bool{}
		h := handlers(func(_ context.Context, task *tocsin.Task[string]) error {
			if first := !failed[task.FireTime]; first {
				failed[task.FireTime] = true
				return tocsin.RetryIn(time.Hour, errors.New("the bank is closed"))
			}
			return nil
		}, expire)
		all := nodetest.RunDue(t, c, h, want[4].Add(30*time.Minute)) // the last one's retry comes later
		var attempts []time.Time
		for _, at := range want {
			attempts = append(attempts, at, at)
		}
		if got := fires(all, "payout.weekly"); !slices.EqualFunc(got, attempts[:9], time.Time.Equal) {
			t.Errorf("runs %v, want %v", got, attempts[:9])
		}
	})
}

func TestRunDueDeliversCallbacksBesideHandlersOfAnyGroup(t *testing.T) {
	t.Parallel()
	receiver := nodetest.NewReceiver(t, nil)
	policies := []biztype.Policy{{Name: remind.Name(), Number: 1, Webhook: receiver.Webhook()}, {Name: expire.Name(), Number: 2, Group: "carts"}}
	inEachMode(t, policies, func(t *testing.T, c *tocsintest.Cluster) {
		for n, biz := range []tocsin.BizType[string]{expire, remind, expire} {
			add(t, c, biz.New(uint64(n+1), "x", tocsin.In(time.Duration(n+1)*time.Hour)))
		}
		got := texts(nodetest.RunDue(t, c, handlers(done, expire), time.Now().Add(4*time.Hour)))
		if want := []string{"cart.expire 1: complete", "cart.remind 2: complete", "cart.expire 3: complete"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestRunDueDeliversOneTaskAfterTheOther(t *testing.T) {
	t.Parallel()
	c := tocsintest.Start(t, remind, expire)
	due := time.Now().Add(time.Hour)
	var want []string
	for n := range 20 {
		biz := []tocsin.BizType[string]{remind, expire}[n/10]
		add(t, c, biz.New(uint64(n%10+1), "x", tocsin.At(due)))
		want = append(want, biz.Name())
	}
	var got []string // without a lock: the race detector sees handlers that run at the same time
	nodetest.RunDue(t, c, handlers(func(_ context.Context, task *tocsin.Task[string]) error {
		got = append(got, task.BizType)
		return nil
	}, remind, expire), due.Add(time.Second))
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRunDueRaisesAlarmsAndDeliversThem(t *testing.T) {
	t.Parallel()
	alarm := tocsin.Define[webhook.Alarm]("ops.alarm")
	policies := []biztype.Policy{
		{Name: remind.Name(), Number: 1, Attempts: 3, Alarm: &biztype.Alarm{To: alarm.Name(), On: []string{"dead"}}},
		{Name: alarm.Name(), Number: 2, Retention: biztype.Duration(72 * time.Hour)},
	}
	inEachMode(t, policies, func(t *testing.T, c *tocsintest.Cluster) {
		add(t, c, remind.New(1, "x", tocsin.In(48*time.Hour)))
		h := handlers(func(context.Context, *tocsin.Task[string]) error { return errors.New("no mail server") }, remind)
		var alarms []webhook.Alarm
		node.Handle(h, alarm, func(_ context.Context, task *tocsin.Task[webhook.Alarm]) error {
			alarms = append(alarms, task.Payload)
			return nil
		})
		nodetest.RunDue(t, c, h, time.Now().Add(50*time.Hour))
		if len(alarms) != 1 || alarms[0].BizType != remind.Name() || alarms[0].Count != 1 {
			t.Errorf("alarms %+v", alarms)
		}
	})
}

func TestRunDueRelaysOutboxes(t *testing.T) {
	t.Parallel()
	inEachMode(t, []biztype.Policy{{Name: remind.Name(), Number: 1}, {Name: expire.Name(), Number: 2}}, func(t *testing.T, c *tocsintest.Cluster) {
		shop := c.WithOutbox(t)
		tx, err := shop.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		added, err := shop.Client.AddTx(t.Context(), tx, remind.New(1, "x", tocsin.In(time.Hour)))
		if err != nil || !added.Relayed {
			t.Fatalf("added %+v, %v", added, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		h := handlers(done, expire)
		node.Handle(h, remind, func(ctx context.Context, task *tocsin.Task[string]) error { // what it adds goes through the outbox too
			tx, err := shop.DB.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := shop.Client.AddTx(ctx, tx, expire.New(2, "x", tocsin.At(task.DueTime.Add(time.Hour)))); err != nil {
				return err
			}
			return tx.Commit()
		})
		got := texts(nodetest.RunDue(t, shop, h, time.Now().Add(3*time.Hour)))
		if want := []string{"cart.remind 1: complete", "cart.expire 2: complete"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestRunDueNamesARowThatCannotBeMoved(t *testing.T) {
	t.Parallel()
	shop := tocsintest.Start(t, remind).WithOutbox(t)
	if _, err := shop.DB.ExecContext(t.Context(), "INSERT INTO tocsin_outbox (biz_type, biz_id, delay_ms) VALUES ('no.type', 1, 0)"); err != nil {
		t.Fatal(err)
	}
	f := &fatal{TB: t}
	defer func() {
		if p := recover(); p != f || !strings.Contains(f.line, "row 1 of outbox") || !strings.Contains(f.line, "no.type") {
			t.Errorf("it ended with %v, %q", p, f.line)
		}
	}()
	nodetest.RunDue(f, shop, handlers(done, remind), time.Now().Add(time.Hour))
}

func ExampleRunDue() {
	var t *testing.T // of the test
	pollForAnHour := func() {
		c := tocsintest.Start(t, remind)
		plan(t, c, schedule.Definition{Name: "poll", BizType: remind.Name(), Cron: "@every 5m"}) // schedule.Open, Apply
		var h node.Handlers
		node.Handle(&h, remind, func(context.Context, *tocsin.Task[string]) error { return nil })
		for _, d := range nodetest.RunDue(t, c, &h, time.Now().Add(time.Hour)) {
			t.Log(d.Task.FireTime, d) // twelve lines
		}
	}
	_ = pollForAnHour
}
