package node_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// sampler notes the most connections that a user has at a time, until it is
// stopped.
type sampler struct {
	most atomic.Int64
	stop context.CancelFunc
	done chan struct{}
}

func sample(t *testing.T, db *sql.DB, user string) *sampler {
	ctx, stop := context.WithCancel(t.Context())
	s := &sampler{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for ctx.Err() == nil {
			var n int64
			if db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.processlist WHERE user = ?", user).Scan(&n) == nil {
				s.most.Store(max(s.most.Load(), n))
			}
		}
	}()
	return s
}

func (s *sampler) end() int64 {
	s.stop()
	<-s.done
	return s.most.Load()
}

// newUser makes a user of the test's server, whose connections can be counted.
func newUser(t *testing.T, db *sql.DB) (user, dsn string) {
	t.Helper()
	user = "u" + strings.ToLower(devtest.Prefix(t))
	for _, statement := range []string{"CREATE USER '" + user + "'@'%'", "GRANT ALL ON *.* TO '" + user + "'@'%'"} {
		execute(t, db, statement)
	}
	t.Cleanup(func() { _, _ = db.Exec("DROP USER '" + user + "'@'%'") })
	return user, user + "@" + strings.SplitN(devtest.DSN(t), "@", 2)[1]
}

func TestAClientANodeAndASweepOpenNoMoreConnectionsThanAProcessMay(t *testing.T) {
	t.Parallel()
	const tasks, most = 2000, 12
	p, db := newPlace(t, closePolicy()), openDB(t, devtest.DSN(t))
	user, dsn := newUser(t, db)
	cfg := p.config("orders")
	cfg.Tables.Servers = []tocsin.Server{{Name: "db1", DSN: dsn, MaxConns: most}}
	client, err := tocsin.Open(t.Context(), cfg.Tables)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var done atomic.Int64
	h := closing(func(context.Context, *tocsin.Task[order]) error { done.Add(1); return nil })
	s := sample(t, db, user)
	n, _ := run(t, cfg, h)
	awaitOwned(t, n, 8)
	sweeper := newSweeper(t, cfg, h)
	sweeping, stop := context.WithCancel(t.Context())
	swept := make(chan error, 1)
	go func() { swept <- sweeper.Run(sweeping, "@every 1s") }()
	var adding sync.WaitGroup
	for worker := range uint64(40) {
		adding.Go(func() {
			for i := range uint64(tasks / 40) {
				if _, err := client.Add(t.Context(), orderClose.New(worker*1000+i+1, order{}, tocsin.In(0))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	adding.Wait()
	until(t, "all tasks are delivered", func() bool { return done.Load() >= tasks })
	stop()
	if err := <-swept; err != nil {
		t.Error(err)
	}
	got := s.end()
	t.Logf("%d connections at most, of %d", got, most)
	if got > most || got < most/2 {
		t.Errorf("%d connections, want at most %d, and most of them used", got, most)
	}
}
