package devserver

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// sharedTimeout bounds the start of a shared server, on a machine that has other things to do as well.
const sharedTimeout = 2 * time.Minute

// The servers that all tests of this process share.
var (
	SharedMariaDB = Shared[*MariaDB]{start: func(ctx context.Context) (*MariaDB, error) {
		return StartMariaDB(ctx, MariaDBConfig{})
	}}
	SharedEtcd = Shared[*Etcd]{start: func(ctx context.Context) (*Etcd, error) {
		return StartEtcd(ctx, EtcdConfig{})
	}}
	SharedPostgreSQL = Shared[*PostgreSQL]{start: func(ctx context.Context) (*PostgreSQL, error) {
		return StartPostgreSQL(ctx)
	}}
)

// StopShared stops those that were started.
func StopShared() error {
	return errors.Join(SharedMariaDB.Stop(), SharedEtcd.Stop(), SharedPostgreSQL.Stop())
}

// Shared is a server that is started by the first test that uses it. Safe for concurrent use.
type Shared[S interface{ Stop() error }] struct {
	start func(context.Context) (S, error)

	mu      sync.Mutex
	tried   bool
	server  S
	failure error
	users   int
}

// Use returns the server, or why it could not be started: every later call fails likewise. The caller calls leave when it needs
// the server no more. On systems other than Linux, where the server would outlive the process, the last one stops it.
func (s *Shared[S]) Use() (server S, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tried {
		s.tried = true
		ctx, cancel := context.WithTimeout(context.Background(), sharedTimeout)
		defer cancel()
		s.server, s.failure = s.start(ctx)
	}
	s.users++
	return s.server, s.leave, s.failure
}

func (s *Shared[S]) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 && runtime.GOOS != "linux" {
		_ = s.stop() // nobody needs it
	}
}

// Stop ends the server, if it was started; the next Use starts another one.
func (s *Shared[S]) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop()
}

func (s *Shared[S]) stop() error {
	if !s.tried || s.failure != nil {
		return nil
	}
	s.tried = false
	return s.server.Stop()
}
