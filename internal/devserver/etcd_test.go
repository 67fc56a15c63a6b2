package devserver

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
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
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := f(ctx, c); err != nil {
		t.Fatal(err)
	}
}

func TestEtcdComesBackWithItsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := startTestEtcd(t, EtcdConfig{Dir: dir})
	withClient(t, first, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Put(ctx, "/k", "v")
		return err
	})
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	withClient(t, startTestEtcd(t, EtcdConfig{Dir: dir}), func(ctx context.Context, c *clientv3.Client) error {
		got, err := c.Get(ctx, "/k")
		if err == nil && (len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v") {
			return errors.New("the key is gone")
		}
		return err
	})
}

func TestTwoEtcdsRunAtOnceAndLeaveNothing(t *testing.T) {
	t.Parallel()
	a, b := startTestEtcd(t, EtcdConfig{}), startTestEtcd(t, EtcdConfig{})
	if a.Endpoint() == b.Endpoint() {
		t.Error("one endpoint for two")
	}
	if err := errors.Join(a.Stop(), b.Stop(), a.Stop()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(a.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("temporary folder is still there: %v", err)
	}
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

func TestEtcdPortInUseIsOneLine(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = StartEtcd(t.Context(), EtcdConfig{ClientPort: l.Addr().(*net.TCPAddr).Port})
	if !errors.Is(err, ErrPortInUse) {
		t.Fatalf("got %v", err)
	}
}
