package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/test/bench"
)

// benchFlags are those that all benchmarks share, beside what bench.Options
// hold.
type benchFlags struct {
	bench.Options
	pull                    bench.Pull
	layout, profile, target string
}

func newBench(a *app) *cobra.Command {
	c := group("bench", "Measure this machine, beside the least that the same work costs in plain SQL",
		newBenchDrain(a), newBenchLateness(a), newBenchInsert(a), newBenchIdle(a))
	c.Long = `Each starts a private MariaDB or MySQL, which flushes its log at every commit, and a private
etcd, and removes them in the end. With --config it takes the file's servers and etcd instead, in
databases of its own, "bench_...", which it drops in the end. It measures the raw SQL of the
same work on the same tables before and after Tocsin, and prints both with their ratio.`
	return c
}

// benchCommand makes one of them, with the flags that all have.
func benchCommand[R fmt.Stringer](a *app, use, short, long string, f *benchFlags, measure func(context.Context, bench.Options) (R, error)) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBench(cmd.Context(), a, f, measure)
		},
	}
	c.Flags().StringVar(&f.layout, "layout", "8x16", "databases x tables")
	c.Flags().StringVar(&f.Server, "server", "", serverUsage)
	c.Flags().StringVar(&f.Ownership, "ownership", node.ByEtcd, "who may start a task: etcd, the node that owns its table; rows, whoever claims it, and no etcd is used")
	c.Flags().IntVar(&f.Pending, "pending", 0, "rows that wait in the tables for a day far ahead")
	c.Flags().StringVar(&f.profile, "cpuprofile", "", "write a CPU profile of this process, while Tocsin is measured, to this file")
	return c
}

// metricsFlag adds the flag of benchmarks with nodes that turns their metrics off, to see what these cost.
func metricsFlag(c *cobra.Command, f *benchFlags) {
	c.Flags().BoolVar(&f.NoMetrics, "no-metrics", false, "the nodes register and export no metrics, and don't measure the backlog; without it, these are read every 5 s as Prometheus would")
}

// targetFlag adds the flag of benchmarks that may deliver to something else than a Go handler.
func targetFlag(c *cobra.Command, f *benchFlags) {
	c.Flags().StringVar(&f.target, "to", "", "where the tasks go: kafka, a private broker; webhook, a private receiver that answers 204; pull, workers that ask for them over HTTP; or KIND://HOST:PORT/TOPIC, as kafka://127.0.0.1:9092/bench (default: a Go handler that does nothing)")
	c.Flags().IntVar(&f.pull.Workers, "workers", 16, "with --to pull: workers that ask, one request each at a time")
	c.Flags().IntVar(&f.pull.Max, "max", 1, "with --to pull: tasks that a worker asks for at once, and settles with its next request")
	c.Flags().IntVar(&f.pull.Greedy, "greedy", 0, "with --to pull: one more worker asks for this many tasks at once; 0: none")
	c.Flags().BoolVar(&f.pull.Last, "ask-last", false, "with --to pull: all workers ask the last node; else they are spread over the nodes")
}

func newBenchDrain(a *app) *cobra.Command {
	var f benchFlags
	c := benchCommand(a, "drain", "How fast nodes deliver a backlog",
		`Tasks are inserted by plain SQL while their biz type is paused; then it is resumed. The clock runs
from the first delivery to the last outcome stored. The handler does nothing. Nodes that have just
taken their tables claim first what is overdue, for a minute: --warm waits until that is over.`, &f, bench.Drain)
	c.Flags().IntVar(&f.Tasks, "tasks", 100_000, "tasks that are due")
	metricsFlag(c, &f)
	targetFlag(c, &f)
	c.Flags().DurationVar(&f.Overdue, "overdue", 0, "how long ago they fell due; 0s: while they were inserted. From 45s on they are claimed first")
	c.Flags().DurationVar(&f.Warm, "warm", time.Minute+time.Second, "how long the nodes own their tables before the tasks fall due")
	c.Flags().IntVar(&f.Nodes, "nodes", 1, "nodes")
	return c
}

