package broker_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/contrib/tocsinkafka/broker"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestMain(m *testing.M) {
	broker.Main()
	devtest.Main(m)
}

func TestABrokerThatCantStartSaysWhy(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	port := taken.Addr().(*net.TCPAddr).Port
	if _, err := broker.Start(t.Context(), broker.Config{Port: port}); err == nil || !strings.Contains(err.Error(), "address already in use") || strings.Contains(err.Error(), "\n") {
		t.Errorf("on a port that is taken: %v", err)
	}
	if _, err := broker.Start(t.Context(), broker.Config{Cert: "/nowhere.pem"}); err == nil || !strings.Contains(err.Error(), "/nowhere.pem") {
		t.Errorf("without its certificate: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := broker.Start(ended, broker.Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("under a context that has ended: %v", err)
	}
}

func TestABrokerThatWasStoppedStartsAgainOnItsAddress(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(t.Context(), broker.Config{Dir: t.TempDir(), Topics: map[string]int32{"orders": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Kill() }()
	answers := func() bool {
		conn, err := net.Dial("tcp", b.Address())
		return err == nil && conn.Close() == nil
	}
	for range 2 {
		if err := b.Restart(t.Context()); err != nil || !answers() {
			t.Fatalf("%v", err)
		}
		if err := b.Stop(t.Context()); err != nil || answers() {
			t.Fatalf("%v", err)
		}
		if err := b.Stop(t.Context()); err != nil {
			t.Fatalf("again: %v", err)
		}
	}
}
