package operator_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// dying adds tasks that have died, one a minute from begin on: 14 in turns of two biz types, and then one.
func dying(t *testing.T, cluster *tocsintest.Cluster, begin time.Time) (died []tocsin.JobID) {
	t.Helper()
	layout := cluster.Client.Layout()
	kill := func(of tocsin.BizType[string], lastError string) {
		t.Helper()
		id := add(t, cluster, of.New(uint64(len(died)+1), "", tocsin.In(time.Hour)))
		at := begin.Add(time.Duration(len(died)) * time.Minute).Format("2006-01-02 15:04:05")
		if _, err := cluster.DB.ExecContext(t.Context(), "UPDATE "+layout.Table(id.Table())+" SET status = 4, action_time = ?, last_error = ? WHERE job_id = ?", at, lastError, uint64(id)); err != nil {
			t.Fatal(err)
		}
		died = append(died, id)
	}
	for n := range 7 {
		kill(closing, fmt.Sprintf("callback answered 503 Service Unavailable: order %d is locked", n))
		kill(remind, fmt.Sprintf("dial tcp 10.0.0.%d:443: connection refused", n))
	}
	kill(closing, "callback answered 404 Not Found")
	return died
}

func TestDeadTasksAreGroupedByTypeAndError(t *testing.T) {
	t.Parallel()
	o, cluster := open(t)
	begin := time.Now().UTC().Truncate(time.Second).Add(-3 * time.Hour)
	died := dying(t, cluster, begin)
	at := func(minutes int) time.Time { return begin.Add(time.Duration(minutes) * time.Minute) }
	newest := func(places ...int) (ids []tocsin.JobID) {
		for _, i := range places {
			ids = append(ids, died[i])
		}
		return ids
	}
	locked := operator.DeadGroup{
		BizType: "order.close", Error: "callback answered 503 Service Unavailable: order * is locked", Part: "callback answered 503 Service Unavailable: order",
		Example: "callback answered 503 Service Unavailable: order 6 is locked",
		Tasks:   7, First: at(0), Last: at(12), JobIDs: newest(12, 10, 8, 6, 4),
	}
	refused := operator.DeadGroup{
		BizType: "coupon.remind", Error: "dial tcp *: connection refused", Part: ": connection refused", Example: "dial tcp 10.0.0.6:443: connection refused", Tasks: 7, First: at(1), Last: at(13), JobIDs: newest(13, 11, 9, 7, 5),
	}
	missing := operator.DeadGroup{
		BizType: "order.close", Error: "callback answered 404 Not Found", Part: "callback answered 404 Not Found", Example: "callback answered 404 Not Found", Tasks: 1, First: at(14), Last: at(14), JobIDs: newest(14),
	}
	early, late := refused, refused
	early.Example = "dial tcp 10.0.0.1:443: connection refused"
	early.Tasks, early.Last, early.JobIDs = 2, at(3), newest(3, 1)
	late.Tasks, late.First, late.JobIDs = 1, at(13), newest(13)
	for name, c := range map[string]struct {
		q    operator.DeadQuery
		want []operator.DeadGroup
	}{
		"all":              {operator.DeadQuery{}, []operator.DeadGroup{refused, locked, missing}},
		"of a type":        {operator.DeadQuery{BizType: "order.close"}, []operator.DeadGroup{locked, missing}},
		"of ours":          {operator.DeadQuery{Sees: func(name string) bool { return name == "coupon.remind" }}, []operator.DeadGroup{refused}},
		"until, inclusive": {operator.DeadQuery{BizType: "coupon.remind", Until: at(3)}, []operator.DeadGroup{early}},
		"since, inclusive": {operator.DeadQuery{BizType: "coupon.remind", Since: at(13)}, []operator.DeadGroup{late}},
		"none":             {operator.DeadQuery{Since: at(15)}, nil},
	} {
		got, err := o.DeadGroups(t.Context(), c.q)
		if err != nil || got.More || !slices.EqualFunc(got.Groups, c.want, same) || got.Groups == nil {
			t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, c.want)
		}
		for _, g := range got.Groups { // a redrive finds them by the part
			all, err := o.RedriveDead(t.Context(), operator.DeadQuery{BizType: g.BizType, Error: g.Part, Since: c.q.Since, Until: c.q.Until, DryRun: true})
			if err != nil || all.Tasks != g.Tasks {
				t.Errorf("%s: a redrive of %q finds %+v, %v, want %d", name, g.Part, all, err, g.Tasks)
			}
		}
	}
	if _, err := o.DeadGroups(t.Context(), operator.DeadQuery{BizType: "coupon.remind", Sees: func(string) bool { return false }}); !errors.Is(err, tocsin.ErrUnknownBizType) {
		t.Error(err)
	}
	if _, err := o.DeadGroups(t.Context(), operator.DeadQuery{Since: time.Now().Add(time.Hour)}); !errors.Is(err, tocsin.ErrInvalid) {
		t.Error(err)
	}
}

func same(a, b operator.DeadGroup) bool {
	ids := slices.Equal(a.JobIDs, b.JobIDs)
	a.JobIDs, b.JobIDs = nil, nil
	return ids && fmt.Sprint(a) == fmt.Sprint(b)
}

// Of more dead tasks than are read, it says that there may be more; until is where to go on.
func TestTheLatestDeadTasksAreGroupedAndTheRestIsSaid(t *testing.T) {
	t.Parallel()
	o, cluster := open(t)
	tasks := make([]tocsin.NewTask, operator.MaxGrouped+50)
	for i := range tasks {
		tasks[i] = closing.New(uint64(i+1), "", tocsin.In(time.Hour))
	}
	if _, err := cluster.Client.AddMany(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	for table := range o.Layout().Total() {
		if _, err := cluster.DB.ExecContext(t.Context(), "UPDATE "+o.Layout().Table(table)+
			" SET status = 4, action_time = TIMESTAMP'2026-11-01 00:00:00' + INTERVAL biz_id SECOND, last_error = 'no route'"); err != nil {
			t.Fatal(err)
		}
	}
	first, err := o.DeadGroups(t.Context(), operator.DeadQuery{})
	if err != nil || !first.More || first.Tasks != operator.MaxGrouped || len(first.Groups) != 1 || first.Groups[0].Tasks != operator.MaxGrouped {
		t.Fatalf("%+v, %v", first, err)
	}
	rest, err := o.DeadGroups(t.Context(), operator.DeadQuery{Until: first.Groups[0].First.Add(-time.Millisecond)})
	if err != nil || rest.More || rest.Tasks != 50 {
		t.Errorf("%+v, %v", rest, err)
	}
	if within, err := o.DeadGroups(t.Context(), operator.DeadQuery{Since: first.Groups[0].First.Add(time.Second)}); err != nil || within.More || within.Tasks != operator.MaxGrouped-1 {
		t.Errorf("%+v, %v", within, err)
	}
}
