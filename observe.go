package tocsin

import (
	"errors"
	"time"
)

// Call describes a call of a Client that has ended, for Config.Observe.
type Call struct {
	Op    string // add, add_tx, add_many, add_many_tx, cancel, cancel_tx, reschedule, reschedule_tx, get or list
	Took  time.Duration
	Err   error   // that the call returned
	Tasks []Tasks // of the calls that add: one for each biz type
}

// Tasks counts the tasks of one biz type that a call was to add.
type Tasks struct {
	BizType  string // "" if it was not looked up, or there is none of that name
	New      int    // stored; those of AddTx only if the caller's transaction commits
	Existing int    // there already, by their dedup_key
	Failed   int
}

func (t *Tasks) count(added Added, err error) {
	switch {
	case err != nil:
		t.Failed++
	case added.Existing:
		t.Existing++
	default:
		t.New++
	}
}

// typeOf returns the biz type of a task. Names that a program makes up would otherwise be labels without bound.
func typeOf(t NewTask, err error) string {
	if errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnknownBizType) {
		return ""
	}
	return t.bizType
}

// begin returns when a call begins; the zero time if nobody observes.
func (c *Client) begin() time.Time {
	if c.told == nil {
		return time.Time{}
	}
	return time.Now()
}

func (c *Client) observe(op string, begin time.Time, err *error) {
	if c.told != nil {
		c.told(Call{Op: op, Took: time.Since(begin), Err: *err})
	}
}

func (c *Client) observeAdd(op string, begin time.Time, t NewTask, added *Added, err *error) {
	if c.told == nil {
		return
	}
	tasks := Tasks{BizType: typeOf(t, *err)}
	tasks.count(*added, *err)
	c.told(Call{Op: op, Took: time.Since(begin), Err: *err, Tasks: []Tasks{tasks}})
}

func (c *Client) observeAll(op string, begin time.Time, tasks []NewTask, added *[]Added, err *error) {
	if c.told == nil {
		return
	}
	call := Call{Op: op, Took: time.Since(begin), Err: *err}
	index := make(map[string]int)
	for i, a := range *added {
		name := typeOf(tasks[i], a.Err)
		at, known := index[name]
		if !known {
			at = len(call.Tasks)
			index[name] = at
			call.Tasks = append(call.Tasks, Tasks{BizType: name})
		}
		call.Tasks[at].count(a, a.Err)
	}
	c.told(call)
}
