package tocsinotel_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/contrib/tocsinotel"
	"github.com/tocsinhq/tocsin/contrib/tocsinotel/nodeotel"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/quantile"
	"github.com/tocsinhq/tocsin/node"
)

// What BenchmarkCost measures.
const (
	costTasks   = 40_000 // of a round
	costAtOnce  = 1000   // of an AddMany
	costCallers = 8
	costWarm    = 62 * time.Second // after that a node claims nothing that is a little overdue
	costPayload = `{"order":"A-1234567890","reason":"unpaid","customer":4711,"note":"thirty minutes"}`
)

// nowhere is an exporter that drops all.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (nowhere) Shutdown(context.Context) error                             { return nil }

// variant is a way to use Tocsin: a biz type with a client and a node of its own.
type variant struct {
	name   string
	biz    tocsin.BizType[string]
	cfg    tocsin.Config
	client *tocsin.Client
	node   *node.Node
	header bool
	seen   atomic.Int64 // deliveries of this round
	first  atomic.Int64 // Unix nanoseconds

	inserts, drains []float64 // tasks a second, by round
}

// BenchmarkCost adds and drains tasks in interleaved rounds, one for each iteration, with nothing, with middleware and hooks that
// do nothing, with headers, and with tracing: go test -run - -bench Cost -benchtime 3x -timeout 10m ./tocsinotel
func BenchmarkCost(b *testing.B) {
	server, err := devserver.StartMariaDB(b.Context(), devserver.MariaDBConfig{Durable: true, Memory: 2 << 30, RedoLog: 2 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	keeper, err := devserver.StartEtcd(b.Context(), devserver.EtcdConfig{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = keeper.Stop() }()
	cfg := tocsin.Config{
		Layout: tocsin.Layout{Databases: 4, Tables: 16}, Cluster: "cost",
		Servers: []tocsin.Server{{Name: "cost", DSN: server.DSN(), MaxConns: 64}},
	}
	variants := costVariants(b, cfg, node.EtcdConfig{Endpoints: []string{keeper.Endpoint()}})
	time.Sleep(costWarm)
	round := 0
	for b.Loop() {
		for i := range variants {
			variants[(i+round)%len(variants)].play(b)
		}
		round++
	}
	report(b, variants)
}

// costVariants makes the tables and starts a node for each variant.
func costVariants(b *testing.B, cfg tocsin.Config, etcd node.EtcdConfig) []*variant {
	b.Helper()
	var variants []*variant
	var policies []biztype.Policy
	for i, name := range []string{"off", "middleware", "headers", "tracing", "tracing 1 in 100"} {
		biz := tocsin.Define[string](fmt.Sprintf("cost.v%d", i+1))
		variants = append(variants, &variant{name: name, biz: biz, cfg: cfg, header: name == "headers"})
		policies = append(policies, biztype.Policy{Name: biz.Name(), Number: uint64(i + 1), Group: fmt.Sprintf("v%d", i+1), Paused: true})
	}
	if _, err := ddl.Apply(b.Context(), cfg, ddl.Options{Cluster: cfg.Cluster}); err != nil {
		b.Fatal(err)
	}
	if _, err := biztype.Apply(b.Context(), cfg, policies); err != nil {
		b.Fatal(err)
	}
	for i, v := range variants {
		v.start(b, node.Config{Tables: cfg, Etcd: etcd, Group: policies[i].Group, Name: policies[i].Group, Logger: slog.New(slog.DiscardHandler)})
	}
	return variants
}

// start opens the client and runs the node.
func (v *variant) start(b *testing.B, cfg node.Config) {
	b.Helper()
	var h node.Handlers
	node.Handle(&h, v.biz, func(context.Context, *tocsin.Task[string]) error {
		if v.seen.Add(1) == 1 {
			v.first.Store(time.Now().UnixNano())
		}
		return nil
	})
	adds := v.cfg
	switch v.name {
	case "middleware":
		adds.Use = append(adds.Use, func(next tocsin.AddFunc) tocsin.AddFunc {
			return func(ctx context.Context, call *tocsin.Adding) ([]tocsin.Added, error) { return next(ctx, call) }
		})
		h.Use(func(next node.HandlerFunc) node.HandlerFunc {
			return func(ctx context.Context, tasks []tocsin.Info) []error { return next(ctx, tasks) }
		})
		cfg.OnOutcome = func(context.Context, tocsin.Info, node.Outcome) {}
	case "tracing":
		adds.Use = append(adds.Use, traced(b, 1, &cfg, &h))
	case "tracing 1 in 100":
		adds.Use = append(adds.Use, traced(b, 0.01, &cfg, &h))
	}
	var err error
	if v.client, err = tocsin.Open(b.Context(), adds); err != nil {
		b.Fatal(err)
	}
	if v.node, err = node.New(cfg, &h); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := v.node.Run(ctx); err != nil {
			b.Errorf("%s: %v", v.name, err)
		}
	})
	b.Cleanup(func() { cancel(); running.Wait(); _ = v.client.Close() })
}

// traced has a batch exporter, and metrics that are read when somebody asks.
func traced(b *testing.B, share float64, cfg *node.Config, h *node.Handlers) func(tocsin.AddFunc) tocsin.AddFunc {
	b.Helper()
	spans := sdktrace.NewTracerProvider(sdktrace.WithBatcher(nowhere{}), sdktrace.WithSampler(sdktrace.TraceIDRatioBased(share)))
	b.Cleanup(func() { _ = spans.Shutdown(context.Background()) })
	telemetry, err := tocsinotel.New(tocsinotel.Config{TracerProvider: spans, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))})
	if err != nil {
		b.Fatal(err)
	}
	nodeotel.Instrument(telemetry, cfg, h)
	return telemetry.Add
}

