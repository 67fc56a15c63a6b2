package chaos

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"
)

// aShop is one business server with an outbox, without a cluster.
func aShop(t *testing.T) (*Site, *shop) {
	t.Helper()
	t.Parallel()
	s := &Site{opts: Options{Dir: t.TempDir(), Servers: 1, Shops: 1}}
	b, err := s.startShop(t.Context(), 0)
	s.shops = append(s.shops, b)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop: %v", err) // what died with a server is no error
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

// crowd has the service use several connections at once, which stay in its pool.
func (b *shop) crowd(t *testing.T) {
	t.Helper()
	var all errgroup.Group
	for range shopConns / 2 {
		conn, err := b.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all.Go(func() error { return conn.PingContext(t.Context()) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestEvidenceOfAKilledServer: the checker waits for a server that was killed, whatever connections have died with it, and names
// one that does not come back.
func TestEvidenceOfAKilledServer(t *testing.T) {
	s, b := aShop(t)
	b.crowd(t)
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := patientFor(time.Nanosecond, s.left)(t.Context()); err == nil || !strings.Contains(err.Error(), "business server 0") {
		t.Errorf("the error does not name the server: %v", err)
	}
	asked := make(chan struct{})
	var back errgroup.Group
	back.Go(func() error {
		<-asked
		return b.Restart(context.WithoutCancel(t.Context()))
	})
	first := true
	left, err := patient(func(ctx context.Context) (int, error) {
		if !first {
			return s.left(ctx)
		}
		first = false
		defer close(asked)
		return s.left(ctx)
	})(t.Context())
	if err != nil || left != 0 {
		t.Errorf("%d rows are left: %v", left, err)
	}
	if err := back.Wait(); err != nil {
		t.Error(err)
	}
}

// TestStopMeetsDeadConnections: the end of a run is no error because connections died with a server. A minute after the
// server's end the kernel has forgotten them, and even the driver's goodbye fails.
func TestStopMeetsDeadConnections(t *testing.T) {
	s, b := aShop(t)
	var dialed []net.Conn
	if err := b.db.Close(); err != nil {
		t.Fatal(err)
	}
	b.db = sql.OpenDB(connector(t, b.dsn(), &dialed))
	direct := b.mysql.direct
	defer direct.Close()
	b.mysql.direct = sql.OpenDB(connector(t, b.mysql.server.DSN(), &dialed))
	for _, db := range []*sql.DB{b.db, b.mysql.direct} {
		if err := db.PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range dialed {
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// connector notes the connections that it dials.
func connector(t *testing.T, dsn string, dialed *[]net.Conn) driver.Connector {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = &mysql.NopLogger{}
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		*dialed = append(*dialed, conn)
		return conn, err
	}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
