package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/outboxrow"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/relay"
)

// OutboxResult says what a relay does beside AddMany of the same rows, how late tasks that are due at once begin after the
// commit, and what a relay with nothing to do costs.
type OutboxResult struct {
	Tasks       int      `json:"tasks"` // of each side, over all rounds
	Rounds      int      `json:"rounds"`
	RelayRate   float64  `json:"relay_per_second"`
	AddManyRate float64  `json:"add_many_per_second"`
	Ratio       float64  `json:"ratio"`                     // of the relay to AddMany
	PlainRate   float64  `json:"without_ledger_per_second"` // of a relay that notes nothing: it would be wrong
	LedgerRatio float64  `json:"ledger_ratio"`              // of the relay to one without the ledger
	RelayCost   PerTask  `json:"per_task"`                  // bytes and statements are those of the tasks' server
	AddManyCost PerTask  `json:"add_many_per_task"`         //
	OutboxCPU   float64  `json:"outbox_server_cpu_us"`      // for each row, of the outbox's own server; 0: unknown
	Late        Late     `json:"late"`                      // of tasks due at once, from the commit to the delivery
	Idle        Idleness `json:"idle"`                      // of a relay
	Resident    float64  `json:"largest_resident_mb"`       // of this process
	Run
}

// Late is how late deliveries began.
type Late struct {
	Tasks int     `json:"tasks"`
	Rate  float64 `json:"tasks_per_second"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

// Idleness is what a relay costs that has nothing to do.
type Idleness struct {
	Seconds    float64 `json:"seconds"`
	Statements float64 `json:"statements_per_second"` // to both servers
	RelayCPU   float64 `json:"relay_cpu_percent"`     // of a core, less what this process takes without a relay
	ServerCPU  float64 `json:"outbox_server_cpu_percent"`
}

// outboxRounds is how often the sides of the ratio take turns.
const outboxRounds = 3

// Outbox measures a relay. The outbox is on a server of its own, unless servers are given: then on the first of them.
func Outbox(ctx context.Context, opts Options) (r OutboxResult, err error) {
	if opts.Tasks < outboxRounds || opts.Rate <= 0 || opts.Duration <= 0 {
		return r, wrong("outbox: wants at least %d tasks, a rate and a duration", outboxRounds)
	}
	b, err := openOutboxBench(ctx, opts)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := errors.Join(b.fillPending(ctx), b.openTables(ctx)); err != nil {
		return r, err
	}
	for _, measure := range []func(context.Context, *OutboxResult) error{b.rates, b.late, b.idle} {
		if err := measure(ctx, &r); err != nil {
			return r, fmt.Errorf("outbox: %w", err)
		}
	}
	settings, err := b.settings(ctx)
	r.Resident, r.Run = round(largestResident(), 1), b.run(settings)
	return r, err
}

// outboxBench is a site with a business database beside it.
type outboxBench struct {
	*site
	shop    *devserver.MariaDB // nil: servers were given
	from    outbox.Config
	pool    *mysql.Server  // of the business server
	shopper *tocsin.Client // with the outbox
}

// shopDatabase is the name of the business database, behind the prefix of the run.
const shopDatabase = "shop"

func openOutboxBench(ctx context.Context, opts Options) (_ *outboxBench, err error) {
	s, err := openSite(ctx, opts, false)
	if err != nil {
		return nil, err
	}
	b := &outboxBench{site: s}
	if err := b.openShop(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *outboxBench) openShop(ctx context.Context) (err error) {
	dsn := b.config.Servers[0].DSN
	if b.own != nil {
		cfg := devserver.MariaDBConfig{Product: devserver.Product(b.opts.Server), Durable: true}
		cfg.Memory, cfg.RedoLog = memory(b.opts)
		if b.shop, err = devserver.StartMariaDB(ctx, cfg); err != nil {
			return err
		}
		dsn = b.shop.DSN()
	}
	if b.pool, err = mysql.Open(mysql.Spec{DSN: dsn, MaxConns: workers + probeConns}); err != nil {
		return err
	}
	database := b.config.Layout.Prefix + shopDatabase
	if _, err := b.pool.DB.ExecContext(ctx, createSQL+database); err != nil {
		return err
	}
	b.from = outbox.Config{Name: "bench", DSN: dsn, Table: database + "." + outboxrow.DefaultTable}
	if _, err := ddl.ApplyOutbox(ctx, ddl.Outbox{DSN: dsn, Table: b.from.Table}); err != nil {
		return err
	}
	cfg := b.apart(3)
	cfg.Outbox = tocsin.Outbox{Table: b.from.Table}
	b.shopper, err = tocsin.Open(ctx, cfg)
	return err
}

// close removes what the run made.
func (b *outboxBench) close() error {
	var errs []error
	if b.shopper != nil {
		errs = append(errs, b.shopper.Close())
	}
	if b.pool != nil {
		if b.shop == nil {
			ctx, cancel := context.WithTimeout(context.Background(), dropWithin)
			defer cancel()
			_, err := b.pool.DB.ExecContext(ctx, dropSQL+b.config.Layout.Prefix+shopDatabase)
			errs = append(errs, err)
		}
		errs = append(errs, b.pool.DB.Close())
	}
	if b.shop != nil {
		errs = append(errs, b.shop.Stop())
	}
	return errors.Join(append(errs, b.site.close())...)
}

// shopCPU is the seconds of processor time of the outbox's own server; 0: unknown.
func (b *outboxBench) shopCPU() float64 {
	if b.shop == nil {
		return 0
	}
	return cpuOf(b.shop.Pid())
}

// rates has AddMany, the relay, and a relay without the ledger store the same number of rows in turn.
func (b *outboxBench) rates(ctx context.Context, r *OutboxResult) error {
	n := b.opts.Tasks / outboxRounds
	var many, relayed, plain Usage
	var shop float64
	err := profiled(b.opts.Profile, func() error {
		for turn := range outboxRounds {
			steps := []func() error{
				func() error { return b.manyRound(ctx, n, &many) },
				func() error { return b.relayRound(ctx, n, &relayed, &shop) },
				func() error { return b.relayRound(outboxrow.WithoutLedger(ctx), n, &plain, new(float64)) },
			}
			if turn%2 == 1 {
				slices.Reverse(steps)
			}
			for i, step := range steps {
				if err := step(); err != nil {
					return err
				}
				b.opts.Progress("insert", (turn*len(steps)+i+1)*n, outboxRounds*len(steps)*n)
			}
		}
		return nil
	})
	all := n * outboxRounds
	r.Tasks, r.Rounds = all, outboxRounds
	r.RelayRate, r.AddManyRate, r.PlainRate = round(relayed.rate(all), 0), round(many.rate(all), 0), round(plain.rate(all), 0)
	r.Ratio, r.LedgerRatio = ratio(relayed.rate(all), many.rate(all)), ratio(relayed.rate(all), plain.rate(all))
	r.RelayCost, r.AddManyCost, r.OutboxCPU = relayed.perTask(all), many.perTask(all), round(shop/float64(all)*1e6, 1)
	return err
}

// manyRound stores n rows with AddMany, as `tocsin bench insert` does.
func (b *outboxBench) manyRound(ctx context.Context, n int, into *Usage) error {
	batches := b.batches(n, manyRows)
	return b.used(ctx, into, func() error { return each(ctx, batches, b.addMany) })
}

// used adds what some work takes.
func (b *outboxBench) used(ctx context.Context, into *Usage, work func() error) error {
	if err := b.calm(ctx); err != nil {
		return err
	}
	begin, err := b.look(ctx)
	if err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	u, err := b.since(ctx, begin)
	*into = into.plus(u)
	return err
}

// relayRound fills the outbox with n rows and has a relay move them. The clock runs from the relay's start until the outbox
// is empty.
func (b *outboxBench) relayRound(ctx context.Context, n int, into *Usage, shop *float64) error {
	if err := each(ctx, b.batches(n, packetRows), b.fillOutbox); err != nil {
		return fmt.Errorf("fill the outbox: %w", err)
	}
	return b.used(ctx, into, func() error {
		before := b.shopCPU()
		r, err := b.startRelay(ctx)
		if err != nil {
			return err
		}
		err = r.await(ctx, b, n)
		*shop += b.shopCPU() - before
		return errors.Join(err, r.stop())
	})
}

// fillOutbox writes one row of an outbox for each of a batch.
func (b *outboxBench) fillOutbox(ctx context.Context, batch []row) error {
	text := append(append([]byte(nil), outboxFillSQL[0]...), b.from.Table...)
	text = append(text, outboxFillSQL[1]...)
	for i, r := range batch {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, "('add','%s',%d,%d,'%s')", plain.Name(), r.bizID, far.Milliseconds(), payload)
	}
	_, err := b.pool.DB.ExecContext(ctx, string(text))
	return err
}

// relaying is a relay under way.
type relaying struct {
	end     context.CancelFunc
	ended   chan error
	metrics *prometheus.Registry
}

func (b *outboxBench) startRelay(ctx context.Context) (*relaying, error) {
	r := &relaying{ended: make(chan error, 1), metrics: prometheus.NewRegistry()}
	ctx, r.end = context.WithCancel(ctx)
	engine, err := relay.New(relay.Config{
		Tables: b.config, Outboxes: []outbox.Config{b.from}, Logger: b.opts.Logger, Registerer: r.metrics,
	})
	if err != nil {
		r.end()
		return nil, err
	}
	go func() { r.ended <- engine.Run(ctx) }()
	return r, nil
}

func (r *relaying) stop() error {
	r.end()
	return <-r.ended
}

// await waits until n rows were moved and the outbox is empty.
func (r *relaying) await(ctx context.Context, b *outboxBench, n int) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	f := fleet{metrics: []*prometheus.Registry{r.metrics}}
	last, moved := 0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now := int(f.counted("tocsin_relay_moved_total"))
		if now != last {
			last, moved = now, time.Now()
		}
		if now >= n {
			var left bool
			if err := b.pool.DB.GetContext(ctx, &left, fmt.Sprintf(outboxLeftSQL, b.from.Table)); err != nil || !left {
				return err
			}
		}
		if time.Since(moved) > stallWithin {
			return fmt.Errorf("the relay stalled: %d of %d rows were moved, and none for %s", last, n, stallWithin)
		}
	}
}

// String is the result for people.
func (r OutboxResult) String() string {
	var l lines
	l.line("relay", "%d rows in %d rounds, %.0f rows/s, %.2f of AddMany's %.0f rows/s", r.Tasks, r.Rounds, r.RelayRate, r.Ratio, r.AddManyRate)
	l.line("ledger", "%.0f rows/s without it: with it %.2f of that", r.PlainRate, r.LedgerRatio)
	l.cost("a row", r.RelayCost)
	l.line("", "%.1f µs of CPU in the outbox's server", r.OutboxCPU)
	l.cost("AddMany", r.AddManyCost)
	l.line("due at once", "commit to delivery p50 %.2f ms, p99 %.2f ms, max %.2f ms, of %d tasks at %.0f a second",
		r.Late.P50, r.Late.P99, r.Late.Max, r.Late.Tasks, r.Late.Rate)
	l.line("idle", "%.1f statements a second, %.2f %% of a core here and %.2f %% in the outbox's server, watched for %.1f s",
		r.Idle.Statements, r.Idle.RelayCPU, r.Idle.ServerCPU, r.Idle.Seconds)
	l.line("memory", "%.0f MB at most in this process", r.Resident)
	l.run(r.Run)
	return l.String()
}
