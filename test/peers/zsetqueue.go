package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The keys.
const (
	storeKey   = "delay:store"
	prepareKey = "delay:prepare"
	deadKey    = "delay:dead"
	bodiesKey  = "delay:bodies"
	returnsKey = "delay:returns"
)

// putScript stores tasks: KEYS store, bodies; ARGV a due time in milliseconds, an
// id and a body for each.
var putScript = redis.NewScript(`
local due, bodies = {}, {}
for i = 1, #ARGV, 3 do
	due[#due+1] = ARGV[i]
	due[#due+1] = ARGV[i+1]
	bodies[#bodies+1] = ARGV[i+1]
	bodies[#bodies+1] = ARGV[i+2]
end
redis.call('HSET', KEYS[2], unpack(bodies))
return redis.call('ZADD', KEYS[1], unpack(due))`)

// takeScript moves what is due from store to prepare: KEYS store, prepare,
// bodies; ARGV how many at most, milliseconds until they must be acknowledged. It
// returns ids and bodies, and, where nothing is due, in how many milliseconds
// something will be, -1 for never.
var takeScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
if #ids == 0 then
	local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
	if #first == 0 then return {-1, {}, {}} end
	return {first[2] - now, {}, {}}
end
local taken = {}
for i, id in ipairs(ids) do
	taken[2*i-1] = now + ARGV[2]
	taken[2*i] = id
end
redis.call('ZREM', KEYS[1], unpack(ids))
redis.call('ZADD', KEYS[2], unpack(taken))
return {0, ids, redis.call('HMGET', KEYS[3], unpack(ids))}`)

// ackScript forgets tasks: KEYS prepare, bodies, returns; ARGV ids. It returns how
// many were still in prepare.
var ackScript = redis.NewScript(`
local n = redis.call('ZREM', KEYS[1], unpack(ARGV))
redis.call('HDEL', KEYS[2], unpack(ARGV))
redis.call('HDEL', KEYS[3], unpack(ARGV))
return n`)

// backScript returns to store, or at the last try to dead, what was not
// acknowledged in time: KEYS prepare, store, dead, returns; ARGV how many at most,
// tries. It returns how many it moved.
var backScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, id in ipairs(ids) do
	redis.call('ZREM', KEYS[1], id)
	if redis.call('HINCRBY', KEYS[4], id, 1) >= tonumber(ARGV[2]) then
		redis.call('ZADD', KEYS[3], now, id)
	else
		redis.call('ZADD', KEYS[2], now, id)
	end
end
return #ids`)

// queue is a client of a delay queue on Redis' sorted sets, as the literature on
// timeout centres with low latency has it. Safe for concurrent use.
//
//	put --> store --take--> prepare --ack--> gone
//	          ^                |
//	          +----- back -----+----> dead        a taker that never acknowledged, too often
//
// store holds ids by due time, prepare ids that were taken, by when they must be
// acknowledged, dead those that were taken too often; a hash holds the bodies, one
// more the counts of returns. Each arrow is one Lua script, so that an id is in
// one place at any moment. Times are Redis' own, in milliseconds, due times
// rounded up.
//
// A task is delivered at least once as long as Redis keeps what it answered,
// which depends on its appendfsync.
type queue struct {
	redis  *redis.Client
	name   string // of this client: begins its ids
	made   atomic.Uint64
	within time.Duration // from take to ack
	tries  int
}

func newQueue(r *redis.Client, within time.Duration, tries int) *queue {
	return &queue{redis: r, name: strconv.FormatUint(rand.Uint64(), 36) + "-", within: within, tries: tries}
}

// item is a task to be put.
type item struct {
	body string
	due  time.Time
}

// put stores at most some thousand items, all or none.
func (q *queue) put(ctx context.Context, items []item) error {
	args := make([]any, 0, 3*len(items))
	for _, it := range items {
		due := it.due.Add(time.Millisecond - time.Nanosecond).UnixMilli()
		args = append(args, due, q.name+strconv.FormatUint(q.made.Add(1), 36), it.body)
	}
	return putScript.Run(ctx, q.redis, []string{storeKey, bodiesKey}, args...).Err()
}

// taken is what one take gave.
type taken struct {
	ids, bodies []string
	next        time.Duration // of nothing: until something is due; less than 0: nothing is stored
}

// take takes at most n items that are due.
func (q *queue) take(ctx context.Context, n int) (t taken, err error) {
	reply, err := takeScript.Run(ctx, q.redis, []string{storeKey, prepareKey, bodiesKey}, n, q.within.Milliseconds()).Slice()
	if err != nil {
		return t, fmt.Errorf("take: %w", err)
	}
	millis, _ := reply[0].(int64)
	t.next = time.Duration(millis) * time.Millisecond
	if t.ids, err = texts(reply[1]); err == nil {
		t.bodies, err = texts(reply[2])
	}
	return t, err
}

// texts reads a list of strings.
func texts(reply any) ([]string, error) {
	list, _ := reply.([]any)
	all := make([]string, len(list))
	for i, x := range list {
		s, ok := x.(string)
		if !ok {
			return nil, fmt.Errorf("take: %v is no text: a task without a body", x)
		}
		all[i] = s
	}
	return all, nil
}

// ack forgets items that were taken.
func (q *queue) ack(ctx context.Context, ids []string) error {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	if err := ackScript.Run(ctx, q.redis, []string{prepareKey, bodiesKey, returnsKey}, args...).Err(); err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	return nil
}

// back returns at most n items that were taken and not acknowledged in time, and
// tells how many.
func (q *queue) back(ctx context.Context, n int) (int, error) {
	moved, err := backScript.Run(ctx, q.redis, []string{prepareKey, storeKey, deadKey, returnsKey}, n, q.tries).Int()
	if err != nil {
		return 0, fmt.Errorf("return what was not acknowledged: %w", err)
	}
	return moved, nil
}

// left counts what is in the queue: waiting, taken, dead.
func (q *queue) left(ctx context.Context) (store, prepare, dead int, err error) {
	cards := make([]*redis.IntCmd, 3)
	_, err = q.redis.TxPipelined(ctx, func(all redis.Pipeliner) error {
		for i, key := range []string{storeKey, prepareKey, deadKey} {
			cards[i] = all.ZCard(ctx, key)
		}
		return nil
	})
	return int(cards[0].Val()), int(cards[1].Val()), int(cards[2].Val()), err
}
