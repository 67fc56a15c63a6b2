package tocsin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// adds are the calls that add tasks. Each returns as many results as it got tasks.
var adds = map[string]func(t *testing.T, c *tocsin.Client, dsn string, ctx context.Context, tasks []tocsin.NewTask) ([]tocsin.Added, error){
	"add": func(_ *testing.T, c *tocsin.Client, _ string, ctx context.Context, tasks []tocsin.NewTask) ([]tocsin.Added, error) {
		added, err := c.Add(ctx, tasks[0])
		return []tocsin.Added{added}, err
	},
	"add_many": func(_ *testing.T, c *tocsin.Client, _ string, ctx context.Context, tasks []tocsin.NewTask) ([]tocsin.Added, error) {
		return c.AddMany(ctx, tasks)
	},
	"add_tx": func(t *testing.T, c *tocsin.Client, dsn string, ctx context.Context, tasks []tocsin.NewTask) ([]tocsin.Added, error) {
		tx := begin(t, session(t, dsn, ""))
		added, err := c.AddTx(ctx, tx, tasks[0])
		return []tocsin.Added{added}, errors.Join(err, tx.Commit())
	},
	"add_many_tx": func(t *testing.T, c *tocsin.Client, dsn string, ctx context.Context, tasks []tocsin.NewTask) ([]tocsin.Added, error) {
		tx := begin(t, session(t, dsn, ""))
		added, err := c.AddManyTx(ctx, tx, tasks)
		return added, errors.Join(err, tx.Commit())
	},
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
	dsn := devtest.DSN(t)
	for op, add := range adds {
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
				added, err := add(t, c, dsn, t.Context(), tasks)
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
	dsn := devtest.DSN(t)
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
	for op, add := range adds {
		for name, m := range mistakes {
			t.Run(op+", "+name, func(t *testing.T) {
				t.Parallel()
				cfg := cluster(t)
				cfg.Use = []func(tocsin.AddFunc) tocsin.AddFunc{func(next tocsin.AddFunc) tocsin.AddFunc {
					return func(ctx context.Context, call *tocsin.Adding) ([]tocsin.Added, error) {
						return m.use(next, ctx, call)
					}
				}}
				c := open(t, cfg)
				tasks := asMany(op, closeOrder.New(7, order{}, tocsin.In(time.Hour)))
				added, err := add(t, c, dsn, t.Context(), tasks)
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

func TestTasksForAnOutboxGoThroughTheFunctionsOfUse(t *testing.T) {
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
	c := open(t, cfg)
	own := session(t, devtest.DSN(t), "")
	tx := begin(t, own)
	other := c.OutboxTx(func(ctx context.Context, statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
	task := remind.New(7, "x", tocsin.In(time.Second))
	added := []tocsin.Added{must[tocsin.Added](t)(c.AddTx(t.Context(), tx, task)), must[tocsin.Added](t)(other.Add(t.Context(), task))}
	added = append(added, must[[]tocsin.Added](t)(c.AddManyTx(t.Context(), tx, []tocsin.NewTask{task}))...)
	added = append(added, must[[]tocsin.Added](t)(other.AddMany(t.Context(), []tocsin.NewTask{task}))...)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, a := range added {
		if a != (tocsin.Added{Relayed: true}) {
			t.Errorf("added %+v", a)
		}
	}
	if want := []string{"add_tx", "add_tx", "add_many_tx", "add_many_tx"}; !slices.Equal(ops, want) {
		t.Errorf("called for %q, want %q", ops, want)
	}
	if got, one := written(t, own, cfg.Outbox.Table, 7), "add - 1000 set by use x"; got != strings.Repeat(one+"|", 4) {
		t.Errorf("wrote %s", got)
	}
}
