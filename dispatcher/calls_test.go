package dispatcher

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// answer says how long a delivery takes, whatever becomes of its context, and how it ends.
type answer func(tocsin.Info) (time.Duration, error)

// ends is the answer to all tasks.
func ends(took time.Duration, err error) answer {
	return func(tocsin.Info) (time.Duration, error) { return took, err }
}

// call is one delivery.
type call struct {
	id    tocsin.JobID
	bizID uint64
	at    time.Time
}

// calls is a target that notes each delivery. A biz_id is that of one task unless a test gives it to several.
type calls struct {
	mu    sync.Mutex
	next  answer         // nil: at once, and well
	begun []call         // in order
	now   map[uint64]int // under way, by biz_id
	most  map[uint64]int // at once, by biz_id
	all   int            // at once
}

func newCalls(a answer) *calls {
	return &calls{next: a, now: make(map[uint64]int), most: make(map[uint64]int)}
}

// answers sets the answer from now on.
func (c *calls) answers(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = a
}

func (c *calls) deliver(_ context.Context, task tocsin.Info) (err error) {
	c.mu.Lock()
	c.begun = append(c.begun, call{task.JobID, task.BizID, time.Now()})
	c.now[task.BizID]++
	c.most[task.BizID] = max(c.most[task.BizID], c.now[task.BizID])
	under := 0
	for _, n := range c.now {
		under += n
	}
	c.all = max(c.all, under)
	next, took := c.next, time.Duration(0)
	c.mu.Unlock()
	if next != nil {
		took, err = next(task)
	}
	time.Sleep(took)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[task.BizID]--
	return err
}

// of returns how often the task came.
func (c *calls) of(id tocsin.JobID) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.begun {
		if one.id == id {
			n++
		}
	}
	return n
}

// first returns when the task came first; false: it has not come.
func (c *calls) first(id tocsin.JobID) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.begun, func(one call) bool { return one.id == id })
	if i < 0 {
		return time.Time{}, false
	}
	return c.begun[i].at, true
}

// order returns the tasks of a biz_id that came, in order.
func (c *calls) order(bizID uint64) (ids []tocsin.JobID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.begun {
		if one.bizID == bizID {
			ids = append(ids, one.id)
		}
	}
	return ids
}

// seen returns how many deliveries began, and the most of one biz_id at once.
func (c *calls) seen() (began, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.most {
		most = max(most, n)
	}
	return len(c.begun), most
}

// inBubble runs f with a dispatcher of a type with one slot, whose target are the calls.
func (c *calls) inBubble(t *testing.T, f func(*rig)) {
	t.Helper()
	inBubble(t, oneSlot(), c.deliver, f)
}
