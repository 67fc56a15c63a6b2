package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/outbox/relay"
)

// outboxRounds is how often the sides of the ratios take turns.
const outboxRounds = 3

// BenchmarkOutbox measures a relay that moves rows of an outbox on a second private server. It compares the relay with AddMany of as
// many rows. Then it measures how late tasks begin that are added in transactions and due at once, from the answer of the commit on,
// and what a relay with nothing to do costs.
func BenchmarkOutbox(b *testing.B) {
	const n = 80_000 // of each side in each round
	s := open(b, Options{Layout: tocsin.Layout{Databases: 8, Tables: 16}, Tasks: n * outboxRounds}, false)
	report(b, measureOutbox(b, s, n, 300, 10*time.Second))
}

func measureOutbox(tb testing.TB, s *site, n int, rate float64, span time.Duration) map[string]float64 {
	tb.Helper()
	o := openShop(tb, s)
	must(tb, s.openTables(tb.Context()))
	figures := make(map[string]float64)
	o.rates(figures, n)
	o.late(figures, rate, span)
	o.idle(figures, span)
	return figures
}

// shop is a site with the database of a business beside it.
type shop struct {
	*site
	tb      testing.TB
	server  *devserver.MariaDB // of the business; nil: it shares the one that was given
	pool    *mysql.Server      // of the business
	from    outbox.Config
	shopper *tocsin.Client // adds to the outbox
}

func openShop(tb testing.TB, s *site) *shop {
	tb.Helper()
	o := &shop{site: s, tb: tb}
	dsn := s.config.Servers[0].DSN
	var err error
	if s.own != nil {
		cfg := devserver.MariaDBConfig{Durable: true}
		cfg.Memory, cfg.RedoLog = devcluster.Memory(s.opts.Layout, s.opts.rows())
		o.server, err = devserver.StartMariaDB(tb.Context(), cfg)
		must(tb, err)
		tb.Cleanup(func() { must(tb, o.server.Stop()) })
		dsn = o.server.DSN()
	}
	o.pool, err = mysql.Open(mysql.Spec{DSN: dsn, MaxConns: workers + probeConns})
	must(tb, err)
	tb.Cleanup(func() { must(tb, o.pool.DB.Close()) })
	database := s.config.Layout.Prefix + "shop"
	_, err = o.pool.DB.ExecContext(tb.Context(), "CREATE DATABASE "+database)
	must(tb, err)
	tb.Cleanup(func() {
		_, err := o.pool.DB.Exec(dropSQL + database)
		must(tb, err)
	})
	o.from = outbox.Config{Name: "bench", DSN: dsn, Table: database + "." + outbox.DefaultTable}
	_, err = ddl.ApplyOutbox(tb.Context(), ddl.Outbox{DSN: dsn, Table: o.from.Table})
	must(tb, err)
	cfg := s.apart(3)
	cfg.Outbox = tocsin.Outbox{Table: o.from.Table}
	o.shopper, err = tocsin.Open(tb.Context(), cfg)
	must(tb, err)
	tb.Cleanup(func() { must(tb, o.shopper.Close()) })
	return o
}

// shopCPU returns the seconds of processor time of the business' server; 0: unknown.
func (o *shop) shopCPU() float64 {
	if o.server == nil {
		return 0
	}
	cpu, _ := usedBy(o.server.Pid())
	return cpu
}

// rates has AddMany and a relay store n rows in turn.
func (o *shop) rates(figures map[string]float64, n int) {
	o.tb.Helper()
	var many, relayed Usage
	var shopCPU float64
	for round := range outboxRounds {
		sides := []func(){
			func() { many = many.plus(o.addAll(n), 1) },
			func() {
				used, cpu := o.relay(n)
				relayed, shopCPU = relayed.plus(used, 1), shopCPU+cpu
			},
		}
		if round%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			side()
		}
	}
	all := n * outboxRounds
	micros := func(seconds float64) float64 { return round(seconds/float64(all)*1e6, 1) }
	figures["rows/s"], figures["add-many-rows/s"] = round(relayed.rate(all), 0), round(many.rate(all), 0)
	figures["of-add-many"] = ratio(relayed.rate(all), many.rate(all))
	figures["relay-cpu-µs/row"], figures["server-cpu-µs/row"] = micros(relayed.ProcessCPU), micros(relayed.ServerCPU)
	figures["outbox-server-cpu-µs/row"] = micros(shopCPU)
	figures["add-many-cpu-µs/row"], figures["add-many-server-cpu-µs/row"] = micros(many.ProcessCPU), micros(many.ServerCPU)
}

// addAll stores n rows with AddMany, as `tocsin bench insert` does.
func (o *shop) addAll(n int) Usage {
	o.tb.Helper()
	ctx := o.tb.Context()
	batches := o.batches(n, manyRows)
	must(o.tb, o.calm(ctx))
	used, err := o.measured(ctx, func() error { return each(ctx, batches, o.addMany) })
	must(o.tb, err)
	return used
}

// relay fills the outbox with n rows and has a relay move them. The clock runs from the relay's start until it has ended, and
// the outbox is empty.
func (o *shop) relay(n int) (used Usage, shopCPU float64) {
	o.tb.Helper()
	ctx := o.tb.Context()
	must(o.tb, each(ctx, o.batches(n, packetRows), o.fillOutbox))
	must(o.tb, o.calm(ctx))
	before := o.shopCPU()
	used, err := o.measured(ctx, func() error {
		r := o.startRelay(ctx)
		err := r.awaitAll(ctx, "relay", n, func() int { return r.counted("tocsin_relay_moved_total") })
		if err == nil {
			err = r.Await(ctx, lookEvery, func() bool { return o.empty(ctx) })
		}
		return errors.Join(err, r.stop())
	})
	must(o.tb, err)
	return used, o.shopCPU() - before
}

