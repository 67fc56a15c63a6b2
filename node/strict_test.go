package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// handling returns handlers of these biz types, which send what they get.
func handling(got chan uint64, names ...string) *node.Handlers {
	var h node.Handlers
	for _, name := range names {
		node.Handle(&h, tocsin.Define[order](name), func(_ context.Context, task *tocsin.Task[order]) error { got <- task.BizID; return nil })
	}
	return &h
}

// Not parallel: it replaces the process's default logger.
func TestANodeWithoutALoggerWarnsThroughTheDefaultLogger(t *testing.T) {
	p := newPlace(t, closePolicy())
	var log devtest.Log
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(log.Logger())
	_, stop := run(t, p.config("shop"), handling(make(chan uint64, 1), "order.close"))
	line := log.Await(t, "a handler gets no task")
	if line["level"] != "warn" || line["biz_type"] != "order.close" || !strings.Contains(fmt.Sprint(line["why"]), "names group orders, and this node is in group shop") {
		t.Errorf("logged %v", line)
	}
	stop()
	if lines := log.Lines("node has ended", "node runs"); len(lines) != 0 {
		t.Errorf("logged %v, which is no warning", lines)
	}
}

func TestAStrictNodeDeliversNothingIfSomethingWouldWait(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		id := add(t, p, orderClose.New(1, order{1}, tocsin.In(0)))
		greeting := add(t, p, tocsin.Define[order]("user.greet").New(2, order{2}, tocsin.In(0)))
		for name, c := range map[string]struct {
			group    string
			handlers []string
			says     string
		}{
			"a wrong group":       {"shop", []string{"order.close"}, "strict: a handler gets no task: order.close (the policy of its biz type names group orders"},
			"no policy":           {"orders", []string{"order.close", "order.opne"}, "strict: a handler gets no task: order.opne (its biz type has no policy"},
			"no handler anywhere": {"users", []string{"user.greet"}, "strict: a biz type can't be delivered by any node of group users: user.part (biz type user.part has no handler in this program"},
		} {
			got := make(chan uint64, 10)
			cfg := p.config(c.group)
			cfg.Strict = true
			n, err := node.New(cfg, handling(got, c.handlers...))
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), c.says) {
				t.Errorf("%s: it ran, and said %v; want %q", name, err, c.says)
			}
			for _, id := range []tocsin.JobID{id, greeting} {
				if info, err := p.client.Get(t.Context(), id); err != nil || info.Status != tocsin.Pending || info.Version != 0 || len(got) > 0 {
					t.Errorf("%s: a task is %s, %v; %d were delivered", name, info.Status, err, len(got))
				}
			}
		}
	}, biztype.Policy{Name: "user.greet", Number: 2, Group: "users"}, biztype.Policy{Name: "user.part", Number: 3, Group: "users"})
}

func TestAStrictNodeRunsIfAnotherHasWhatItLacks(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, p place) {
		got := make(chan uint64, 10)
		cfg := p.config("orders")
		cfg.Name, cfg.Strict = "whole", true
		run(t, cfg, handling(got, "order.close", "order.open"))
		add(t, p, orderClose.New(1, order{1}, tocsin.In(0)))
		receive(t, got, "a delivery of the node that has both")
		cfg.Name = "part"
		part, err := node.New(cfg, handling(got, "order.close"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		start := func() { go func() { ended <- part.Run(ctx) }() }
		start()
		until(t, "the other one runs too", func() bool {
			select {
			case err := <-ended: // it has not seen the first one yet
				if !strings.HasPrefix(fmt.Sprint(err), "strict: a biz type can't be delivered by any node of group orders: order.open ") {
					t.Errorf("it ended with %v", err)
				}
				start()
			default:
			}
			report, running := part.Report()
			return running && report.Lacks["order.open"] != ""
		})
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	}, biztype.Policy{Name: "order.open", Number: 2, Group: "orders"})
}

func TestAStrictNodeRunsWhileAServerIsAwayIfAnotherOneTellsWhoHasWhatItLacks(t *testing.T) {
	t.Parallel()
	p := newOpenPlace(t, biztype.Policy{Name: "order.open", Number: 2, Group: "orders"})
	got := make(chan uint64, 10)
	whole, _ := run(t, p.config("orders"), handling(got, "order.close", "order.open"))
	shares(t, 16, whole)
	apart, way := p.throughRelay(t)
	way.Cut()
	cfg := apart.config("orders")
	cfg.Name, cfg.Strict = "part", true
	part, _ := run(t, cfg, handling(got, "order.close"))
	until(t, "it runs", func() bool {
		report, running := part.Report()
		return running && report.Lacks["order.open"] != ""
	})
}

func TestALogLineOfAHandlerNamesItsTask(t *testing.T) {
	t.Parallel()
	var log devtest.Log
	logger := slog.New(node.LogHandler(log.Logger().Handler())).With("service", "shop")
	p := newPlace(t, biztype.Policy{Name: "order.close", Number: 1, Group: "orders", Attempts: 3, Backoff: biztype.Backoff{Base: biztype.Duration(1e6), Max: biztype.Duration(1e6)}},
		biztype.Policy{Name: "order.open", Number: 2, Group: "orders"})
	open := tocsin.Define[order]("order.open")
	h := closing(func(ctx context.Context, task *tocsin.Task[order]) error {
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		logger.InfoContext(inner, "closing")
		if task.Attempts == 0 {
			return errors.New("no stock")
		}
		return nil
	})
	node.HandleBatch(h, open, 2, func(ctx context.Context, tasks []*tocsin.Task[order]) []error {
		logger.With("of", "shop").InfoContext(ctx, fmt.Sprint("opening ", len(tasks)))
		return nil
	})
	logger.InfoContext(t.Context(), "starting")
	id := add(t, p, orderClose.New(7, order{7}, tocsin.In(0)))
	run(t, p.config("orders"), h)
	await(t, p, id, "its end", withStatus(tocsin.Done))
	until(t, "two tasks are delivered together", func() bool {
		_, err := p.client.AddMany(t.Context(), []tocsin.NewTask{open.New(8, order{8}, tocsin.In(0)), open.New(8, order{9}, tocsin.In(0))})
		return err != nil || len(log.Lines("opening 2")) > 0
	})
	both := log.Await(t, "opening 2")
	if ids, _ := both["job_ids"].([]any); both["biz_type"] != "order.open" || both["tasks"] != 2. || both["service"] != "shop" || len(ids) != 2 || ids[0] == ids[1] {
		t.Errorf("logged %v for two tasks", both)
	}
	lines := log.Lines("closing")
	if len(lines) != 2 {
		t.Fatalf("logged %v", lines)
	}
	for i, line := range lines {
		if line["biz_type"] != "order.close" || line["job_id"] != id.String() || line["biz_id"] != 7. || line["attempt"] != float64(i+1) || line["service"] != "shop" {
			t.Errorf("attempt %d logged %v", i+1, line)
		}
	}
	if line := log.Lines("starting")[0]; len(line) != 3 { // level, message, service
		t.Errorf("outside of a delivery it logged %v", line)
	}
}
