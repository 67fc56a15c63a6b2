package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/test/peers/contest"
)

// The settings of River's clients and of their server.
const (
	riverClients  = 2    // one fetches with one statement at a time, which one CPU bounds
	riverWorkers  = 1000 // of a client
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 5 * time.Millisecond
	riverConns    = 32
	riverEvents   = 100_000 // of completions that wait to be counted
)

var (
	riverSettings   = []string{"shared_buffers=1GB", "max_wal_size=4GB", "max_connections=100"}
	durableSettings = []string{"fsync=on", "full_page_writes=on", "synchronous_commit=on"}
)

// riverArgs are a job's.
type riverArgs struct {
	Body string `json:"body"`
}

// Kind names the job's kind to River.
func (riverArgs) Kind() string { return "contest" }

// riverPeer is River on a private PostgreSQL.
//
// It is tuned as River's documentation and its own benchmark have it: many
// workers, a short cooldown between fetches, a short poll; completions are
// written in batches, as they are by default. Jobs are stored by InsertManyFast,
// which uses COPY. River makes scheduled jobs available up to 5 s ahead, every
// 5 s, which cannot be set; a job that is due sooner than that may be late by the
// rest of the 5 s, so the contest's are due later.
//
// A failure of either, or of the connection, is an error of the call that meets
// it; River itself retries what it does in the background.
type riverPeer struct {
	river.WorkerDefaults[riverArgs]
	server    *devserver.PostgreSQL
	deliver   func(string)
	pool      *pgxpool.Pool
	inserter  *river.Client[pgx.Tx]
	at        []*river.Client[pgx.Tx] // work; empty while paused
	delivered atomic.Int64
	completed atomic.Int64
	counting  sync.WaitGroup
	cancels   []func() // end the subscriptions
}

func openRiver(ctx context.Context, setup contest.Setup) (contest.System, error) {
	p := &riverPeer{deliver: setup.Deliver}
	if err := p.open(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *riverPeer) open(ctx context.Context) (err error) {
	if p.server, err = devserver.StartPostgreSQL(ctx, slices.Concat(durableSettings, riverSettings)...); err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(p.server.URL("postgres"))
	if err != nil {
		return err
	}
	cfg.MaxConns = riverConns
	if p.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	driver := riverpgxv5.New(p.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: silent()})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("make River's tables: %w", err)
	}
	p.inserter, err = river.NewClient(driver, &river.Config{Logger: silent()})
	return err
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Insert stores the batch by COPY.
func (p *riverPeer) Insert(ctx context.Context, batch []contest.Task) error {
	params := make([]river.InsertManyParams, len(batch))
	for i, t := range batch {
		params[i] = river.InsertManyParams{Args: riverArgs{t.Body}, InsertOpts: &river.InsertOpts{ScheduledAt: t.Due}}
	}
	_, err := p.inserter.InsertManyFast(ctx, params)
	return err
}

// Work is called by River for each job.
func (p *riverPeer) Work(_ context.Context, job *river.Job[riverArgs]) error {
	p.deliver(job.Args.Body)
	p.delivered.Add(1)
	return nil
}

// Start begins deliveries with new clients.
func (p *riverPeer) Start(ctx context.Context) error {
	for range riverClients {
		if err := p.startClient(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startClient begins deliveries with one more client.
func (p *riverPeer) startClient(ctx context.Context) error {
	all := river.NewWorkers()
	river.AddWorker(all, p)
	client, err := river.NewClient(riverpgxv5.New(p.pool), &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll, Workers: all, Logger: silent(),
	})
	if err != nil {
		return err
	}
	completions, cancel := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: riverEvents, Kinds: []river.EventKind{river.EventKindJobCompleted},
	})
	p.counting.Go(func() {
		for range completions {
			p.completed.Add(1)
		}
	})
	p.at, p.cancels = append(p.at, client), append(p.cancels, cancel)
	return client.Start(ctx)
}

// Pause ends the clients that work; jobs in hand are finished first.
func (p *riverPeer) Pause(ctx context.Context) error {
	var errs []error
	for _, client := range p.at {
		errs = append(errs, client.Stop(ctx))
	}
	for _, cancel := range p.cancels {
		cancel()
	}
	p.counting.Wait()
	p.at, p.cancels = nil, nil
	return errors.Join(errs...)
}

// Quiet compares deliveries to the completions that River says it has stored.
func (p *riverPeer) Quiet(context.Context) (bool, error) {
	return p.completed.Load() == p.delivered.Load(), nil
}

// completedSQL counts the jobs that are done; River keeps them for a day.
const completedSQL = "SELECT count(*) FROM river_job WHERE state = 'completed'"

// Settled counts jobs in the table.
func (p *riverPeer) Settled(ctx context.Context) (n int, err error) {
	err = p.pool.QueryRow(ctx, completedSQL).Scan(&n)
	return n, err
}

// Facts says what was measured.
func (p *riverPeer) Facts() contest.Facts {
	return contest.Facts{
		Version:    "River " + contest.Library("github.com/riverqueue/river") + ", " + p.server.Version(),
		Durability: "PostgreSQL's log is flushed at every commit (fsync=on, synchronous_commit=on)",
		Tuning: fmt.Sprintf("%d clients, MaxWorkers %d each, FetchCooldown %s, FetchPollInterval %s, %d connections, batched completions, InsertManyFast; %v",
			riverClients, riverWorkers, riverCooldown, riverPoll, riverConns, riverSettings),
		Settled: "as many completion events as deliveries, which River sends once they are stored; then rows with state 'completed' are counted",
	}
}

// Close ends client, pool and server.
func (p *riverPeer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	errs := []error{p.Pause(ctx)}
	if p.pool != nil {
		p.pool.Close()
	}
	if p.server != nil {
		errs = append(errs, p.server.Stop())
	}
	return errors.Join(errs...)
}
