package devcluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Order is the payload of the sample handler's and the worker's tasks, Coupon that of the
// callback's.
type (
	Order struct {
		OrderID uint64 `json:"order_id"`
		Cents   int    `json:"cents"`
	}
	Coupon struct {
		UserID uint64 `json:"user_id"`
		Code   string `json:"code"`
	}
)

// The sample biz types, order.close of a Go handler, coupon.remind of an HTTP callback, and label.print, whose
// tasks a worker asks for; and order.notify, which goes to a message broker if there is one.
var (
	LabelPrint   = tocsin.Define[Order]("label.print")
	OrderClose   = tocsin.Define[Order]("order.close")
	CouponRemind = tocsin.Define[Coupon]("coupon.remind")
	OrderNotify  = tocsin.Define[Order]("order.notify")
)

// sampleBatch is how many tasks go into one AddMany.
const sampleBatch = 1000

// lead is how far ahead of its insert a task is due at least: lateness is then
// the scheduler's own, not that of a slow insert.
const lead = 2 * time.Second

// AddSamples adds n tasks, one in ten for the worker, and else half of each type, each due at a random time within
// the given span, which begins two seconds after its insert.
func (c *Cluster) AddSamples(ctx context.Context, n int, over time.Duration) error {
	begin := time.Now()
	for from := 0; from < n; from += sampleBatch {
		first := time.Now().Add(lead)
		tasks := samples(from, min(from+sampleBatch, n), func() time.Time {
			return first.Add(rand.N(over + time.Millisecond))
		})
		if _, err := c.Client.AddMany(ctx, tasks); err != nil {
			return fmt.Errorf("add sample tasks: %w", err)
		}
	}
	c.phases.Insert = time.Since(begin).Seconds()
	return nil
}

func samples(from, to int, at func() time.Time) []tocsin.NewTask {
	tasks := make([]tocsin.NewTask, 0, to-from)
	for i := from; i < to; i++ {
		id := uint64(i + 1)
		order := Order{OrderID: id, Cents: 100 + i%900}
		switch {
		case i%10 == 9:
			tasks = append(tasks, LabelPrint.New(id, order, tocsin.At(at())))
		case i%2 == 0:
			tasks = append(tasks, OrderClose.New(id, order, tocsin.At(at())))
		default:
			tasks = append(tasks, CouponRemind.New(id, Coupon{UserID: id, Code: "SAVE10"}, tocsin.At(at())))
		}
	}
	return tasks
}
