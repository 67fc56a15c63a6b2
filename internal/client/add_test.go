package client_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestAddStoresTheTaskAsAsked(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	at := time.Now().Add(day).Truncate(time.Millisecond).Add(time.Microsecond) // is rounded up
	added := add(t, c, closeOrder.New(math.MaxUint64, order{"A-1", 995}, tocsin.At(at)).Dedup("k\x00\xff"))
	got := get(t, c, added.JobID)
	want := tocsin.Info{
		JobID: added.JobID, BizID: math.MaxUint64, BizType: "order.close", Status: tocsin.Pending,
		ActionTime: at.UTC().Add(999 * time.Microsecond), DueTime: at.UTC().Add(999 * time.Microsecond),
		DedupKey: "k\x00\xff", Payload: `{"No":"A-1","Cent":995}`,
		Created: got.Created, Modified: got.Created, Table: c.Layout().Table(c.Layout().TableOf(math.MaxUint64)),
	}
	want.ActionTime, want.DueTime = want.ActionTime.Round(0), want.DueTime.Round(0)
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if age := time.Since(got.Created); age < -time.Minute || age > time.Minute {
		t.Errorf("created %s ago", age)
	}
}

func TestAddsCountByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	got := get(t, c, add(t, c, remind.New(5, "x", tocsin.In(30*time.Minute+time.Microsecond))).JobID)
	if want := got.Created.Add(30*time.Minute + time.Millisecond); !got.ActionTime.Equal(want) || !got.DueTime.Equal(want) {
		t.Errorf("action %s, due %s, want %s", got.ActionTime, got.DueTime, want)
	}
	asked := time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC)
	got = get(t, c, add(t, c, remind.New(5, "x", tocsin.At(asked))).JobID)
	if !got.ActionTime.Equal(got.Created) || !got.DueTime.Equal(asked) {
		t.Errorf("a past time: created %s, action %s, due %s", got.Created, got.ActionTime, got.DueTime)
	}
	added := must[[]tocsin.Added](t)(c.AddMany(t.Context(), []tocsin.NewTask{remind.New(5, "x", tocsin.In(time.Hour)), remind.New(5, "x", tocsin.At(asked))}))
	later, past := get(t, c, added[0].JobID), get(t, c, added[1].JobID)
	if late := later.ActionTime.Sub(later.Created.Add(time.Hour)).Abs(); late > 10*time.Second || !later.DueTime.Equal(later.ActionTime) {
		t.Errorf("in an hour, by AddMany: %s off, %+v", late, later)
	}
	if late := past.ActionTime.Sub(past.Created).Abs(); late > 10*time.Second || !past.DueTime.Equal(asked) {
		t.Errorf("past, by AddMany: %s off, %+v", late, past)
	}
}

func TestTheBellRingsForNearTasksAlone(t *testing.T) {
	t.Parallel()
	c, db := start(t) // the horizon is 10 s
	for name, want := range map[string]struct {
		when tocsin.When
		n    int
	}{
		"in the past":                            {tocsin.At(time.Unix(1, 0)), 1},
		"within the horizon":                     {tocsin.In(time.Second), 1},
		"beyond it, but the database has to ask": {tocsin.In(time.Minute), 0},
		"far away":                               {tocsin.In(day), 0},
	} {
		added := add(t, c, remind.New(9, "x", want.when))
		many := must[[]tocsin.Added](t)(c.AddMany(t.Context(), []tocsin.NewTask{remind.New(9, "x", want.when)}))
		if n := bells(t, c, db, added.JobID); n != want.n {
			t.Errorf("%s: %d rings", name, n)
		}
		if n := bells(t, c, db, many[0].JobID); n != want.n {
			t.Errorf("%s, by AddMany: %d rings", name, n)
		}
	}
}

func TestOneDedupKeyIsOneRowForHundredGoroutines(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]tocsin.When{"near": tocsin.In(0), "far": tocsin.In(day)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := open(t, cluster(t))
			var mu sync.Mutex
			ids, fresh := map[tocsin.JobID]int{}, 0
			var group sync.WaitGroup
			for range 100 {
				group.Go(func() {
					a, err := c.Add(t.Context(), remind.New(77, "x", when).Dedup("once"))
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					if ids[a.JobID]++; !a.Existing {
						fresh++
					}
				})
			}
			group.Wait()
			if list := listed(t, c, 77); len(list) != 1 || len(ids) != 1 || fresh != 1 {
				t.Errorf("%d rows, %d ids, %d of them new", len(list), len(ids), fresh)
			}
		})
	}
}

