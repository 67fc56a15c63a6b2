package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/test/peers/contest"
)

const (
	takers        = 4
	takeMost      = 500                   // tasks of one take
	zsetLook      = time.Millisecond      // least wait after a take that gave nothing
	zsetLookAtAll = 10 * time.Millisecond // most: something nearer may have been put
	ackWithin     = 30 * time.Second      // from take to acknowledgement
	backEvery     = time.Second
	tries         = 16
)

// zsetPeer is a queue on a private Redis. A failure of Redis ends the taker that
// meets it and is an error of Quiet and Pause.
type zsetPeer struct {
	redis   redisServer
	queue   *queue
	deliver func(string)

	crew      *devcluster.Fleet // that delivers
	delivered atomic.Int64
	acked     atomic.Int64
}

func openZset(ctx context.Context, setup contest.Setup) (contest.System, error) {
	server, err := startRedis(ctx, setup.Strict)
	if err != nil {
		return nil, err
	}
	return &zsetPeer{redis: server, queue: newQueue(server.client, ackWithin, tries), deliver: setup.Deliver}, nil
}

// Insert stores the batch by one script.
func (p *zsetPeer) Insert(ctx context.Context, batch []contest.Task) error {
	items := make([]item, len(batch))
	for i, t := range batch {
		items[i] = item{t.Body, t.Due}
	}
	return p.queue.put(ctx, items)
}

// Start begins deliveries.
func (p *zsetPeer) Start(ctx context.Context) error {
	p.crew = devcluster.NewFleet(ctx)
	for range takers {
		p.crew.Go("taker", func(ctx context.Context) error { return until(ctx, p.work) })
	}
	p.crew.Go("giver", func(ctx context.Context) error { return until(ctx, p.giveBack) })
	return nil
}

// until has do done, and waits as long as it says, until ctx ends or do fails. What
// do has begun it finishes.
func until(ctx context.Context, do func(context.Context) (time.Duration, error)) error {
	for ctx.Err() == nil {
		idle, err := do(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		_ = loop.Wait(ctx, idle)
	}
	return nil
}

// work takes, delivers and acknowledges once, and says when to look again.
func (p *zsetPeer) work(ctx context.Context) (time.Duration, error) {
	t, err := p.queue.take(ctx, takeMost)
	if err != nil {
		return 0, err
	}
	if len(t.ids) == 0 {
		return again(t.next), nil
	}
	for _, body := range t.bodies {
		p.deliver(body)
	}
	p.delivered.Add(int64(len(t.ids)))
	if err := p.queue.ack(ctx, t.ids); err != nil {
		return 0, err
	}
	p.acked.Add(int64(len(t.ids)))
	return 0, nil
}

// again is when to look where the next task is due in so long.
func again(next time.Duration) time.Duration {
	if next < 0 {
		return zsetLookAtAll
	}
	return min(max(next, zsetLook), zsetLookAtAll)
}

func (p *zsetPeer) giveBack(ctx context.Context) (time.Duration, error) {
	n, err := p.queue.back(ctx, takeMost)
	if n == takeMost {
		return 0, err
	}
	return backEvery, err
}

// Pause ends the takers; what they have in hand is acknowledged first.
func (p *zsetPeer) Pause(context.Context) error { return p.crew.Stop() }

// Quiet compares deliveries to acknowledgements.
func (p *zsetPeer) Quiet(context.Context) (bool, error) {
	return p.acked.Load() == p.delivered.Load(), p.crew.Err()
}

// Settled is what was put less what is left.
func (p *zsetPeer) Settled(ctx context.Context) (int, error) {
	store, prepare, dead, err := p.queue.left(ctx)
	return int(p.queue.made.Load()) - store - prepare - dead, err
}

// Facts says what was measured.
func (p *zsetPeer) Facts() contest.Facts {
	return contest.Facts{
		Version:    "own code, go-redis " + contest.Library("github.com/redis/go-redis/v9") + ", " + p.redis.Version(),
		Durability: p.redis.durability(),
		Tuning:     fmt.Sprintf("%d takers of up to %d tasks a script, looking again when the next is due, after %s to %s", takers, takeMost, zsetLook, zsetLookAtAll),
		Settled:    "as many acknowledgements as deliveries; then what is left in store, prepare and dead is counted",
	}
}

// Close ends takers, client and server.
func (p *zsetPeer) Close() error {
	return errors.Join(p.crew.Stop(), p.redis.client.Close(), p.redis.Stop())
}

// redisServer is a private Redis and a client of it.
type redisServer struct {
	*devserver.Queue
	client *redis.Client
	fsync  string // its appendfsync
}

// startRedis starts a Redis with a log that is flushed at every write if strict is set, or else every second, its default.
func startRedis(ctx context.Context, strict bool) (redisServer, error) {
	s := redisServer{fsync: "everysec"}
	if strict {
		s.fsync = "always"
	}
	var err error
	if s.Queue, err = devserver.StartRedis(ctx, s.fsync); err != nil {
		return s, err
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.Endpoint()})
	return s, nil
}

// durability is what a stored task survives.
func (s redisServer) durability() string { return "Redis' append-only file, appendfsync " + s.fsync }
