package devcluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// RefundSend is the biz type whose tasks fail: half of the attempts in a demo, and the tasks of AddTrial until they are redriven.
var RefundSend = tocsin.Define[Order]("refund.send")

// Trial tasks have ids of orders from trialOrders on.
const (
	trialOrders = 800_001
	trialDead   = 6  // refunds
	trialOrder  = 42 // the order that docs/console.md looks for
)

// Why refunds die. Most fail as a bank that is away does, the others for good.
var (
	errAway    = errors.New("bank: POST /v1/refunds: 503 Service Unavailable")
	errAccount = errors.New("bank: POST /v1/refunds: 404 Not Found: there is no such account")
)

func (c *Cluster) refundPolicy() biztype.Policy {
	second := biztype.Duration(time.Second)
	p := biztype.Policy{Name: RefundSend.Name(), Number: 3, Group: Group, Attempts: 3, Ladder: []biztype.Duration{second}, History: true}
	if c.opts.Demo {
		p.Alarm = &biztype.Alarm{To: demoAlarms, AtMostEvery: 60 * second}
	}
	return p
}

// refund handles refunds. The first delivery of a trial task buries it, the one after a redrive works.
func (c *Cluster) refund(_ context.Context, t *tocsin.Task[Order]) error {
	if n := t.Payload.OrderID - trialOrders; t.Payload.OrderID >= trialOrders && n < trialDead {
		if _, again := c.tried.LoadOrStore(n, true); again {
			return nil
		}
		if n < trialDead*2/3 {
			return tocsin.Bury(errAway)
		}
		return tocsin.Bury(errAccount)
	}
	if !c.opts.Demo {
		return nil
	}
	switch rand.N(8) {
	case 0, 1, 2:
		return errAway
	case 3:
		return errAccount
	}
	return nil
}

// AddTrial adds what somebody looks for who tries the console: tasks that die within seconds, and one that is due in an hour.
func (c *Cluster) AddTrial(ctx context.Context) error {
	tasks := []tocsin.NewTask{OrderClose.New(trialOrder, Order{OrderID: trialOrder, Cents: 990}, tocsin.In(time.Hour))}
	for id := uint64(trialOrders); id < trialOrders+trialDead; id++ {
		tasks = append(tasks, RefundSend.New(id, Order{OrderID: id, Cents: 990}, tocsin.In(0)))
	}
	if _, err := c.Client.AddMany(ctx, tasks); err != nil {
		return fmt.Errorf("add the trial tasks: %w", err)
	}
	return nil
}
