package nodetest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// patience bounds Config on a busy machine.
const patience = time.Minute

// Config is the config of a node that delivers the biz types of tocsintest.Start. It
// logs warnings to the test. From then on nobody owns tables in the cluster, and
// nodes claim each row (node.ByRows), so no etcd is needed.
func Config(tb testing.TB, c *tocsintest.Cluster) node.Config {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if _, err := ddl.SetOwnership(ctx, c.Config, node.ByRows, false); err != nil {
		tb.Fatalf("nodetest: %v", err)
	}
	cfg := config(tb, c)
	cfg.Ownership = node.ByRows
	return cfg
}

func config(tb testing.TB, c *tocsintest.Cluster) node.Config {
	return node.Config{
		Tables: c.Config, Group: tocsintest.Group, Name: "test", SweepGrace: node.NoGrace, SweepTimeout: node.NoTimeout,
		Getenv: getenv,
		Logger: slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// Delivery is a task as the handler got it, and what came of it.
type Delivery struct {
	Task    tocsin.Info
	Outcome node.Outcome
}

// String gives a line: "order.close 7: retry: no stock". A task with a business key is
// named by the key: "order.close ord_01J8Z3: complete".
func (d Delivery) String() string {
	of := cmp.Or(d.Task.BizKey, strconv.FormatUint(d.Task.BizID, 10))
	text := fmt.Sprintf("%s %s: %s", d.Task.BizType, of, d.Outcome.Verb)
	if d.Outcome.Reason != "" {
		text += ": " + d.Outcome.Reason
	}
	return text
}

// mostDeliveries is how often RunDue delivers one task: one that is put off again
// and again would never end.
const mostDeliveries = 100

// RunDue delivers every task with a handler, or with a callback, that is due until then, without waiting for the time, and
// returns the deliveries in the order of their ends. Tasks come in the order of their action times, those of one second
// together, as the policies of their types say; those that are overdue already come first. So a task that cancels a later one
// in its handler does so in time.
//
// What a delivery puts off or adds is delivered too, if it is due until then by the clock of today: a retry in 5 s that fails
// each time has all its attempts if until is an hour ahead. A handler sees the task's own DueTime, which may be in the
// future, and an ActionTime of now. Tasks that are due later stay as they are, and those of paused types or without a handler
// too. No node may run on the cluster meanwhile.
//
// The clock does not move: a task that a handler adds with tocsin.In counts from now, not from the time of the handler's own
// task. In a chain use tocsin.At(task.DueTime.Add(d)), or the next link comes too early here.
func RunDue(tb testing.TB, c *tocsintest.Cluster, h *node.Handlers, until time.Time) []Delivery {
	tb.Helper()
	r := &run{cluster: c, until: until, times: map[tocsin.JobID]int{}, held: map[tocsin.JobID]bool{}}
	cfg := config(tb, c)
	cfg.OnOutcome = r.note
	s, err := node.NewSweeper(cfg, h)
	if err != nil {
		tb.Fatalf("nodetest: %v", err)
	}
	for more := true; more; {
		before := len(r.all)
		if more, err = r.step(tb.Context(), s); err != nil {
			tb.Fatalf("nodetest: %v", err)
		}
		for _, d := range r.all[before:] {
			if r.times[d.Task.JobID] > mostDeliveries {
				tb.Fatalf("nodetest: delivered %d times, and due again: %s", r.times[d.Task.JobID], d)
			}
		}
	}
	return r.all
}
