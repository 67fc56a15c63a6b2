package chaos

import (
	"cmp"
	"context"
	"database/sql"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// OrderLoad says what the services of the business servers do.
type OrderLoad struct {
	Rate int           // orders a second, over all business servers
	Far  time.Duration // a task is due this far ahead at most; 0: 20s
}

// Bounds of the services.
const (
	ordersOpen = 1500             // of one business server, that are under way
	txWithin   = 15 * time.Second // one transaction
	atOnce     = 0.2              // share of the tasks that are due at once
	laterMost  = 2500 * time.Millisecond
	soonMost   = 50 * time.Millisecond
	heldMost   = 3 * time.Second // a transaction stays open
)

// txn is one transaction of a service.
type txn struct {
	ops  []string
	back bool          // it is rolled back
	held time.Duration // how long it stays open behind its last statement at most
}

// stage is a step in the life of an order: its transactions run at once.
type stage struct {
	after time.Duration // the stage before, at most
	txns  []txn
}

func commits(ops ...string) txn { return txn{ops: ops} }
func rollsBack(op string) txn   { return txn{ops: []string{op}, back: true} }
func opens(t txn) stage         { return stage{0, []txn{t}} }
func later(t txn) stage         { return stage{laterMost, []txn{t}} }
func soon(all ...txn) stage     { return stage{soonMost, all} }

// recipes are how orders may go, and how many of a hundred do.
var recipes = []struct {
	share  int
	stages []stage
}{
	{55, []stage{opens(commits(opAdd))}},
	{2, []stage{opens(txn{ops: []string{opAdd}, held: heldMost})}},
	{8, []stage{opens(rollsBack(opAdd))}},
	{4, []stage{opens(rollsBack(opAdd)), soon(commits(opAdd))}},
	{10, []stage{opens(commits(opAdd)), later(commits(opCancel))}},
	{4, []stage{opens(commits(opAdd)), later(rollsBack(opCancel))}},
	{5, []stage{opens(commits(opAdd)), later(commits(opReschedule))}},
	{4, []stage{opens(commits(opAdd)), later(commits(opReschedule)), soon(commits(opReschedule))}},
	{4, []stage{opens(commits(opAdd)), soon(commits(opCancel)), soon(commits(opAdd))}},
	{2, []stage{opens(commits(opAdd, opCancel, opAdd))}},
	{2, []stage{opens(commits(opAdd)), soon(commits(opCancel), commits(opAdd))}},
}

// seller runs the services: it opens orders and takes each through its stages.
type seller struct {
	site  *Site
	load  OrderLoad
	lanes lanes // of orders, by business server
}

// Selling does something while services write orders; they end with it.
func (s *Site) Selling(ctx context.Context, load OrderLoad, do func(context.Context) error) error {
	load.Far = cmp.Or(load.Far, 20*time.Second)
	p := &seller{site: s, load: load, lanes: newLanes(len(s.shops), ordersOpen)}
	return beside(ctx, p.run, do)
}

// run opens orders at the rate until ctx ends, and returns when all have gone through their stages.
func (p *seller) run(ctx context.Context) {
	work := context.WithoutCancel(ctx)
	atRate(ctx, float64(p.load.Rate), func(n int) {
		for range n {
			p.begin(work)
		}
	})
	p.lanes.wait()
}

// begin opens an order.
func (p *seller) begin(ctx context.Context) {
	b := p.site.shops[rand.IntN(len(p.site.shops))]
	kind := []string{plain.Name(), strict.Name(), hook.Name()}[rand.IntN(3)]
	var stages []stage
	for pick, i := rand.IntN(100), 0; pick >= 0; i++ { // their shares make a hundred
		stages = recipes[i].stages
		pick -= recipes[i].share
	}
	if !p.lanes[b.number].TryGo(func() error { p.sell(ctx, b, kind, stages); return nil }) {
		p.site.log.dropOrder()
	}
}

// sell takes an order through its stages. It ends if the first row of the order may not be there: what locks nothing has no
// order.
func (p *seller) sell(ctx context.Context, b *shop, kind string, stages []stage) {
	o := p.site.log.openOrder(b.number, kind)
	for _, s := range stages {
		_ = loop.Wait(ctx, rand.N(s.after+1))
		var at sync.WaitGroup
		for _, t := range s.txns {
			at.Go(func() { p.transact(ctx, b, o, t) })
		}
		at.Wait()
		if o.broken() {
			return
		}
	}
}

// transact runs one transaction of an order. Its business rows are locked first, and the outbox is written last.
func (p *seller) transact(ctx context.Context, b *shop, o *order, t txn) {
	t.held = rand.N(t.held + 1)
	ctx, cancel := context.WithTimeout(ctx, txWithin+t.held)
	defer cancel()
	var ops []*op
	for _, kind := range t.ops {
		ops = append(ops, o.open(kind))
	}
	said, commit := p.inTx(ctx, b, o, t, ops)
	for _, op := range ops {
		op.Commit, op.Back, op.Word = commit, time.Now(), said
	}
}

// inTx returns what the business server said, and when the transaction was ended.
func (p *seller) inTx(ctx context.Context, b *shop, o *order, t txn, ops []*op) (word, time.Time) {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return refusedWord, time.Now()
	}
	if err := p.write(ctx, tx, b, o, ops); err != nil {
		_ = tx.Rollback()
		return refusedWord, time.Now()
	}
	_ = loop.Wait(ctx, t.held)
	now := time.Now()
	if t.back {
		_ = tx.Rollback()
		return rolledBack, now
	}
	if tx.Commit() != nil {
		return unknownWord, now
	}
	return acknowledged, now
}

