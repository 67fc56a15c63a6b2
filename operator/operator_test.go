package operator_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/tocsintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tocsintest.Main(m)) }

var (
	closing = tocsin.Define[string]("order.close")
	remind  = tocsin.Define[string]("coupon.remind")
)

func open(t *testing.T) (*operator.Operator, *tocsintest.Cluster) {
	t.Helper()
	cluster := tocsintest.Start(t, closing, remind)
	o, err := operator.Open(t.Context(), cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o, cluster
}

func add(t *testing.T, c *tocsintest.Cluster, task tocsin.NewTask) tocsin.JobID {
	t.Helper()
	added, err := c.Client.Add(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	return added.JobID
}

func TestATaskIsBuriedFoundAndRedriven(t *testing.T) {
	t.Parallel()
	o, cluster := open(t)
	id := add(t, cluster, closing.New(7, "p", tocsin.In(time.Hour)))
	buried, err := o.Bury(t.Context(), id, "the order is void")
	if err != nil || buried.Status != tocsin.Dead || buried.LastError != "the order is void" || buried.BizType != "order.close" || buried.Table == "" {
		t.Fatalf("%+v, %v", buried, err)
	}
	again, err := o.Bury(t.Context(), id, "twice")
	if !errors.Is(err, operator.ErrStatus) || again != buried {
		t.Errorf("%+v, %v", again, err)
	}
	found, err := o.Find(t.Context(), operator.Query{Status: tocsin.Dead, BizType: "order.close", Limit: 1})
	if err != nil || len(found) != 1 || found[0] != buried {
		t.Errorf("%+v, %v", found, err)
	}
	alive, err := o.Redrive(t.Context(), id)
	if err != nil || alive.Status != tocsin.Pending || alive.Key() == buried.Key() {
		t.Errorf("%+v, %v", alive, err)
	}
	if buried, err = o.Bury(t.Context(), id, "no route"); err != nil {
		t.Fatal(err)
	}
	same, err := o.RedriveSameKey(t.Context(), id)
	if err != nil || same.Status != tocsin.Pending || same.Key() != buried.Key() || same.Attempts != 0 {
		t.Errorf("%+v, %v", same, err)
	}
	for _, redrive := range []func(context.Context, tocsin.JobID) (tocsin.Info, error){o.Redrive, o.RedriveSameKey} {
		if _, err := redrive(t.Context(), id); !errors.Is(err, operator.ErrStatus) {
			t.Errorf("redriven twice: %v", err)
		}
	}
}

func TestDeadTasksOfATypeAreRedriven(t *testing.T) {
	t.Parallel()
	o, cluster := open(t)
	for n := range 30 {
		of := closing
		if n%3 == 0 {
			of = remind
		}
		if _, err := o.Bury(t.Context(), add(t, cluster, of.New(uint64(n+1), "", tocsin.In(time.Hour))), "for the test"); err != nil {
			t.Fatal(err)
		}
	}
	sees := func(name string) bool { return name == "coupon.remind" }
	if done, err := o.RedriveDead(t.Context(), operator.DeadQuery{BizType: "order.close", Sees: sees}); done != (operator.Redriven{}) || !errors.Is(err, tocsin.ErrUnknownBizType) {
		t.Errorf("redriven %+v, %v", done, err)
	}
	if done, err := o.RedriveDead(t.Context(), operator.DeadQuery{Sees: sees, Limit: 4}); done.Tasks != 4 || err != nil {
		t.Errorf("redriven %+v, %v", done, err)
	}
	var tables atomic.Int64
	n, err := o.RedriveAll(t.Context(), "order.close", func(more int) { tables.Add(int64(more)) })
	if n != 20 || err != nil || tables.Load() != int64(o.Layout().Total()) {
		t.Errorf("redriven %d over %d tables, %v", n, tables.Load(), err)
	}
	if n, err := o.RedriveAll(t.Context(), "", nil); n != 6 || err != nil {
		t.Errorf("redriven %d, %v", n, err)
	}
}

func TestStatsCountEachTypeByStatus(t *testing.T) {
	t.Parallel()
	o, cluster := open(t)
	for n := range 5 {
		id := add(t, cluster, closing.New(uint64(n+1), "", tocsin.In(time.Hour)))
		switch n {
		case 0:
			if _, err := cluster.Client.Cancel(t.Context(), tocsin.ByID(id)); err != nil {
				t.Fatal(err)
			}
		case 1:
			if _, err := o.Bury(t.Context(), id, "void"); err != nil {
				t.Fatal(err)
			}
		}
	}
	late := add(t, cluster, closing.New(9, "", tocsin.In(time.Hour)))
	table := cluster.Client.Layout().Table(late.Table())
	if _, err := cluster.DB.ExecContext(t.Context(), "UPDATE "+table+" SET action_time = UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE WHERE job_id = ?", uint64(late)); err != nil {
		t.Fatal(err)
	}
	all, err := o.Stats(t.Context(), nil)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	got := all[1]
	if got.Overdue < 60 {
		t.Errorf("%+v, of which one was due a minute ago", got)
	}
	got.Overdue = 0
	if want := (operator.Stats{BizType: "order.close", Pending: 4, Cancelled: 1, Dead: 1}); got != want || all[0] != (operator.Stats{BizType: "coupon.remind"}) {
		t.Errorf("got %+v", all)
	}
}

// One policy that was edited by hand must not take the tools from the people who have other biz types.
func TestAPolicyThatCannotBeReadHidesNoOther(t *testing.T) {
	t.Parallel()
	o, cluster := open(t)
	ids := dead(t, cluster, o, 3, "no route")
	for database := range o.Layout().Databases {
		if _, err := cluster.DB.ExecContext(t.Context(), "UPDATE "+o.Layout().Database(database)+`.biz_type SET policy = '{"attempts": "8"}' WHERE name = 'coupon.remind'`); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := o.Redrive(t.Context(), ids[0]); err != nil || info.Status != tocsin.Pending || info.BizType != "order.close" {
		t.Errorf("redrive one: %+v, %v", info, err)
	}
	if found, err := o.Find(t.Context(), operator.Query{Status: tocsin.Dead, BizType: "order.close", Limit: 9}); err != nil || len(found) != 2 {
		t.Errorf("find: %+v, %v", found, err)
	}
	if stats, err := o.Stats(t.Context(), nil); err != nil || len(stats) != 1 || stats[0].Dead != 2 {
		t.Errorf("stats: %+v, %v", stats, err)
	}
	if done, err := o.RedriveDead(t.Context(), operator.DeadQuery{BizType: "order.close"}); err != nil || done.Tasks != 2 {
		t.Errorf("redrive: %+v, %v", done, err)
	}
	_, err := o.Find(t.Context(), operator.Query{Status: tocsin.Dead, BizType: "coupon.remind", Limit: 9})
	if err == nil || errors.Is(err, tocsin.ErrUnknownBizType) || !strings.Contains(err.Error(), "coupon.remind") {
		t.Errorf("of the biz type itself: %v", err)
	}
}

func TestWhatCannotBeDoneIsSaid(t *testing.T) {
	t.Parallel()
	o, cluster := open(t)
	gone := add(t, cluster, closing.New(1, "", tocsin.In(time.Hour))) + 1
	runs := func(q operator.RunsQuery) func() error {
		return func() error { _, err := o.Runs(t.Context(), q); return err }
	}
	for name, call := range map[string]struct {
		do   func() error
		want error
	}{
		"no task":  {func() error { _, err := o.Redrive(t.Context(), gone); return err }, tocsin.ErrNotFound},
		"no id":    {func() error { _, err := o.Bury(t.Context(), 0, ""); return err }, tocsin.ErrNotFound},
		"no table": {func() error { _, err := o.Bury(t.Context(), 1<<63-1, ""); return err }, tocsin.ErrNotFound},
		"limit":    {func() error { _, err := o.Find(t.Context(), operator.Query{}); return err }, tocsin.ErrInvalid},
		"swapped times": {func() error {
			_, err := o.Find(t.Context(), operator.Query{Limit: 1, From: time.Now(), To: time.Now().Add(-time.Hour)})
			return err
		}, tocsin.ErrInvalid},
		"find a type":   {func() error { _, err := o.Find(t.Context(), operator.Query{BizType: "x", Limit: 1}); return err }, tocsin.ErrUnknownBizType},
		"redrive a one": {func() error { _, err := o.RedriveAll(t.Context(), "x", nil); return err }, tocsin.ErrUnknownBizType},
		"no limit":      {runs(operator.RunsQuery{JobID: 1}), tocsin.ErrInvalid},
		"a large limit": {runs(operator.RunsQuery{JobID: 1, Limit: operator.MaxRuns + 1}), tocsin.ErrInvalid},
		"runs of none":  {runs(operator.RunsQuery{Limit: 1}), tocsin.ErrInvalid},
		"runs of both":  {runs(operator.RunsQuery{JobID: 1, Schedule: 1, Limit: 1}), tocsin.ErrInvalid},
	} {
		if err := call.do(); !errors.Is(err, call.want) {
			t.Errorf("%s: %v, want %v", name, err, call.want)
		}
	}
	now := time.Now()
	for want, q := range map[string]operator.DeadQuery{
		"is in the future: no task has died since": {Since: now.Add(time.Hour)},
		"is after until ":                          {Since: now.Add(-time.Hour), Until: now.Add(-2 * time.Hour)},
		"limit -1: use 1 or more":                  {Limit: -1},
		"per second -5: use 1 or more":             {PerSecond: -5},
		"at most 255 characters":                   {Error: strings.Repeat("x", 256)},
		"characters of UTF-8":                      {Error: "\xff"},
	} {
		if _, err := o.RedriveDead(t.Context(), q); !errors.Is(err, tocsin.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", q, err, want)
		}
	}
	cfg := cluster.Config
	cfg.Cluster = "another"
	if o, err := operator.Open(t.Context(), cfg); err == nil {
		t.Error("a cluster that is not the config's is opened: ", o.Close())
	}
}

// A server that does not answer is asked once, not for each 64 tables and each status: each question may take as long as the read time-out.
func TestAServerThatDoesNotAnswerIsNotCountedOn(t *testing.T) {
	t.Parallel()
	proxy, dsn := devtest.NewProxy(t, devtest.DSN(t))
	layout := tocsin.Layout{Databases: 1, Tables: 65, Prefix: devtest.Prefix(t)}
	cfg := tocsin.Config{Layout: layout, Cluster: layout.Prefix, Servers: []tocsin.Server{{Name: "db1", DSN: dsn}}}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{Cluster: cfg.Cluster}); err != nil {
		t.Fatal(err)
	}
	o, err := operator.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	counted := func(what string, stats func() error) {
		before := proxy.Breaks()
		if err := stats(); err == nil {
			t.Errorf("%s: no error", what)
		}
		if n := proxy.Breaks() - before; n != 1 {
			t.Errorf("%s: asked %d times", what, n)
		}
	}
	proxy.BreakAt("counts */", true, 100)
	counted("all", func() error { _, err := o.Stats(t.Context(), nil); return err })
	counted("some", func() error { _, _, err := o.StatsUpTo(t.Context(), tocsin.Pending, tocsin.Dead); return err })
}

func TestPagesHoldEachTaskOnce(t *testing.T) {
	t.Parallel()
	o, cluster := open(t)
	want := map[tocsin.JobID]bool{}
	at := time.Now().Add(time.Hour)
	for n := range 25 {
		of := closing
		if n%5 == 0 {
			of = remind
		}
		id := add(t, cluster, of.New(uint64(n+1), "", tocsin.At(at.Add(time.Duration(n/10)*time.Second))))
		want[id] = n%5 != 0
	}
	sees := func(name string) bool { return name == "order.close" }
	q := operator.Query{Status: tocsin.Pending, Sees: sees, Limit: 7}
	seen, last := 0, time.Time{}
	for {
		page, err := o.FindPage(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range page.Tasks {
			if !want[info.JobID] || info.ActionTime.Before(last) {
				t.Errorf("%+v: twice, of another biz type, or not in order", info)
			}
			want[info.JobID], last = false, info.ActionTime
			seen++
		}
		if q.After = page.Next; q.After == nil {
			break
		}
	}
	if seen != 20 {
		t.Errorf("%d tasks", seen)
	}
	if _, err := o.FindPage(t.Context(), operator.Query{BizType: "coupon.remind", Sees: sees, Limit: 1}); !errors.Is(err, tocsin.ErrUnknownBizType) {
		t.Errorf("a biz type that is not seen: %v", err)
	}
	page, err := o.FindPage(t.Context(), operator.Query{Sees: func(string) bool { return false }, Limit: 100})
	if len(page.Tasks) > 0 || page.Next != nil || err != nil {
		t.Errorf("none is seen: %+v, %v", page, err)
	}
}
