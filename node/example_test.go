package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/pull"
)

// exampleConfig is that of a service. Nothing answers there.
var exampleConfig = node.Config{
	Tables:    tocsin.Config{Cluster: "shop", Layout: tocsin.Layout{Databases: 1, Tables: 16}, Servers: []tocsin.Server{{DSN: "shop@tcp(db1:3306)/"}}},
	Ownership: node.ByRows,
	Group:     "orders",
}

// A service runs a node until its context ends.
func Example() {
	ctx := context.Background() // that ends on SIGTERM
	var h node.Handlers
	node.Handle(&h, orderClose, func(_ context.Context, task *tocsin.Task[order]) error {
		fmt.Println("close order", task.Payload.ID)
		return nil
	})
	n, err := node.New(exampleConfig, &h)
	if err != nil {
		fmt.Println(err)
		return
	}
	http.Handle("/status", n.Status())
	if err := n.Run(ctx); err != nil {
		slog.Error("the node has ended", "error", err)
	}
	report, running := n.Report() // as /status has it
	fmt.Println(n.ID(), running, report)
}

func ExampleConfig_Validate() {
	cfg := exampleConfig
	fmt.Println(cfg.Validate())
	cfg.Ownership = "nobody"
	fmt.Println(cfg.Validate())
	// Output:
	// <nil>
	// ownership "nobody": use etcd or rows
}

func ExampleHandleBatch() {
	var h node.Handlers
	node.HandleBatch(&h, orderClose, 100, func(_ context.Context, tasks []*tocsin.Task[order]) []error {
		errs := make([]error, len(tasks))
		for i, task := range tasks {
			if task.Payload.ID == 0 {
				errs[i] = tocsin.Bury(fmt.Errorf("task %s has no order", task.JobID))
			}
		}
		return errs
	})
	_, err := node.New(exampleConfig, &h)
	fmt.Println(err)
	// Output: <nil>
}

// A middleware sees each delivery; UseCallbacks does the same for HTTP callbacks.
func ExampleHandlers_Use() {
	logger := slog.New(node.LogHandler(slog.NewJSONHandler(os.Stderr, nil))) // names the task in each line
	logged := func(next node.HandlerFunc) node.HandlerFunc {
		return func(ctx context.Context, tasks []tocsin.Info) []error {
			errs := next(ctx, tasks)
			logger.InfoContext(ctx, "delivered", "tasks", len(node.Tasks(ctx)))
			slog.LogAttrs(ctx, slog.LevelInfo, "the same, for other loggers", node.LogAttrs(ctx)...)
			return errs
		}
	}
	var h node.Handlers
	h.Use(logged)
	h.UseCallbacks(logged)
	fmt.Println(len(node.Tasks(context.Background())))
	// Output: 0
}

// A cron job sweeps once; a program that stays calls Run.
func ExampleSweeper() {
	ctx := context.Background()
	s, err := node.NewSweeper(exampleConfig, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	found, err := s.DryRun(ctx)
	fmt.Println(found, err)
	done, err := s.Sweep(ctx)
	fmt.Println(done, done.LeftTotal(), done.Err(), err)
	fmt.Println(s.Run(ctx, "*/5 * * * *"))
}

// A program with a node may take tasks of pull types itself; others do so by the HTTP API.
func ExampleNode_Pull() {
	n, err := node.New(exampleConfig, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background() // beside n.Run
	tasks, err := n.Pull().Reserve(ctx, pull.Request{BizTypes: []string{"label.print"}, Max: 10, Wait: pull.MaxWait})
	for _, task := range tasks {
		fmt.Println(n.Pull().Settle(ctx, []pull.Settling{{Lease: task.Lease}}, nil))
	}
	fmt.Println(err)
	// Output: the node does not run yet, or has ended
}
