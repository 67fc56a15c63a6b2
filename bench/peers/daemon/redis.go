package daemon

import (
	"context"
	"strconv"
	"syscall"
)

// StartRedis starts a Redis with an append-only file. appendfsync is its
// setting: "always" or "everysec".
func StartRedis(ctx context.Context, appendfsync string) (*Server, error) {
	return spec{
		program: "redis-server", pkg: "redis-server", versionFlag: "--version", ask: syscall.SIGKILL,
		args: func(dir string, port int) []string {
			return []string{
				"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
				"--appendonly", "yes", "--appendfsync", appendfsync, "--save", "",
				"--maxmemory-policy", "noeviction",
			}
		},
	}.start(ctx)
}

// AppendFsync is Redis' setting for a log that is flushed at every write, or, as
// it comes, every second.
func AppendFsync(strict bool) string {
	if strict {
		return "always"
	}
	return "everysec"
}