func TestDedupKeysAreComparedAsBytes(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	for _, key := range []string{"a", "A", "a ", "ä", "ä"[:1], strings.Repeat("k", tocsin.MaxDedupKey)} {
		if a := add(t, c, remind.New(3, "x", tocsin.In(day)).Dedup(key)); a.Existing {
			t.Errorf("%q is taken", key)
		}
	}
	for _, key := range []string{"a", "A", "a "} {
		if a := add(t, c, remind.New(3, "x", tocsin.In(day)).Dedup(key)); !a.Existing {
			t.Errorf("%q is not taken", key)
		}
	}
	if a := add(t, c, closeOrder.New(3, order{}, tocsin.In(day)).Dedup("a")); a.Existing {
		t.Error("a key of another biz type is taken")
	}
}

func TestTheExistingTaskComesWithItsStatus(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	task := remind.New(3, "x", tocsin.In(day)).Dedup("k")
	first := add(t, c, task)
	for _, status := range []tocsin.Status{tocsin.Pending, tocsin.Claimed, tocsin.Done, tocsin.Dead} {
		exec(t, db, "UPDATE "+c.Layout().Table(first.JobID.Table())+" SET status = ?", uint8(status))
		if a := add(t, c, task); a.JobID != first.JobID || !a.Existing || a.Status != status {
			t.Errorf("%s: %+v", status, a)
		}
	}
	exec(t, db, "UPDATE "+c.Layout().Table(first.JobID.Table())+" SET status = 0")
	must[tocsin.Change](t)(c.Cancel(t.Context(), tocsin.ByID(first.JobID)))
	if a := add(t, c, task); a.JobID == first.JobID || a.Existing {
		t.Errorf("after a cancel: %+v", a)
	}
}

func TestAttributesTravelUnchanged(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	for _, text := range []string{"", "plain", "'; DROP TABLE x -- ?", `\' \" \\ \0`, "\x00\x1a\r\n\t", "äöü 中文 🔔", strings.Repeat("🔔", tocsin.MaxPayload)} {
		one := add(t, c, remind.New(4, text, tocsin.In(day)))
		many := must[[]tocsin.Added](t)(c.AddMany(t.Context(), []tocsin.NewTask{remind.New(4, text, tocsin.In(day))}))
		for _, id := range []tocsin.JobID{one.JobID, many[0].JobID} {
			if got := get(t, c, id); got.Payload != text {
				t.Errorf("%.20q came back as %.20q", text, got.Payload)
			}
		}
	}
}

