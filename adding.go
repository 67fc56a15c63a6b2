package tocsin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// AddFunc stores the tasks of a call, as AddMany or AddManyTx does: it returns what became of each, in their order, and
// an error unless all are stored, or were already.
type AddFunc func(ctx context.Context, call *Adding) ([]Added, error)

// Adding is a call of a Client that adds tasks, as the functions of Config.Use see it.
type Adding struct {
	Op    string    // add, add_tx, add_many or add_many_tx, as in Call: a task of the two with tx exists only if the caller's transaction commits
	Tasks []NewTask // one at least. They may be replaced, but neither removed, added nor reordered

	store func(ctx context.Context, tasks []NewTask) ([]Added, error)
}

// BizType returns the name of the task's biz type.
func (t NewTask) BizType() string { return t.bizType }

// BizID returns the biz_id of the task.
func (t NewTask) BizID() uint64 { return t.bizID }

// chain wraps the end of all calls in the functions of Config.Use; nil if there are none.
func chain(use []func(AddFunc) AddFunc) AddFunc {
	if len(use) == 0 {
		return nil
	}
	add := AddFunc(func(ctx context.Context, call *Adding) ([]Added, error) { return call.store(ctx, call.Tasks) })
	for _, u := range slices.Backward(use) {
		add = u(add)
	}
	return add
}

// addThrough adds one task through the functions of Config.Use.
func (c *Client) addThrough(ctx context.Context, op string, t NewTask, store func(context.Context, NewTask) (Added, error)) (Added, error) {
	added, err := c.allThrough(ctx, op, []NewTask{t}, func(ctx context.Context, tasks []NewTask) ([]Added, error) {
		a, err := store(ctx, tasks[0])
		a.Err = err
		return []Added{a}, err
	})
	one := added[0]
	err, one.Err = cmp.Or(err, one.Err), nil
	return one, err
}

// allThrough adds tasks through the functions of Config.Use. It returns as many results as there are tasks.
func (c *Client) allThrough(ctx context.Context, op string, tasks []NewTask, store func(context.Context, []NewTask) ([]Added, error)) ([]Added, error) {
	n := len(tasks)
	call := &Adding{Op: op, Tasks: slices.Clone(tasks)} // the caller's slice stays as it is
	call.store = func(ctx context.Context, tasks []NewTask) ([]Added, error) {
		if err := noContext(ctx); err != nil {
			return nil, err
		}
		if len(tasks) != n {
			return nil, refuse(ErrInvalid, "a function of Config.Use made %d tasks of %d", len(tasks), n)
		}
		return store(ctx, tasks)
	}
	added, err := c.use(ctx, call)
	if len(added) == n {
		return added, err
	}
	if err == nil {
		err = fmt.Errorf("a function of Config.Use returned %d results for %d tasks: it is not known whether they are stored", len(added), n)
	}
	added = make([]Added, n)
	return added, failAll(added, err)
}
