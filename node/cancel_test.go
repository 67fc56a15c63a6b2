package node_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// heldAtMost is how long before its action time a task may be loaded. A cancel that
// succeeds later than that may not stop the delivery, as docs/architecture.md says.
const heldAtMost = 10 * time.Millisecond

// long reports whether the tests play long scenarios, as `make faults` does.
func long() bool { return os.Getenv("TOCSIN_FAULTS") != "" }

// Tasks are cancelled from 0 to 20 ms before they are due. By the server's clock, no
// task is delivered if its cancel had committed 10 ms ahead, and no strict task if
// its cancel succeeded at all.
func TestACancelTenMillisecondsAheadWins(t *testing.T) {
	t.Parallel()
	for name, strict := range map[string]bool{"plain": false, "strict": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := closePolicy()
			policy.Strict = strict
			p := newPlace(t, policy)
			db := openDB(t, p.cfg.Servers[0].DSN)
			c := &cancels{place: p, db: db, delivered: map[tocsin.JobID]bool{}}
			h := closing(func(_ context.Context, task *tocsin.Task[order]) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.delivered[task.JobID] = true
				return nil
			})
			_, stop := run(t, p.config("orders"), h)
			await(t, p, add(t, p, orderClose.New(1, order{1}, tocsin.In(0))), "a first delivery", withStatus(tocsin.Done))
			c.play(t)
			stop()
			c.judge(t, strict)
		})
	}
}

// cancels are tasks that are cancelled shortly before they are due.
type cancels struct {
	place
	db    *sql.DB
	tasks []cancelled

	mu        sync.Mutex
	delivered map[tocsin.JobID]bool
}

// cancelled is a task whose cancel succeeded.
type cancelled struct {
	id     tocsin.JobID
	before time.Duration // how long before it was due its cancel had committed, at least, by the server's clock
}

// play adds tasks and cancels each a few milliseconds before its time.
func (c *cancels) play(t *testing.T) {
	rounds := 4
	if long() {
		rounds = 200
	}
	var wg sync.WaitGroup
	for i := range rounds * 21 {
		due := time.Now().Add(100 * time.Millisecond) // the server's clock is this machine's
		added, err := c.client.Add(t.Context(), orderClose.New(uint64(i+2), order{}, tocsin.At(due)))
		if err != nil {
			t.Fatal(err)
		}
		at := due.Add(-time.Duration(i%21) * time.Millisecond)
		wg.Go(func() { c.cancel(t, added.JobID, due, at) })
		<-time.After(3 * time.Millisecond)
	}
	wg.Wait()
}

func (c *cancels) cancel(t *testing.T, id tocsin.JobID, due, at time.Time) {
	<-time.After(time.Until(at))
	change, err := c.client.Cancel(t.Context(), tocsin.ByID(id))
	if errors.Is(err, tocsin.ErrInDelivery) { // strict: the claim came first
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	committed := clockOf(t, c.db)
	if change.Changed == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tasks = append(c.tasks, cancelled{id, due.Sub(committed)})
}

// judge prints how many cancelled tasks were delivered, by how far ahead their cancel
// had committed.
func (c *cancels) judge(t *testing.T, strict bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, delivered := map[int]int{}, map[int]int{}
	for _, task := range c.tasks {
		ms := int(task.before / time.Millisecond)
		if task.before < 0 {
			ms = -1
		}
		all[ms]++
		if !c.delivered[task.id] {
			continue
		}
		delivered[ms]++
		if strict || task.before >= heldAtMost {
			t.Errorf("delivered although cancelled %v before it was due", task.before)
		}
	}
	if len(c.tasks) == 0 {
		t.Fatal("no cancel came in time")
	}
	var curve strings.Builder
	for ms := -1; ms <= 20; ms++ {
		fmt.Fprintf(&curve, " %d:%d/%d", ms, delivered[ms], all[ms])
	}
	t.Logf("delivered of cancelled, by whole ms that the cancel had committed before the task was due (-1: after):%s", curve.String())
}

// TestACallbackIsCutOffWhenItsTaskIsCancelled: its request ends, though it is far from its time-out, and nothing is retried.
func TestACallbackIsCutOffWhenItsTaskIsCancelled(t *testing.T) {
	t.Parallel()
	begun, cut := make(chan struct{}, 9), make(chan struct{}, 9)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the caller is gone
		begun <- struct{}{}
		<-r.Context().Done()
		cut <- struct{}{}
	}))
	t.Cleanup(server.Close)
	p := newPlace(t, biztype.Policy{
		Name: "coupon.remind", Number: 2, Timeout: biztype.Duration(5 * time.Minute), History: true,
		Webhook: &biztype.Webhook{URL: server.URL, Allow: []string{"127.0.0.0/8"}},
	})
	run(t, p.config(""), nil)
	id := add(t, p, tocsin.Define[string]("coupon.remind").New(1, "x", tocsin.In(0)))
	receive(t, begun, "the callback")
	if change, err := p.client.Cancel(t.Context(), tocsin.ByID(id)); err != nil || change != (tocsin.Change{Changed: 1, InDelivery: 1}) {
		t.Errorf("%+v, %v", change, err)
	}
	receive(t, cut, "the end of the request")
	if info := await(t, p, id, "its end", withStatus(tocsin.Cancelled)); info.Attempts != 0 || info.LastError != "" {
		t.Errorf("%+v", info)
	}
}