func TestAnEndedContextStoresNothingAndIsNoDoubt(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Add(ctx, remind.New(4, "x", tocsin.In(0)))
	if !errors.Is(err, context.Canceled) || errors.Is(err, tocsin.ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	if list := listed(t, c, 4); len(list) != 0 {
		t.Errorf("%d are stored", len(list))
	}
}

// asMany returns as many tasks as a call of this name takes here.
func asMany(op string, tasks ...tocsin.NewTask) []tocsin.NewTask {
	if strings.Contains(op, "many") {
		return tasks
	}
	return tasks[:1]
}

type traceKey struct{}

func TestEveryAddGoesThroughTheFunctionsOfUse(t *testing.T) {
	t.Parallel()
	db := session(t, devtest.DSN(t), "")
	for op, add := range adders {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			cfg := cluster(t)
			var calls []string
			var ends []tocsin.Added
			outer := func(next tocsin.AddFunc) tocsin.AddFunc {
				calls = append(calls, "made outer")
				return func(ctx context.Context, call *tocsin.Adding) ([]tocsin.Added, error) {
					calls = append(calls, fmt.Sprint("outer ", call.Op, " ", len(call.Tasks), " ", call.Tasks[0].BizType(), " ", call.Tasks[0].BizID()))
					added, err := next(context.WithValue(ctx, traceKey{}, "trace"), call)
					ends = added
					return added, err
				}
			}
			inner := func(next tocsin.AddFunc) tocsin.AddFunc {
				calls = append(calls, "made inner")
				return func(ctx context.Context, call *tocsin.Adding) ([]tocsin.Added, error) {
					calls = append(calls, fmt.Sprint("inner ", ctx.Value(traceKey{})))
					for i := range call.Tasks {
						call.Tasks[i] = call.Tasks[i].Dedup("set by use").Header("traceparent", fmt.Sprint(ctx.Value(traceKey{}), i))
					}
					return next(ctx, call)
				}
			}
			cfg.Use = []func(tocsin.AddFunc) tocsin.AddFunc{outer, inner}
			c := open(t, cfg)
			tasks := asMany(op, closeOrder.New(7, order{}, tocsin.In(time.Hour)), closeOrder.New(8, order{}, tocsin.In(time.Hour)))
			if added, err := c.AddMany(t.Context(), nil); err != nil || len(added) > 0 || len(calls) != 2 {
				t.Errorf("no tasks: %v, %v, called %q", added, err, calls)
			}
			for round, existing := range []bool{false, true} {
				calls = calls[:min(len(calls), 2)]
				added, err := add(t.Context(), c, db, tasks...)
				if err != nil || len(added) != len(tasks) || !slices.Equal(added, ends) {
					t.Fatalf("round %d: %v, added %v; the functions saw %v", round, err, added, ends)
				}
				want := []string{"made inner", "made outer", fmt.Sprintf("outer %s %d order.close 7", op, len(tasks)), "inner trace"}
				if !slices.Equal(calls, want) {
					t.Errorf("round %d: called %q, want %q", round, calls, want)
				}
				for i, a := range added {
					if info := get(t, c, a.JobID); a.Existing != existing || info.DedupKey != "set by use" || info.Header("traceparent") != fmt.Sprint("trace", i) || info.BizID != tasks[i].BizID() {
						t.Errorf("round %d: added %+v, stored %+v", round, a, info)
					}
				}
			}
		})
	}
}

func TestAFunctionOfUseRefusesTasksAndItsMistakesAreErrors(t *testing.T) {
	t.Parallel()
	db := session(t, devtest.DSN(t), "")
	refusal := errors.New("no tenant")
	mistakes := map[string]struct {
		use  func(next tocsin.AddFunc, ctx context.Context, call *tocsin.Adding) ([]tocsin.Added, error)
		says string
	}{
		"refuses": {func(tocsin.AddFunc, context.Context, *tocsin.Adding) ([]tocsin.Added, error) { return nil, refusal }, "no tenant"},
		"leaves a task out": {func(next tocsin.AddFunc, ctx context.Context, call *tocsin.Adding) ([]tocsin.Added, error) {
			call.Tasks = call.Tasks[1:]
			return next(ctx, call)
		}, "a function of Config.Use made"},
		"passes on no context": {func(next tocsin.AddFunc, _ context.Context, call *tocsin.Adding) ([]tocsin.Added, error) {
			var none context.Context
			return next(none, call)
		}, "context is nil"},
		"returns nothing": {func(tocsin.AddFunc, context.Context, *tocsin.Adding) ([]tocsin.Added, error) { return nil, nil }, "a function of Config.Use returned 0 results"},
		"spoils a task": {func(next tocsin.AddFunc, ctx context.Context, call *tocsin.Adding) ([]tocsin.Added, error) {
			call.Tasks[0] = call.Tasks[0].Dedup(strings.Repeat("x", 65))
			return next(ctx, call)
		}, "dedup_key has 65 bytes"},
		"hides an error": {func(next tocsin.AddFunc, ctx context.Context, call *tocsin.Adding) ([]tocsin.Added, error) {
			call.Tasks[0] = call.Tasks[0].Dedup(strings.Repeat("x", 65))
			added, err := next(ctx, call)
			if err == nil {
				t.Error("the function sees no error")
			}
			return added, nil
		}, "dedup_key has 65 bytes"},
	}
	shared := cluster(t)
	for op, add := range adders {
		for name, m := range mistakes {
			t.Run(op+", "+name, func(t *testing.T) {
				cfg := shared
				cfg.Use = []func(tocsin.AddFunc) tocsin.AddFunc{func(next tocsin.AddFunc) tocsin.AddFunc {
					return func(ctx context.Context, call *tocsin.Adding) ([]tocsin.Added, error) {
						return m.use(next, ctx, call)
					}
				}}
				c := open(t, cfg)
				tasks := asMany(op, closeOrder.New(7, order{}, tocsin.In(time.Hour)))
				added, err := add(t.Context(), c, db, tasks...)
				var first error
				if len(added) > 0 {
					first = added[0].Err
				}
				if len(added) != 1 || err == nil && first == nil || !strings.Contains(errors.Join(err, first).Error(), m.says) {
					t.Errorf("added %+v, %v; want an error with %q", added, err, m.says)
				}
				if infos, err := c.List(t.Context(), 7); err != nil || len(infos) > 0 {
					t.Errorf("stored %v, %v", infos, err)
				}
			})
		}
	}
}

