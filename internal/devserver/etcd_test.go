package devserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

func startTestEtcd(t *testing.T, cfg EtcdConfig) *Etcd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	e, err := StartEtcd(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %s", time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// withClient calls f with a client that is closed afterwards, before the server stops.
func withClient(t *testing.T, e *Etcd, f func(context.Context, *clientv3.Client) error) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f(ctx, c); err != nil {
		t.Fatal(err)
	}
}

func TestEtcdComesBackWithItsData(t *testing.T) {
	t.Parallel()
	cfg := EtcdConfig{Dir: t.TempDir()} // it picks ports, and others if somebody takes them
	first := startTestEtcd(t, cfg)
	withClient(t, first, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Put(ctx, "/k", "v")
		return errors.Join(err, first.Kill()) // with a client
	})
	holds := func(ctx context.Context, c *clientv3.Client) error {
		got, err := c.Get(ctx, "/k")
		if err == nil && (len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v") {
			return errors.New("the key is gone")
		}
		return err
	}
	if err := first.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	withClient(t, first, holds)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	withClient(t, startTestEtcd(t, cfg), holds)
}

func TestFrozenEtcdAnswersWhenItGoesOn(t *testing.T) {
	t.Parallel()
	e := startTestEtcd(t, EtcdConfig{})
	withClient(t, e, func(ctx context.Context, c *clientv3.Client) error {
		if _, err := c.Put(ctx, "/k", "v"); err != nil {
			return err
		}
		e.Signal(syscall.SIGSTOP)
		for answered := true; answered; { // each of its threads stops when it is its turn
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			_, err := c.Get(short, "/k")
			cancel()
			if answered = err == nil; !answered && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("frozen: %v", err)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		e.Signal(syscall.SIGCONT)
		_, err := c.Get(ctx, "/k")
		return err
	})
}

// Two of three are enough, and the third comes back.
func TestThreeEtcdMembersOutliveOne(t *testing.T) {
	t.Parallel()
	cfgs, members := make([]EtcdConfig, 3), []string{}
	for i := range cfgs {
		cfgs[i] = EtcdConfig{Dir: t.TempDir(), PeerPort: FreePort(), Name: fmt.Sprint("m", i)}
		members = append(members, fmt.Sprintf("%s=http://%s", cfgs[i].Name, loopback(cfgs[i].PeerPort)))
	}
	started := make([]*Etcd, 3)
	var g errgroup.Group
	for i := range cfgs {
		cfgs[i].Members = strings.Join(members, ",")
		g.Go(func() (err error) {
			started[i], err = StartEtcd(t.Context(), cfgs[i])
			return err
		})
	}
	err := g.Wait()
	for _, e := range started {
		if e != nil {
			t.Cleanup(func() { _ = errors.Join(e.Kill(), e.Stop()) })
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := started[0].Kill(); err != nil {
		t.Fatal(err)
	}
	put := func(ctx context.Context, c *clientv3.Client) (err error) {
		for ctx.Err() == nil { // until the others have a leader
			if _, err = c.Put(ctx, "/k", "v"); err == nil {
				return nil
			}
		}
		return err
	}
	withClient(t, started[1], put)
	if err := started[0].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	withClient(t, started[0], put)
}

func TestEtcdGrantsLeasesOfOneSecond(t *testing.T) {
	t.Parallel()
	withClient(t, startTestEtcd(t, EtcdConfig{}), func(ctx context.Context, c *clientv3.Client) error {
		lease, err := c.Grant(ctx, 1)
		if err == nil && lease.TTL != 1 {
			t.Errorf("asked for 1 s, got %d s", lease.TTL)
		}
		return err
	})
}
