package tocsinkafka_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka/broker"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/outbox/relay"
	"github.com/tocsinhq/tocsin/sink"
)

func TestMain(m *testing.M) {
	broker.Main()
	relays()
	devtest.Main(m)
}

// relayEnv has what a process of its own relays.
const relayEnv = "TOCSIN_TEST_RELAY"

// relayed is what a process of its own relays.
type relayed struct {
	Layout  tocsin.Layout
	DSNs    []string // of servers with one database each, or with all
	Address string
}

// relays runs a relay until it is killed, if launch has started the process.
func relays() {
	text, ok := os.LookupEnv(relayEnv)
	if !ok {
		return
	}
	var of relayed
	err := json.Unmarshal([]byte(text), &of)
	if err == nil {
		err = of.run()
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func (of relayed) run() error {
	tables := tocsin.Config{Cluster: "shop", Layout: of.Layout}
	for i, dsn := range of.DSNs {
		s := tocsin.Server{Name: fmt.Sprintf("db%d", i), DSN: dsn}
		if len(of.DSNs) > 1 {
			s.Databases = []int{i}
		}
		tables.Servers = append(tables.Servers, s)
	}
	brokers := sink.Config{Name: "orders-in", Addresses: []string{of.Address}}
	driver := tocsinkafka.Entrance{Brokers: brokers, Group: "tocsin-shop"}.Within(time.Minute, shortSession)
	r, err := relay.New(relay.Config{Tables: tables, Outboxes: []outbox.Config{{Name: "orders-in", Table: commands, Driver: driver}}})
	if err != nil {
		return err
	}
	return r.Run(context.Background())
}

// shortSession is the shortest session that brokers allow by default.
const shortSession = 6 * time.Second

// launch starts a relay in a process of its own, and returns what kills it.
func (e *entry) launch() (kill func()) {
	e.TB.Helper()
	of := relayed{Layout: e.Config.Layout, Address: e.broker.Address()}
	for _, s := range e.Config.Servers {
		of.DSNs = append(of.DSNs, s.DSN)
	}
	text, err := json.Marshal(of)
	if err != nil {
		e.TB.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), relayEnv+"="+string(text)), e.TB.Output()
	if err := cmd.Start(); err != nil {
		e.TB.Fatal(err)
	}
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	e.TB.Cleanup(kill)
	return kill
}