// withinOutbox are the calls that add a task through an outbox, within one transaction.
func withinOutbox(ctx context.Context, c *tocsin.Client, tx *sql.Tx, task tocsin.NewTask) []func() ([]tocsin.Added, error) {
	other := c.OutboxTx(func(ctx context.Context, statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
	return []func() ([]tocsin.Added, error){
		func() ([]tocsin.Added, error) { a, err := c.AddTx(ctx, tx, task); return []tocsin.Added{a}, err },
		func() ([]tocsin.Added, error) { a, err := other.Add(ctx, task); return []tocsin.Added{a}, err },
		func() ([]tocsin.Added, error) { return c.AddManyTx(ctx, tx, []tocsin.NewTask{task}) },
		func() ([]tocsin.Added, error) { return other.AddMany(ctx, []tocsin.NewTask{task}) },
	}
}

func TestTasksForAnOutboxGoThroughTheFunctionsOfUseAndAreLimited(t *testing.T) {
	t.Parallel()
	cfg := withOutbox(t, cluster(t))
	var ops []string
	cfg.Use = []func(tocsin.AddFunc) tocsin.AddFunc{func(next tocsin.AddFunc) tocsin.AddFunc {
		return func(ctx context.Context, call *tocsin.Adding) ([]tocsin.Added, error) {
			ops = append(ops, call.Op)
			for i := range call.Tasks {
				call.Tasks[i] = call.Tasks[i].Dedup("set by use")
			}
			return next(ctx, call)
		}
	}}
	cfg.Inserts = map[string]tocsin.Inserts{"coupon.remind": {Rate: 0.001, Burst: 4}}
	c, own := open(t, cfg), session(t, devtest.DSN(t), "")
	tx := begin(t, own)
	calls := withinOutbox(t.Context(), c, tx, remind.New(7, "x", tocsin.In(time.Second)))
	for i, call := range append(calls, calls...) {
		added, err := call()
		if over, is := errors.AsType[*tocsin.InsertLimitError](err); is != (i >= 4) || is && (over.BizType != "coupon.remind" || over.After <= 0) || err != nil && !is {
			t.Errorf("call %d: %v", i, err)
		}
		if want := (tocsin.Added{Relayed: true}); i < 4 && added[0] != want {
			t.Errorf("call %d: added %+v", i, added)
		}
	}
	commit(t, tx)
	if want := []string{"add_tx", "add_tx", "add_many_tx", "add_many_tx"}; !slices.Equal(ops, append(want, want...)) {
		t.Errorf("called for %q, want %q twice", ops, want)
	}
	if got, one := written(t, own, cfg.Outbox.Table, 7), "add - 1000 set by use x"; got != strings.Repeat(one+"|", 4) {
		t.Errorf("wrote %s", got)
	}
}

// badTask is a task that can't be stored, and what is said of it.
type badTask struct {
	task tocsin.NewTask
	want string
}

func badTasks() map[string]badTask {
	day := tocsin.In(day)
	far := time.Now().AddDate(11, 0, 0)
	x := remind.New(1, "x", day)
	key := func(key string) tocsin.NewTask { return remind.NewKey(key, "x", day) }
	return map[string]badTask{
		"no when":                           {remind.New(1, "x", tocsin.When{}), "no action time: use tocsin.In or tocsin.At"},
		"zero time":                         {remind.New(1, "x", tocsin.At(time.Time{})), "action time is the zero time"},
		"too far at":                        {remind.New(1, "x", tocsin.At(far)), "more than 10 years away"},
		"too far in":                        {remind.New(1, "x", tocsin.In(math.MaxInt64)), "more than 10 years away"},
		"before the calendar":               {remind.New(1, "x", tocsin.At(time.Date(33, 4, 3, 0, 0, 0, 0, time.UTC))), "before the year 1000"},
		"long payload":                      {remind.New(1, strings.Repeat("ä", 8193), day), "payload has 8193 characters: at most 8192"},
		"Dedup and Unique":                  {x.Dedup("a").Unique("b", tocsin.While(tocsin.Pending, tocsin.Claimed)), "Dedup and Unique on one task: use one of both"},
		"Unique and Dedup":                  {x.Unique("b", tocsin.While(tocsin.Pending, tocsin.Claimed)).Dedup("b"), "Dedup and Unique on one task: use one of both"},
		"payload not UTF-8":                 {remind.New(1, "a\xff", day), "payload is not UTF-8"},
		"long dedup_key":                    {x.Dedup(strings.Repeat("k", 65)), "dedup_key has 65 bytes: at most 64"},
		"dedup_key of a run":                {x.Dedup("\x00k"), "dedup_key begins with a zero byte: such keys are reserved for runs of schedules"},
		"unique key of a run":               {x.Unique("\x00", live), "dedup_key begins with a zero byte: such keys are reserved for runs of schedules"},
		"no biz_id":                         {remind.New(0, "x", day), `biz type "coupon.remind": biz_id is 0`},
		"unknown biz type":                  {tocsin.Define[string]("no.such").New(1, "x", day), `unknown biz type "no.such": apply it with 'tocsin biz apply'`},
		"a name none can have":              {tocsin.Define[string]("Order.Close").New(1, "x", day), `biz type "Order.Close": use lower-case letters`},
		"no name":                           {tocsin.BizType[string]{}.New(1, "x", day), `biz type "": use lower-case letters`},
		"payload fails":                     {tocsin.Define[float64]("order.close").New(1, math.NaN(), day), "payload of type float64: json: unsupported value: NaN"},
		"the zero task":                     {tocsin.NewTask{}, "no action time: use tocsin.In or tocsin.At"},
		"no name of a header":               {x.Header("", "x"), `header "": use letters`},
		"a header with a space":             {x.Header("a b", "x"), `header "a b": use letters`},
		"a header with a hyphen first":      {x.Header("-a", "x"), `header "-a": use letters`},
		"a header not of ASCII":             {x.Header("ü", "x"), `header "ü": use letters`},
		"a header with a line break":        {x.Header("a\n", "x"), `header "a\n": use letters`},
		"a text not UTF-8":                  {x.Header("tenant", "\xff"), "header tenant is not UTF-8"},
		"a long name of a header":           {x.Header(strings.Repeat("a", 65), "x"), "at most 64, a letter or digit first"},
		"long headers":                      {x.Header("a", strings.Repeat("ü", 1025-len(`{"a":""}`))), "headers have 1025 characters as JSON"},
		"long headers of line breaks":       {x.Header("a", strings.Repeat("\n", 509)), "headers have 1026 characters as JSON"}, // each is two characters there
		"an empty key":                      {key(""), `biz type "coupon.remind": biz_key is empty`},
		"a long key":                        {key(strings.Repeat("k", 65)), "biz_key has 65 bytes: at most 64"},
		"an empty unique key":               {x.Unique("", live), "the unique key is empty"},
		"a conflict without a unique key":   {x.Dedup("k").OnConflict(tocsin.Reschedule), "OnConflict without Unique"},
		"a conflict before a dedup_key":     {x.OnConflict(tocsin.Reschedule).Dedup("k"), "OnConflict without Unique"},
		"an unknown conflict":               {x.Unique("k", live).OnConflict(9), "use Keep or Reschedule"},
		"unique while pending":              {x.Unique("k", tocsin.While(tocsin.Pending)), "Pending and Claimed must be"},
		"unique while nothing":              {x.Unique("k", tocsin.Span{}), "unique while: Pending and Claimed"},
		"unique while cancelled":            {x.Unique("k", tocsin.While(tocsin.Pending, tocsin.Claimed, tocsin.Cancelled)), "a cancel frees the key"},
		"unique while in an unknown status": {x.Unique("k", tocsin.While(tocsin.Pending, tocsin.Claimed, tocsin.Status(200))), "use Pending, Claimed, Done and Dead"},
		"a long unique key":                 {x.Unique(strings.Repeat("k", 65), live), "dedup_key has 65 bytes"},
		"a key not UTF-8":                   {key("a\xff"), `biz_key "a\xff" is not UTF-8`},
	}
}

func TestBadInputIsRefusedInOneLineAndNothingOfItIsStored(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	outboxed := withOutbox(t, cfg)
	db := session(t, devtest.DSN(t), "")
	direct, relayed := open(t, cfg), open(t, outboxed)
	fine, all := remind.New(1, "fine", tocsin.In(day)), badTasks()
	for name, bad := range all {
		kind := tocsin.ErrInvalid
		if name == "unknown biz type" {
			kind = tocsin.ErrUnknownBizType
		}
		for of, c := range map[string]*tocsin.Client{"direct": direct, "through an outbox": relayed} {
			for way, add := range adders {
				if _, err := add(t.Context(), c, db, bad.task); !errors.Is(err, kind) || !strings.Contains(err.Error(), bad.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s, %s, %s: %v, want %q", name, of, way, err, bad.want)
				}
			}
			tx := begin(t, db)
			added, err := c.AddManyTx(t.Context(), tx, []tocsin.NewTask{fine, bad.task})
			if !errors.Is(err, kind) || added[0].Err == nil || added[0].Relayed {
				t.Errorf("%s, %s, beside a task in a transaction: %+v, %v", name, of, added, err)
			}
			commit(t, tx)
		}
		added, err := direct.AddMany(t.Context(), []tocsin.NewTask{bad.task, fine})
		if !errors.Is(added[0].Err, kind) || added[0].JobID != 0 || added[1].Err != nil || added[1].JobID == 0 || !strings.HasPrefix(err.Error(), "1 of 2 tasks are not stored: 1 refused (") {
			t.Errorf("%s, beside a task: %+v, %v", name, added, err)
		}
	}
	for n := range cfg.Layout.Total() {
		if rows := count(t, db, "SELECT COUNT(*) FROM "+cfg.Layout.Table(n)+" WHERE attribute <> 'fine'"); rows != 0 {
			t.Errorf("%s has %d rows", cfg.Layout.Table(n), rows)
		}
	}
	if stored, relayed := listed(t, direct, 1), count(t, db, "SELECT COUNT(*) FROM "+outboxed.Outbox.Table); len(stored) != len(all) || relayed != 0 {
		t.Errorf("%d tasks are stored that were added beside bad ones, want %d; %d rows in the outbox", len(stored), len(all), relayed)
	}
}

func TestBadChangesAreRefused(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	id := add(t, c, remind.New(1, "x", tocsin.In(day))).JobID
	for name, bad := range map[string]struct {
		ref  tocsin.Ref
		when tocsin.When
		want string
		kind error
	}{
		"no when":                  {tocsin.ByID(id), tocsin.When{}, "no action time", tocsin.ErrInvalid},
		"no ref":                   {tocsin.Ref{}, tocsin.In(0), "no job_id and no biz_id", tocsin.ErrInvalid},
		"job_id 0":                 {tocsin.ByID(0), tocsin.In(0), "no job_id and no biz_id", tocsin.ErrInvalid},
		"unknown job_id":           {tocsin.ByID(id + 1), tocsin.In(0), "no task", tocsin.ErrNotFound},
		"job_id of another layout": {tocsin.ByID(id | 8191<<9), tocsin.In(0), "no task", tocsin.ErrNotFound},
		"a name none can have":     {tocsin.Define[int]("no such").Of(1), tocsin.In(0), `biz type "no such": use lower-case letters`, tocsin.ErrInvalid},
		"unknown biz type":         {tocsin.Define[int]("no.such").Of(1), tocsin.In(0), "unknown biz type", tocsin.ErrUnknownBizType},
	} {
		if _, err := c.Reschedule(t.Context(), bad.ref, bad.when); !errors.Is(err, bad.kind) || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := get(t, c, id); got.Version != 0 || got.Status != tocsin.Pending {
		t.Errorf("got %+v", got)
	}
}