// write writes the business rows, then the rows of the outbox.
func (p *seller) write(ctx context.Context, tx *sql.Tx, b *shop, o *order, ops []*op) error {
	if ops[0].Seq > 0 {
		var seq int
		if err := tx.QueryRowContext(ctx, ofOrder(lockOrderSQL, o, ops[0])).Scan(&seq); err != nil && err != sql.ErrNoRows {
			return err
		}
	}
	for _, op := range ops {
		if _, err := tx.ExecContext(ctx, ofOrder(orderSQL, o, op)); err != nil {
			return err
		}
	}
	for _, op := range ops {
		if err := p.relay(ctx, tx, b, o, op); err != nil {
			return err
		}
	}
	return nil
}

func ofOrder(statement string, o *order, op *op) string {
	return strings.NewReplacer("{biz_id}", strconv.FormatUint(o.BizID, 10), "{seq}", strconv.Itoa(op.Seq)).Replace(statement)
}

// relay writes a row of the outbox, through the client as any service does, and learns its id.
func (p *seller) relay(ctx context.Context, tx *sql.Tx, b *shop, o *order, op *op) (err error) {
	of := bizTypes[o.Type]
	when, work := p.when(op)
	op.Sent = time.Now()
	switch op.Kind {
	case opAdd:
		_, err = b.client.AddTx(ctx, tx, of.New(o.BizID, work, when))
	case opCancel:
		_, err = b.client.CancelTx(ctx, tx, of.Of(o.BizID))
	case opReschedule:
		_, err = b.client.RescheduleTx(ctx, tx, of.Of(o.BizID), when)
	}
	if err != nil {
		return err
	}
	last := lastOutboxSQL
	if b.postgres != nil {
		last = lastOutboxPgSQL
	}
	return tx.QueryRowContext(ctx, last).Scan(&op.Outbox)
}

// when draws the time of a task, half of them as a delay, and its work.
func (p *seller) when(op *op) (tocsin.When, Work) {
	if op.Kind == opCancel {
		return tocsin.When{}, Work{}
	}
	work := Work{Millis: rand.IntN(20)}
	ahead := rand.N(p.load.Far)
	if rand.Float64() < atOnce {
		ahead = 0
	}
	if rand.IntN(2) == 0 {
		op.Delay = ahead.Truncate(time.Millisecond)
		return tocsin.In(op.Delay), work
	}
	op.Due = time.Now().Add(ahead + time.Millisecond - 1).Truncate(time.Millisecond)
	return tocsin.At(op.Due), work
}
