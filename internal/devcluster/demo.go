package devcluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/node"
)

// The biz types of a demo: what goes wrong in production, each in a type of its own.
var (
	StockSync    = tocsin.Define[Order]("stock.sync")    // its receiver hangs
	ReportBuild  = tocsin.Define[Order]("report.build")  // has a rate that is too low
	MailDigest   = tocsin.Define[Order]("mail.digest")   // is paused
	InvoicePrint = tocsin.Define[Order]("invoice.print") // no node has its handler
)

// demoAlarms is the biz type that brings a demo's alarms to its receiver.
const demoAlarms = "ops.alarm"

// demoBizIDs is the first biz_id of a demo, above those of samples.
const demoBizIDs = 1 << 32

// The grace time of the sweeper in a demo, and how long finished tasks are kept.
const (
	demoGrace     = 10 * time.Second
	demoRetention = 10 * time.Second
)

// demoPolicies returns those of the types above.
func (c *Cluster) demoPolicies() []biztype.Policy {
	second := biztype.Duration(time.Second)
	hang := &biztype.Webhook{URL: c.receiver.HangURL(), Secrets: []string{secretName}, Allow: []string{"127.0.0.0/8"}}
	tell := &biztype.Webhook{URL: c.receiver.URL(), Secrets: []string{secretName}, Allow: []string{"127.0.0.0/8"}}
	return []biztype.Policy{
		{Name: StockSync.Name(), Number: 4, Group: Group, Attempts: 2, Timeout: 2 * second, Concurrency: 4, Ladder: []biztype.Duration{second}, Webhook: hang},
		{Name: ReportBuild.Name(), Number: 5, Group: Group, Rate: 2},
		{Name: MailDigest.Name(), Number: 6, Group: Group, Paused: true},
		{Name: InvoicePrint.Name(), Number: 7, Group: Group},
		{Name: demoAlarms, Number: 8, Group: Group, Webhook: tell},
	}
}

// handleDemo adds the handlers of the types above, as far as they have one.
func handleDemo(all *node.Handlers) {
	works := func(context.Context, *tocsin.Task[Order]) error { return nil }
	node.Handle(all, ReportBuild, works)
	node.Handle(all, MailDigest, works)
}

// DemoOptions say what a Demo does.
type DemoOptions struct {
	Rate int // tasks added each second

	Sweep, Upkeep time.Duration // between two sweeps; between two purges and audits
}

// Demo adds tasks of all biz types, and sweeps, purges and audits, until ctx ends. Calls that fail, as they do while a
// server is away, are seen in the metrics of the client. Only in a cluster with Options.Demo.
func (c *Cluster) Demo(ctx context.Context, opts DemoOptions) error {
	if !c.opts.Demo {
		return errors.New("devcluster: started without Options.Demo")
	}
	if err := c.AddSchedule(ctx); err != nil {
		return err
	}
	ended, err := c.startUpkeep(ctx, opts)
	if err != nil {
		return fmt.Errorf("upkeep of the demo: %w", err)
	}
	const step = 200 * time.Millisecond
	next := uint64(demoBizIDs)
	for loop.Wait(ctx, step) == nil {
		n := max(opts.Rate*int(step/time.Millisecond)/1000, 1)
		_, _ = c.Client.AddMany(ctx, demoTasks(next, n)) // counted by the client's metrics
		c.callAround(ctx, next)
		next += uint64(n)
	}
	return ended()
}

// demoTasks returns tasks that are due within seconds. Most of them work; of each hundred, ten fail at times, and a few are
// of the types that don't get anywhere.
func demoTasks(first uint64, n int) []tocsin.NewTask {
	tasks := make([]tocsin.NewTask, 0, n)
	for id := first; id < first+uint64(n); id++ {
		when := tocsin.In(rand.N(5 * time.Second))
		order := Order{OrderID: id, Cents: 990}
		switch k := id % 100; {
		case k < 50:
			tasks = append(tasks, OrderClose.New(id, order, when))
		case k < 60:
			tasks = append(tasks, LabelPrint.New(id, order, when))
		case k < 80:
			tasks = append(tasks, CouponRemind.New(id, Coupon{UserID: id, Code: "SAVE10"}, when))
		case k < 90:
			tasks = append(tasks, RefundSend.New(id, order, when))
		case k < 94:
			tasks = append(tasks, StockSync.New(id, order, when))
		case k < 98:
			tasks = append(tasks, ReportBuild.New(id, order, when))
		case k < 99:
			tasks = append(tasks, MailDigest.New(id, order, when))
		default:
			tasks = append(tasks, InvoicePrint.New(id, order, when))
		}
	}
	return tasks
}

// callAround makes the other calls of a client. Some of them fail: with an unknown id, an unknown type, and a task that was
// added before.
func (c *Cluster) callAround(ctx context.Context, id uint64) {
	task := OrderClose.New(id, Order{OrderID: id}, tocsin.In(time.Minute)).Dedup("demo")
	added, err := c.Client.Add(ctx, task)
	if err != nil {
		return
	}
	_, _ = c.Client.Add(ctx, task)
	_, _ = c.Client.Get(ctx, added.JobID)
	_, _ = c.Client.Get(ctx, added.JobID+1)
	_, _ = c.Client.List(ctx, id)
	_, _ = c.Client.Reschedule(ctx, tocsin.ByID(added.JobID), tocsin.In(time.Second))
	_, _ = c.Client.Cancel(ctx, tocsin.ByID(added.JobID))
	_, _ = c.Client.Add(ctx, tocsin.Define[Order]("order.unknown").New(id, Order{}, tocsin.In(0)))
}
