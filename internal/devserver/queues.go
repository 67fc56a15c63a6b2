package devserver

import (
	"context"
	"errors"
	"strconv"
)

// These errors say that there is no server to run, and how to get one.
var (
	ErrNoRedis      = errors.New("redis-server not found in PATH: `make bench-peers` installs it where apt-get can")
	ErrNoBeanstalkd = errors.New("beanstalkd not found in PATH: `make bench-peers` installs it where apt-get can")
)

// Queue is a private Redis or beanstalkd, with a temporary folder.
type Queue struct{ server }

// StartRedis starts a Redis with an append-only file and returns when its port is open. appendfsync is its setting: "always"
// or "everysec". ctx bounds the start, not its life. It returns ErrNoRedis, or an error with the end of its log.
func StartRedis(ctx context.Context, appendfsync string) (*Queue, error) {
	path, err := firstProgram(systemDirs(), ErrNoRedis, "redis-server")
	if err != nil {
		return nil, err
	}
	q := &Queue{}
	q.spec = spec{name: "Redis", path: path, args: func() []string {
		return []string{
			"--port", strconv.Itoa(q.Port()), "--bind", "127.0.0.1", "--dir", q.folder.path,
			"--appendonly", "yes", "--appendfsync", appendfsync, "--save", "",
			"--maxmemory-policy", "noeviction",
		}
	}}
	return q.started(ctx)
}

// StartBeanstalkd starts a beanstalkd with its binlog, which is synced at most once every syncMillis milliseconds, or at every
// write if that is 0, and returns when its port is open. ctx bounds the start, not its life. It returns ErrNoBeanstalkd, or an
// error with the end of its log.
func StartBeanstalkd(ctx context.Context, syncMillis int) (*Queue, error) {
	path, err := firstProgram(systemDirs(), ErrNoBeanstalkd, "beanstalkd")
	if err != nil {
		return nil, err
	}
	q := &Queue{}
	q.spec = spec{name: "beanstalkd", path: path, versionFlag: "-v", args: func() []string {
		return []string{"-l", "127.0.0.1", "-p", strconv.Itoa(q.Port()), "-b", q.folder.path, "-f", strconv.Itoa(syncMillis)}
	}}
	return q.started(ctx)
}

func (q *Queue) started(ctx context.Context) (*Queue, error) {
	q.ports = []int{0}
	if err := q.start(ctx); err != nil {
		return nil, err
	}
	return q, nil
}