// play is one round: the tasks are added while their type is paused, then it is resumed. The drain is measured from the first
// delivery to the last outcome stored.
func (v *variant) play(b *testing.B) {
	b.Helper()
	v.seen.Store(0)
	runtime.GC()
	begin := time.Now()
	v.add(b)
	v.inserts = append(v.inserts, costTasks/time.Since(begin).Seconds())
	v.pause(b, false)
	for v.seen.Load() < costTasks || v.busy() {
		time.Sleep(2 * time.Millisecond)
		if time.Since(begin) > time.Minute {
			b.Fatalf("%s: %d of %d delivered", v.name, v.seen.Load(), costTasks)
		}
	}
	v.drains = append(v.drains, costTasks/time.Since(time.Unix(0, v.first.Load())).Seconds())
	v.pause(b, true)
	fmt.Fprintf(os.Stderr, "%-17s insert %6.0f/s  drain %6.0f/s\n", v.name, v.inserts[len(v.inserts)-1], v.drains[len(v.drains)-1])
}

func (v *variant) busy() bool {
	report, _ := v.node.Report()
	return report.Work.Open > 0 || report.Work.Unsettled > 0
}

func (v *variant) pause(b *testing.B, paused bool) {
	b.Helper()
	if _, err := biztype.SetPaused(b.Context(), v.cfg, v.biz.Name(), paused); err != nil {
		b.Fatal(err)
	}
}

// add stores the tasks of a round, by several callers.
func (v *variant) add(b *testing.B) {
	text := strings.Repeat("x", 50)
	var callers sync.WaitGroup
	for range costCallers {
		callers.Go(func() {
			tasks := make([]tocsin.NewTask, costAtOnce)
			for left := costTasks / costCallers; left > 0; left -= len(tasks) {
				tasks = tasks[:min(left, costAtOnce)]
				for i := range tasks {
					tasks[i] = v.biz.New(rand.Uint64N(1<<40)+1, costPayload, tocsin.In(0))
					if v.header {
						tasks[i] = tasks[i].Header("tenant", text).Header("region", text).Header("origin", text)
					}
				}
				if _, err := v.client.AddMany(b.Context(), tasks); err != nil {
					b.Error(err)
				}
			}
		})
	}
	callers.Wait()
}

// report prints what each variant does beside the first, in the median of the rounds.
func report(b *testing.B, variants []*variant) {
	off := variants[0]
	for _, v := range variants {
		insert, inserts := ratio(v.inserts, off.inserts)
		drain, drains := ratio(v.drains, off.drains)
		b.Logf("%-17s insert %6.0f/s, %.2f of off (%s)  drain %6.0f/s, %.2f of off (%s)", v.name, quantile.Median(v.inserts), insert, inserts, quantile.Median(v.drains), drain, drains)
	}
}

// ratio returns the median of the rounds' ratios, and all of them.
func ratio(of, to []float64) (float64, string) {
	all, texts := make([]float64, len(of)), make([]string, len(of))
	for i := range of {
		all[i] = of[i] / to[i]
		texts[i] = fmt.Sprintf("%.2f", all[i])
	}
	return quantile.Median(all), strings.Join(texts, " ")
}
