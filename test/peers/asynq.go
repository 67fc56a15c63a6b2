package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tocsinhq/tocsin/test/peers/contest"
)

// The settings of Asynq's servers and client.
const (
	asynqServers     = 8  // one takes one task at a time; with Setup.Workers: 1
	asynqConcurrency = 32 // of a server
	asynqLook        = 5 * time.Millisecond
	asynqConns       = 64
	asynqInserters   = 64
	asynqQueue       = "default"
	asynqTimeout     = time.Minute // of a delivery; without one Asynq sets a timer of half an hour
)

// The lists of tasks that are not done.
const (
	activeKey  = "asynq:{" + asynqQueue + "}:active"
	pendingKey = "asynq:{" + asynqQueue + "}:pending"
)

// asynqPeer is Asynq on a private Redis.
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
type asynqPeer struct {
	redis   redisServer
	servers int
	each    int // Concurrency of a server
	deliver func(string)
	options asynq.RedisClientOpt
	client  *asynq.Client
	inspect *asynq.Inspector
	at      []*asynq.Server // work; empty while paused
}

func openAsynq(ctx context.Context, setup contest.Setup) (contest.System, error) {
	server, err := startRedis(ctx, setup.Strict)
	if err != nil {
		return nil, err
	}
	options := asynq.RedisClientOpt{Addr: server.Endpoint(), PoolSize: asynqConns}
	p := &asynqPeer{
		redis: server, servers: asynqServers, each: asynqConcurrency, deliver: setup.Deliver, options: options,
		client: asynq.NewClient(options), inspect: asynq.NewInspector(options),
	}
	if setup.Workers > 0 {
		p.servers, p.each = 1, setup.Workers
	}
	return p, nil
}

// Insert stores the tasks one by one.
func (p *asynqPeer) Insert(ctx context.Context, batch []contest.Task) error {
	for _, t := range batch {
		task := asynq.NewTask("contest", []byte(t.Body), asynq.Timeout(asynqTimeout))
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
func (p *asynqPeer) ProcessTask(_ context.Context, t *asynq.Task) error {
	p.deliver(string(t.Payload()))
	return nil
}

// Start begins deliveries with new servers.
func (p *asynqPeer) Start(context.Context) error {
	for range p.servers {
		s := asynq.NewServer(p.options, asynq.Config{
			Concurrency: p.each, TaskCheckInterval: asynqLook, DelayedTaskCheckInterval: asynqLook,
			LogLevel: asynq.FatalLevel, // it has nothing to say that calls do not say
		})
		p.at = append(p.at, s)
		if err := s.Start(p); err != nil {
			return err
		}
	}
	return nil
}

// Pause ends the servers; tasks in hand are finished first.
func (p *asynqPeer) Pause(context.Context) error {
	for _, s := range p.at {
		s.Shutdown()
	}
	p.at = nil
	return nil
}

// Quiet reports whether no task is pending or active: a task leaves the active
// list when its outcome is stored.
func (p *asynqPeer) Quiet(ctx context.Context) (bool, error) {
	var active, pending *redis.IntCmd
	_, err := p.redis.client.Pipelined(ctx, func(all redis.Pipeliner) error {
		active, pending = all.LLen(ctx, activeKey), all.LLen(ctx, pendingKey)
		return nil
	})
	return err == nil && active.Val()+pending.Val() == 0, err
}

// Settled is Asynq's own count of tasks that were processed and did not fail.
func (p *asynqPeer) Settled(context.Context) (int, error) {
	info, err := p.inspect.GetQueueInfo(asynqQueue)
	if err != nil {
		return 0, err
	}
	return info.ProcessedTotal - info.FailedTotal, nil
}

// Facts says what was measured.
func (p *asynqPeer) Facts() contest.Facts {
	return contest.Facts{
		Version:    "Asynq " + contest.Library("github.com/hibiken/asynq") + ", " + p.redis.Version(),
		Durability: p.redis.durability(),
		Tuning: fmt.Sprintf("%d servers, Concurrency %d each, TaskCheckInterval and DelayedTaskCheckInterval %s, %d connections; tasks stored one by one by %d goroutines; due times rounded up to the second",
			p.servers, p.each, asynqLook, asynqConns, asynqInserters),
		Settled: "no task is left in the lists of pending and active ones; then Asynq's count of processed tasks is read",
	}
}

// Close ends servers, clients and Redis.
func (p *asynqPeer) Close() error {
	return errors.Join(p.Pause(context.Background()), p.client.Close(), p.inspect.Close(), p.redis.client.Close(), p.redis.Stop())
}
