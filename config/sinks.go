package config

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/sink"
)

// Broker says how to reach a message broker.
type Broker struct {
	Addresses []string `yaml:"addresses"` // host:port; tls://host:port for TLS with the system's authorities
	Username  string   `yaml:"username"`  // or ${NAME}; "": no authentication
	Password  string   `yaml:"password"`  // ${NAME}; a literal one works but does not belong into a file
	Mechanism string   `yaml:"mechanism"` // of SASL with Kafka: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; "": PLAIN
	TLS       TLS      `yaml:"tls"`       // PEM files; none: plain text, unless an address begins with tls://

	tls *tls.Config // of TLS, read by Parse
}

// Sink is a message broker, to which policies of biz types send due tasks.
type Sink struct {
	Kind     string `yaml:"kind"` // kafka, rabbitmq or nats
	Broker   `yaml:",inline"`
	Exchange string   `yaml:"exchange"` // of RabbitMQ, where the sink publishes; "": the default exchange, whose routing keys are names of queues
	Topics   []string `yaml:"topics"`   // patterns of the topics that policies may name, "orders.*" for instance
}

// Entrance is a topic of Kafka from which commands come: add, cancel and reschedule tasks.
type Entrance struct {
	Broker     `yaml:",inline"`
	Topic      string `yaml:"topic"`
	Group      string `yaml:"group"`       // of consumers; "": tocsin-CLUSTER
	DeadLetter string `yaml:"dead_letter"` // topic of the commands that are refused; "": the topic with .dlt
	RequireKey bool   `yaml:"require_key"` // a record's key must be the biz_id or biz_key of its command
}

// kinds are those of sinks.
var kinds = []string{"kafka", "rabbitmq", "nats"}

// encrypted is the beginning of an address that wants TLS.
const encrypted = "tls://"

// Sink returns what package sink wants to know of a sink of the file.
func (f File) Sink(of string) sink.Config {
	s := f.Sinks[of]
	cfg := s.config(of)
	cfg.Topics, cfg.Exchange, cfg.Cluster = s.Topics, s.Exchange, f.Cluster
	return cfg
}

// Entrance returns how to reach the broker of an entrance of the file, and the entrance with its defaults.
func (f File) Entrance(of string) (sink.Config, Entrance) {
	e := f.Entrances[of]
	if e.Group == "" && f.Cluster != "" {
		e.Group = "tocsin-" + f.Cluster
	}
	return e.config(of), e
}

func (b Broker) config(of string) sink.Config {
	cfg := sink.Config{Name: of, Username: b.Username, Password: b.Password, Mechanism: b.Mechanism, TLS: b.tls}
	for _, address := range b.Addresses {
		plain, wanted := strings.CutPrefix(address, encrypted)
		if wanted && cfg.TLS == nil {
			cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		cfg.Addresses = append(cfg.Addresses, plain)
	}
	return cfg
}

// brokers replaces the references of all sinks and entrances, and reads their files.
func (x *expansion) brokers(f *File) {
	for _, of := range slices.Sorted(maps.Keys(f.Sinks)) {
		s := f.Sinks[of]
		x.broker(&s.Broker, "sinks."+of)
		f.Sinks[of] = s
	}
	for _, of := range slices.Sorted(maps.Keys(f.Entrances)) {
		e := f.Entrances[of]
		x.broker(&e.Broker, "entrances."+of)
		f.Entrances[of] = e
	}
}

func (x *expansion) broker(b *Broker, path string) {
	x.whole(&b.Username, path+".username")
	x.whole(&b.Password, path+".password")
	b.tls = x.certificates(b.TLS, path+".tls")
}

// sinks checks each sink. What only its module knows, the command says when it makes it.
func (c *check) sinks(f File) {
	for _, of := range slices.Sorted(maps.Keys(f.Sinks)) {
		s, path := f.Sinks[of], "sinks."+of
		c.Note(path, name.Check("sink", of))
		c.Refuse(!slices.Contains(kinds, s.Kind), path+".kind", "sink %s: kind %q: use %s", of, s.Kind, strings.Join(kinds, ", "))
		c.Refuse(s.Exchange != "" && s.Kind != "rabbitmq", path+".exchange", "sink %s: only kind rabbitmq has an exchange", of)
		c.broker(s.Broker, path, "sink "+of)
		c.Note(path, f.Sink(of).Validate())
	}
}

// broker checks how a broker is reached.
func (c *check) broker(b Broker, path, what string) {
	c.Refuse(b.TLS.lacksHalf(), path+".tls", "%s: tls needs both cert and key, or neither", what)
	for i, address := range b.Addresses {
		key := fmt.Sprintf("%s.addresses[%d]", path, i)
		c.Refuse(strings.HasPrefix(address, encrypted) != strings.HasPrefix(b.Addresses[0], encrypted), key, "%s: begin all addresses with %s, or none", what, encrypted)
	}
}

// entrances checks each entrance. What only its module knows, the command says when it opens it.
func (c *check) entrances(f File) {
	for _, of := range slices.Sorted(maps.Keys(f.Entrances)) {
		_, e := f.Entrance(of)
		path := "entrances." + of
		c.Note(path, name.Check("entrance", of))
		c.Refuse(e.Topic == "", path, "entrance %s has no topic", of)
		c.Refuse(len(e.Addresses) == 0, path, "entrance %s has no addresses: give host:port of a broker", of)
		c.Refuse(e.Group == "", path, "entrance %s: the file names no cluster, so name a group, which all relays of the entrance share", of)
		c.broker(e.Broker, path, "entrance "+of)
		c.Refuse(slices.ContainsFunc(f.Relayed(), func(o outbox.Config) bool { return o.WithDefaults().Name == of }), path, "an outbox is named %s too: metrics need names that differ", of)
	}
}
