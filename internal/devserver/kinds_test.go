package devserver

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// running is a server of any kind.
type running interface {
	Dir() string
	Endpoint() string
	Kill() error
	Restart(context.Context) error
	Stop() error
}

// kinds start a server of each kind, and one that can't start. PostgreSQL and RabbitMQ take no folder and no port, Prometheus no folder.
var kinds = map[string]struct {
	start func(ctx context.Context, dir string, port int) (running, error)
	wrong func(ctx context.Context, dir string) (running, error)
	says  string
}{
	"MariaDB": {
		func(ctx context.Context, dir string, port int) (running, error) {
			return StartMariaDB(ctx, MariaDBConfig{Dir: dir, Port: port})
		},
		func(ctx context.Context, dir string) (running, error) {
			return StartMariaDB(ctx, MariaDBConfig{Dir: dir, Args: []string{"--no-such-option"}})
		},
		"no-such-option",
	},
	"etcd": {
		func(ctx context.Context, dir string, port int) (running, error) {
			return StartEtcd(ctx, EtcdConfig{Dir: dir, ClientPort: port})
		},
		func(ctx context.Context, dir string) (running, error) {
			return StartEtcd(ctx, EtcdConfig{Dir: dir, TLS: EtcdTLS{Cert: "none.pem", Key: "none.key", ClientCA: "ca.pem"}})
		},
		": exit status 1: open ",
	},
	"PostgreSQL": {
		func(ctx context.Context, _ string, _ int) (running, error) { return StartPostgreSQL(ctx) },
		func(ctx context.Context, _ string) (running, error) { return StartPostgreSQL(ctx, "no_such_setting=1") },
		"no_such_setting",
	},
	"RabbitMQ": {
		func(ctx context.Context, _ string, _ int) (running, error) { return StartRabbitMQ(ctx) },
		func(ctx context.Context, _ string) (running, error) { return StartRabbitMQ(ctx, "no_such_setting = 1") },
		"no_such_setting",
	},
	"Prometheus": {
		func(ctx context.Context, _ string, port int) (running, error) {
			return StartPrometheus(ctx, PrometheusConfig{Port: port})
		},
		func(ctx context.Context, _ string) (running, error) {
			return StartPrometheus(ctx, PrometheusConfig{Text: "globe: {}\n"})
		},
		"globe",
	},
}

// listens reports whether a server takes connections at an address.
func listens(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func TestEveryKindComesBackAfterAKillAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			begin := time.Now()
			s, err := kind.start(ctx, "", 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("started in %s", time.Since(begin).Round(time.Millisecond))
			at := s.Endpoint()
			err = s.Kill()
			if err != nil || listens(at) {
				t.Errorf("it listens after it was killed: %v", err)
			}
			err = s.Restart(ctx)
			if err != nil || !listens(at) || s.Endpoint() != at {
				t.Errorf("it does not listen at %s: %v", at, err)
			}
			begin = time.Now()
			if err := errors.Join(s.Stop(), s.Stop()); err != nil {
				t.Error(err)
			}
			t.Logf("stopped in %s", time.Since(begin).Round(time.Millisecond))
			if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) || listens(at) {
				t.Errorf("the folder is left, or it still listens: %v", err)
			}
		})
	}
}

func TestEveryKindSaysWhyItCantStart(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			_, err := kind.wrong(t.Context(), dir)
			if err == nil || !strings.HasPrefix(err.Error(), "start ") || !strings.Contains(err.Error(), kind.says) {
				t.Fatalf("got %v", err)
			}
			if strings.Contains(err.Error(), "\n") && name != "Prometheus" { // which says it in several lines
				t.Errorf("several lines: %v", err)
			}
			if name != "PostgreSQL" && name != "RabbitMQ" {
				_, err = kind.start(t.Context(), "", l.Addr().(*net.TCPAddr).Port)
				if !errors.Is(err, ErrPortInUse) || strings.Contains(err.Error(), "\n") {
					t.Errorf("a port in use: %v", err)
				}
			}
			s, err := kind.start(t.Context(), dir, 0) // nothing of the failed one is in the way
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