// empty reports whether the outbox holds no row.
func (o *shop) empty(ctx context.Context) bool {
	o.tb.Helper()
	var left bool
	must(o.tb, o.pool.DB.GetContext(ctx, &left, "SELECT /* tocsin bench_left */ EXISTS(SELECT 1 FROM "+o.from.Table+")"))
	return !left
}

// fillOutbox writes one row of an outbox for each of a batch.
func (o *shop) fillOutbox(ctx context.Context, batch []row) error {
	text := []byte("INSERT /* tocsin bench_outbox */ INTO " + o.from.Table + " (op, biz_type, biz_id, delay_ms, attribute) VALUES ")
	for i, r := range batch {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, "('add','%s',%d,%d,'%s')", plain.Name(), r.bizID, far.Milliseconds(), payload)
	}
	_, err := o.pool.DB.ExecContext(ctx, string(text))
	return err
}

// startRelay starts a relay alone, as a fleet without nodes.
func (o *shop) startRelay(ctx context.Context) *fleet {
	o.tb.Helper()
	registry := prometheus.NewRegistry()
	engine, err := relay.New(relay.Config{
		Tables: o.config, Outboxes: []outbox.Config{o.from}, Logger: o.opts.Logger, Registerer: registry,
	})
	must(o.tb, err)
	f := &fleet{Fleet: devcluster.NewFleet(ctx), site: o.site, metrics: []*prometheus.Registry{registry}}
	f.Go("relay", engine.Run)
	return f
}

// late adds tasks that are due at once, each in a transaction of its own, and measures from the answer of the commit to the
// call of the handler. One task before them does not count.
func (o *shop) late(figures map[string]float64, rate float64, span time.Duration) {
	o.tb.Helper()
	ctx := o.tb.Context()
	var mu sync.Mutex
	delivered := make(map[uint64]time.Time) // by biz_id
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(delivered)
	}
	nodes, err := o.startNodes(ctx, func(_ context.Context, t tocsin.Info) {
		at := time.Now()
		mu.Lock()
		defer mu.Unlock()
		delivered[t.BizID] = at
	}, nobody)
	must(o.tb, err)
	relay := o.startRelay(ctx)
	_, err = o.addTx(ctx, o.rows.nextBiz())
	must(o.tb, err)
	must(o.tb, nodes.awaitAll(ctx, "deliver", 1, count))
	n := int(rate * span.Seconds())
	ids, committed, took := make([]uint64, n), make([]time.Time, n), make([]time.Duration, n)
	for i := range ids {
		ids[i] = o.rows.nextBiz()
	}
	must(o.tb, paced(ctx, n, rate, func(ctx context.Context, i int) (err error) {
		committed[i], err = o.addTx(ctx, ids[i])
		return err
	}))
	must(o.tb, nodes.awaitAll(ctx, "deliver", n+1, count))
	must(o.tb, errors.Join(relay.stop(), nodes.stop()))
	for i, id := range ids {
		took[i] = max(delivered[id].Sub(committed[i]), 0) // the commit is visible before its answer is here
	}
	slices.Sort(took)
	figures["late-p50-ms"], figures["late-p99-ms"], figures["late-max-ms"] = millis(took, 0.5), millis(took, 0.99), millis(took, 1)
}

// addTx adds one task in a transaction of the business, and returns when its commit was answered.
func (o *shop) addTx(ctx context.Context, bizID uint64) (time.Time, error) {
	tx, err := o.pool.DB.BeginTx(ctx, nil)
	if err != nil {
		return time.Time{}, err
	}
	if _, err := o.shopper.AddTx(ctx, tx, plain.New(bizID, payload, tocsin.In(0))); err != nil {
		return time.Time{}, errors.Join(err, tx.Rollback())
	}
	err = tx.Commit()
	return time.Now(), err
}

// idle watches a relay whose outbox is empty, and before that the same without it.
func (o *shop) idle(figures map[string]float64, span time.Duration) {
	o.tb.Helper()
	ctx := o.tb.Context()
	must(o.tb, o.calm(ctx))
	alone, err := o.watch(ctx, "alone", span/3)
	must(o.tb, err)
	relay := o.startRelay(ctx)
	_, err = o.watch(ctx, "settle", time.Second)
	must(o.tb, err)
	before, cpu := o.shopStatements(), o.shopCPU()
	with, err := o.watch(ctx, "watch", span)
	must(o.tb, err)
	after, used := o.shopStatements(), o.shopCPU()
	must(o.tb, relay.stop())
	figures["idle-statements/s"] = round((with.Statements-1+after-before-1)/with.Seconds, 2) // two were ours
	figures["idle-relay-cpu-%"] = round(max(100*with.ProcessCPU/with.Seconds-100*alone.ProcessCPU/alone.Seconds, 0), 2)
	figures["idle-outbox-server-cpu-%"] = round(100*(used-cpu)/with.Seconds, 2)
}

// shopStatements returns what the business' server has counted.
func (o *shop) shopStatements() float64 {
	o.tb.Helper()
	values, err := named(o.tb.Context(), o.pool.DB, statusSQL)
	must(o.tb, err)
	n, err := strconv.ParseFloat(values["Questions"], 64)
	must(o.tb, err)
	return n
}