func newBenchLateness(a *app) *cobra.Command {
	var f benchFlags
	c := benchCommand(a, "lateness", "How late deliveries begin, by the database's clock",
		`Tasks are added all the time, each due between --delay and --delay plus --spread after its insert.
The raw bound is a read of one row by its key at the same rate.`, &f, bench.Lateness)
	metricsFlag(c, &f)
	targetFlag(c, &f)
	c.Flags().Float64Var(&f.Rate, "rate", 1000, "tasks added a second")
	c.Flags().DurationVar(&f.Duration, "duration", 30*time.Second, "how long they are added")
	c.Flags().DurationVar(&f.Delay, "delay", 15*time.Second, "least time between a task's insert and its action time")
	c.Flags().DurationVar(&f.Spread, "spread", time.Second, "at most this much later")
	c.Flags().IntVar(&f.Burst, "burst", 0, "tasks of another biz type, all due at one instant half-way")
	c.Flags().StringVar((*string)(&f.BurstPriority), "burst-priority", "", "priority of the burst's biz type: high, normal or low")
	c.Flags().IntVar(&f.Backlog, "backlog", 0, "tasks of another biz type that are due before the nodes start; one worker asks for them, over HTTP, when all else is delivered")
	c.Flags().IntVar(&f.Nodes, "nodes", 1, "nodes")
	return c
}

func newBenchInsert(a *app) *cobra.Command {
	var f benchFlags
	c := benchCommand(a, "insert", "How fast tasks are added",
		`AddMany of 1,000 tasks beside raw multi-row inserts; Add beside a raw insert, and beside two in a
transaction where it rings the doorbell. All over 8 connections.`, &f, bench.Insert)
	c.Flags().IntVar(&f.Tasks, "tasks", 200_000, "tasks for AddMany; one in 50 as many for Add")
	return c
}

func newBenchIdle(a *app) *cobra.Command {
	var f benchFlags
	c := benchCommand(a, "idle", "What nodes cost that have nothing to do",
		`Watches nodes that own all tables and find nothing in them, and before that the same servers
without nodes.`, &f, func(ctx context.Context, o bench.Options) (bench.IdleResult, error) {
			if f.pull.Workers > 0 {
				o.Target = &bench.Target{Pull: &f.pull}
			}
			return bench.Idle(ctx, o)
		})
	metricsFlag(c, &f)
	c.Flags().DurationVar(&f.Duration, "duration", time.Minute, "how long to watch")
	c.Flags().IntVar(&f.pull.Workers, "workers", 0, "watch as long again while this many workers wait for tasks, over HTTP; 0: don't")
	c.Flags().IntVar(&f.Nodes, "nodes", 1, "nodes")
	return c
}

// benchUnits are the stages that show progress, with what they count.
var benchUnits = map[string]string{
	"create": "tables", "fill": "rows", "raw": "rows", "drain": "tasks", "insert": "tasks",
	"add": "tasks", "deliver": "tasks", "alone": "seconds", "settle": "seconds", "watch": "seconds",
}

func runBench[R fmt.Stringer](ctx context.Context, a *app, f *benchFlags, measure func(context.Context, bench.Options) (R, error)) (err error) {
	if f.Layout, err = parseLayout(f.layout); err != nil {
		return err
	}
	if a.configPath != "" { // only an explicit --config is used, so that a stray tocsin.yaml never receives benchmark load
		file, err := a.load()
		if err != nil {
			return err
		}
		f.Servers = file.Tocsin().Servers
		if f.Etcd, err = file.EtcdConfig(); err != nil {
			return err
		}
	}
	f.Logger, f.API = a.logger("warn", "text"), listenBench
	if err := f.Options.Validate(); err != nil {
		return asUsage(err)
	}
	end, err := f.startTarget(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, end()) }()
	if f.profile != "" {
		file, err := os.Create(f.profile)
		if err != nil {
			return fmt.Errorf("CPU profile: %w", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		f.Profile = file
	}
	view := &stages{app: a, units: benchUnits}
	f.Progress = view.progress
	result, err := measure(ctx, f.Options)
	view.end()
	if err != nil {
		return interrupted(ctx, asUsage(err))
	}
	return a.print(result, func(w io.Writer) { fmt.Fprint(w, result) })
}

// asUsage marks what the caller must change in the command line.
func asUsage(err error) error {
	var wrong bench.OptionsError
	if errors.As(err, &wrong) {
		return usageError{err}
	}
	return err
}
