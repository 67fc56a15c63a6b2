package tocsinrabbitmq_test

import (
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/contrib/tocsinrabbitmq"
	"github.com/tocsinhq/tocsin/sink"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(cfg *sink.Config)
		says   string
	}{
		"no address":        {func(cfg *sink.Config) { cfg.Addresses = nil }, "sink rabbit has no addresses"},
		"no port":           {func(cfg *sink.Config) { cfg.Addresses = []string{"h:5672", "h"} }, "sink rabbit: address 2 is not host:port or host:port/vhost"},
		"no vhost":          {func(cfg *sink.Config) { cfg.Addresses = []string{"h:5672/"} }, "sink rabbit: address 1 is not host:port or host:port/vhost"},
		"a URL":             {func(cfg *sink.Config) { cfg.Addresses = []string{"amqp://u:wild-geese@h:5672/v"} }, "without a scheme, username or password"},
		"a password":        {func(cfg *sink.Config) { cfg.Addresses = []string{"u:wild-geese@h:5672"} }, "without a scheme, username or password"},
		"several vhosts":    {func(cfg *sink.Config) { cfg.Addresses = []string{"h:1/a", "i:1"} }, "sink rabbit: its addresses have vhost a and vhost /: give all of them the same, or make two sinks"},
		"another mechanism": {func(cfg *sink.Config) { cfg.Mechanism = "SCRAM-SHA-256" }, `sink rabbit: mechanism "SCRAM-SHA-256": RabbitMQ takes PLAIN, which is the default`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := sink.Config{Name: "rabbit", Addresses: []string{"h:5672/a/b"}, Username: "u", Password: password, Topics: []string{"*"}}
			if _, err := tocsinrabbitmq.New(cfg); err != nil {
				t.Fatal(err)
			}
			c.change(&cfg)
			if _, err := tocsinrabbitmq.New(cfg); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), password) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

func TestSinkRefuses(t *testing.T) {
	t.Parallel()
	m := maker(t, sink.Config{Name: "rabbit", Addresses: []string{"h:5672"}, Topics: []string{"orders*"}})
	for topic, says := range map[string]string{
		"orders.eu":                           "",
		"orders.{header.Where}":               "",
		"bills":                               "biz type order.close: sink rabbit does not allow topic bills",
		"orders" + strings.Repeat("x", 250):   "sink rabbit: a routing key has 256 bytes, and RabbitMQ takes 255",
		"orders" + strings.Repeat("x", 255-6): "",
	} {
		_, err := m.Sink(policy(topic))
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", topic, err, says)
		}
	}
}

func TestTheConfigOfThePage(t *testing.T) {
	t.Parallel()
	const around = "cluster: c1\nlayout: {databases: 4, tables: 2, ownership: rows}\nservers: [{dsn: \"root@tcp(h:1)/\", databases: [0-3]}]\n"
	secret := func(name string) (string, bool) { return "s", name == "TOCSIN_RABBITMQ_PASSWORD" }
	file, err := config.Parse(append([]byte(around), block(t, "yaml rabbitmq")...), "tocsin.yaml", secret)
	if err != nil {
		t.Fatal(err)
	}
	cfg := file.Sink("orders-rabbit")
	if _, err := maker(t, cfg).Sink(policy("orders.due")); err != nil || cfg.Exchange != "events" {
		t.Errorf("%v, exchange %q", err, cfg.Exchange)
	}
}
