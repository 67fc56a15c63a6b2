package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

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
