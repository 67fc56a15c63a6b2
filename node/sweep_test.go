package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// sweepConfig has no etcd and no node that runs.
func (p place) sweepConfig() node.Config {
	return node.Config{Tables: p.cfg, Group: "orders", Name: "sweeper", SweepGrace: node.NoGrace}
}

func TestTwoSweepsAtOnceDeliverEachOverdueTaskOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	const tasks = 2000
	var batch []tocsin.NewTask
	for id := range uint64(tasks) {
		batch = append(batch, orderClose.New(id+1, order{id + 1}, tocsin.In(0)))
	}
	later := add(t, p, orderClose.New(9999, order{}, tocsin.In(time.Hour)))
	if _, err := p.client.AddMany(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[tocsin.JobID]int{}
	var h node.Handlers
	node.Handle(&h, orderClose, func(_ context.Context, task *tocsin.Task[order]) error {
		mu.Lock()
		defer mu.Unlock()
		seen[task.JobID]++
		return nil
	})
	results := make(chan node.SweepResult, 2)
	for range 2 {
		s, err := node.NewSweeper(p.sweepConfig(), &h)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			result, err := s.Sweep(context.Background())
			if err != nil {
				t.Error(err)
			}
			results <- result
		}()
	}
	a, b := receive(t, results, "a sweep"), receive(t, results, "the other sweep")
	t.Logf("%s\n%s", a, b)
	if a.Delivered+b.Delivered != tasks || a.Tables != 8 || b.Tables != 8 {
		t.Errorf("the sweeps delivered %d + %d in %d and %d tables, want %d in all and 8 tables each", a.Delivered, b.Delivered, a.Tables, b.Tables, tasks)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("task %s was delivered %d times", id, n)
		}
	}
	if info, err := p.client.Get(t.Context(), later); err != nil || info.Status != tocsin.Pending {
		t.Errorf("the task that is not due: %+v, %v", info, err)
	}
}

// A task that its handler completes in its own transaction counts as delivered.
func TestSweepCountsWhatHandlersComplete(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	for id := range uint64(20) {
		add(t, p, orderClose.New(id+1, order{id + 1}, tocsin.In(0)))
	}
	db := openDB(t, p.cfg.Servers[0].DSN)
	var h node.Handlers
	node.Handle(&h, orderClose, func(ctx context.Context, task *tocsin.Task[order]) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return errors.Join(tocsin.CompleteTx(ctx, tx, task.Info), tx.Commit())
	})
	s, err := node.NewSweeper(p.sweepConfig(), &h)
	if err != nil {
		t.Fatal(err)
	}
	if result, err := s.Sweep(t.Context()); err != nil || result.Delivered != 20 || result.Elsewhere != 0 {
		t.Errorf("%s, %v", result, err)
	}
}

func TestSweepWaitsForTheGraceTime(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	add(t, p, orderClose.New(1, order{1}, tocsin.In(0)))
	var h node.Handlers
	node.Handle(&h, orderClose, func(context.Context, *tocsin.Task[order]) error { return nil })
	cfg := p.sweepConfig()
	cfg.SweepGrace = 0 // the default, a minute
	s, err := node.NewSweeper(cfg, &h)
	if err != nil {
		t.Fatal(err)
	}
	if result, err := s.Sweep(t.Context()); err != nil || result.Overdue != 0 {
		t.Errorf("%s, %v", result, err)
	}
}

// Nothing can be claimed on a full disk, so the sweep's time runs out.
func TestASweepNamesTheServerWhoseDiskIsFull(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	add(t, p, orderClose.New(p.bizIDIn(1, 0), order{1}, tocsin.In(0)))
	db := openDB(t, p.cfg.Servers[0].DSN)
	for table := range p.cfg.Layout.Tables {
		p.do(t, db, []string{fmt.Sprintf(`CREATE TRIGGER {db}.full_%d BEFORE UPDATE ON {db}.task_%04d FOR EACH ROW
			SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1030, MESSAGE_TEXT = 'Got error 28 "No space left on device" from storage engine InnoDB'`,
			table, table)})
	}
	var h node.Handlers
	node.Handle(&h, orderClose, func(context.Context, *tocsin.Task[order]) error {
		t.Error("a task was delivered that could not be claimed")
		return nil
	})
	cfg := p.sweepConfig()
	cfg.SweepTimeout = 15 * time.Second
	s, err := node.NewSweeper(cfg, &h)
	if err != nil {
		t.Fatal(err)
	}
	result, err := s.Sweep(t.Context())
	if err == nil || !strings.Contains(err.Error(), "sweep server "+p.cfg.Servers[0].Name) || !strings.Contains(err.Error(), "No space left on device") {
		t.Errorf("%s, %v", result, err)
	}
	if !slices.Equal(result.Failed, []string{p.cfg.Servers[0].Name}) || result.Left["order.close (no time left)"] != 1 {
		t.Errorf("failed %v, left %v", result.Failed, result.Left)
	}
}

// A server that does not answer any more is cut off with the sweep.
func TestASweepNamesTheServerThatHangs(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	proxy, dsn := devtest.NewProxy(t, p.cfg.Servers[0].DSN)
	p.cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn}}
	_, release := proxy.HoldAt("/* tocsin peek */")
	defer release()
	var h node.Handlers
	node.Handle(&h, orderClose, func(context.Context, *tocsin.Task[order]) error { return nil })
	cfg := p.sweepConfig()
	cfg.SweepTimeout = 15 * time.Second
	s, err := node.NewSweeper(cfg, &h)
	if err != nil {
		t.Fatal(err)
	}
	if result, err := s.Sweep(t.Context()); err == nil || !strings.Contains(err.Error(), "sweep server db1: no answer for ") {
		t.Errorf("%s, %v", result, err)
	}
}
