// Package asynqpeer has Asynq on a private Redis take part in a contest.
//
// Both intervals at which it looks are short, as its documentation advises for
// tasks that must not wait, and many tasks are processed at once. Asynq keeps
// due times in whole seconds and cuts the rest off, so that it would deliver up
// to a second early: a due time is rounded up to the next second here, and
// lateness is counted from what was asked for. It has no call that stores many
// tasks.
//
// A failure of Redis is an error of the call that meets it; Asynq itself retries
// what it does in the background.
package asynqpeer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tocsinhq/tocsin/bench/peers/contest"
	"github.com/tocsinhq/tocsin/bench/peers/daemon"
)

// The settings of server and client.
const (
	servers     = 8  // one takes one task at a time
	concurrency = 32 // of a server
	look        = 5 * time.Millisecond
	conns       = 64
	inserters   = 64
	kind        = "contest"
	queue       = "default"
	timeout     = time.Minute // of a delivery; without one Asynq sets a timer of half an hour
)

// The lists of tasks that are not done.
const (
	activeKey  = "asynq:{" + queue + "}:active"
	pendingKey = "asynq:{" + queue + "}:pending"
)

// Entry is Asynq's part in a contest.
func Entry() contest.Entry {
	return contest.Entry{Name: "asynq", Open: open, Inserters: inserters, Batch: 100}
}

// peer is one with its server.
type peer struct {
	server  *daemon.Server
	strict  bool
	client  *asynq.Client
	inspect *asynq.Inspector
	redis   *redis.Client
	at      []*asynq.Server // work; empty while paused
	deliver atomic.Pointer[func(string)]
}

func open(ctx context.Context, setup contest.Setup) (contest.System, error) {
	server, err := daemon.StartRedis(ctx, daemon.AppendFsync(setup.Strict))
	if err != nil {
		return nil, err
	}
	options := options(server)
	return &peer{
		server: server, strict: setup.Strict, client: asynq.NewClient(options), inspect: asynq.NewInspector(options),
		redis: redis.NewClient(&redis.Options{Addr: server.Addr()}),
	}, nil
}

func options(s *daemon.Server) asynq.RedisClientOpt {
	return asynq.RedisClientOpt{Addr: s.Addr(), PoolSize: conns}
}

// Insert stores the tasks one by one.
func (p *peer) Insert(ctx context.Context, batch []contest.Task) error {
	for _, t := range batch {
		task := asynq.NewTask(kind, []byte(t.Body), asynq.Timeout(timeout))
		if _, err := p.client.EnqueueContext(ctx, task, asynq.ProcessAt(wholeSecond(t.Due))); err != nil {
			return err
		}
	}
	return nil
}

// wholeSecond rounds up; what is due stays due.
func wholeSecond(due time.Time) time.Time {
	if !due.After(time.Now()) {
		return due
	}
	return due.Add(time.Second - time.Nanosecond).Truncate(time.Second)
}

// ProcessTask is called by Asynq for each task.
func (p *peer) ProcessTask(_ context.Context, t *asynq.Task) error {
	(*p.deliver.Load())(string(t.Payload()))
	return nil
}

// Start begins deliveries with new servers, unless some are at work.
func (p *peer) Start(_ context.Context, deliver func(string)) error {
	p.deliver.Store(&deliver)
	if len(p.at) > 0 {
		return nil
	}
	for range servers {
		s := asynq.NewServer(options(p.server), asynq.Config{
			Concurrency: concurrency, TaskCheckInterval: look, DelayedTaskCheckInterval: look,
			Logger: quiet{log.New(io.Discard, "", 0)}, LogLevel: asynq.ErrorLevel,
		})
		p.at = append(p.at, s)
		if err := s.Start(p); err != nil {
			return err
		}
	}
	return nil
}

// Pause ends the servers; tasks in hand are finished first.
func (p *peer) Pause(context.Context) error {
	for _, s := range p.at {
		s.Shutdown()
	}
	p.at = nil
	return nil
}

// Quiet reports whether no task is pending or active: a task leaves the active
// list when its outcome is stored.
func (p *peer) Quiet(ctx context.Context) (bool, error) {
	var active, pending *redis.IntCmd
	_, err := p.redis.Pipelined(ctx, func(all redis.Pipeliner) error {
		active, pending = all.LLen(ctx, activeKey), all.LLen(ctx, pendingKey)
		return nil
	})
	return err == nil && active.Val()+pending.Val() == 0, err
}

// Settled is Asynq's own count of tasks that were processed and did not fail.
func (p *peer) Settled(context.Context) (int, error) {
	info, err := p.inspect.GetQueueInfo(queue)
	if err != nil {
		return 0, err
	}
	return info.ProcessedTotal - info.FailedTotal, nil
}

// Facts says what was measured.
func (p *peer) Facts() contest.Facts {
	return contest.Facts{
		Version:    "Asynq " + contest.Library("github.com/hibiken/asynq") + ", " + p.server.Version(),
		Durability: "Redis' append-only file, appendfsync " + daemon.AppendFsync(p.strict),
		Tuning: fmt.Sprintf("%d servers, Concurrency %d each, TaskCheckInterval and DelayedTaskCheckInterval %s, %d connections; tasks stored one by one by %d goroutines; due times rounded up to the second",
			servers, concurrency, look, conns, inserters),
		Settled: "no task is left in the lists of pending and active ones; then Asynq's count of processed tasks is read",
	}
}

// Close ends servers, clients and Redis.
func (p *peer) Close() error {
	return errors.Join(p.Pause(context.Background()), p.client.Close(), p.inspect.Close(), p.redis.Close(), p.server.Stop())
}

// quiet has the methods that Asynq wants of a logger.
type quiet struct{ *log.Logger }

func (q quiet) Debug(args ...any) { q.Print(args...) }
func (q quiet) Info(args ...any)  { q.Print(args...) }
func (q quiet) Warn(args ...any)  { q.Print(args...) }
func (q quiet) Error(args ...any) { q.Print(args...) }
