package config

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/sink"
)

// Sink is a message broker, to which policies of biz types send due tasks.
type Sink struct {
	Kind      string   `yaml:"kind"`      // kafka, rabbitmq or nats
	Addresses []string `yaml:"addresses"` // host:port; tls://host:port for TLS with the system's authorities
	Username  string   `yaml:"username"`  // or ${NAME}; "": no authentication
	Password  string   `yaml:"password"`  // ${NAME}; a literal one works but does not belong into a file
	Mechanism string   `yaml:"mechanism"` // of SASL with Kafka: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; "": PLAIN
	TLS       TLS      `yaml:"tls"`       // PEM files; none: plain text, unless an address begins with tls://
	Exchange  string   `yaml:"exchange"`  // of RabbitMQ, where the sink publishes; "": the default exchange, whose routing keys are names of queues
	Topics    []string `yaml:"topics"`    // patterns of the topics that policies may name, "orders.*" for instance

	tls *tls.Config // of TLS, read by Parse
}

// kinds are those of sinks.
var kinds = []string{"kafka", "rabbitmq", "nats"}

// encrypted is the beginning of an address that wants TLS.
const encrypted = "tls://"

// Sink returns what package sink wants to know of a sink of the file.
func (f File) Sink(of string) sink.Config {
	s := f.Sinks[of]
	cfg := sink.Config{Name: of, Username: s.Username, Password: s.Password, Mechanism: s.Mechanism, TLS: s.tls, Topics: s.Topics, Exchange: s.Exchange, Cluster: f.Cluster}
	for _, address := range s.Addresses {
		plain, wanted := strings.CutPrefix(address, encrypted)
		if wanted && cfg.TLS == nil {
			cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		cfg.Addresses = append(cfg.Addresses, plain)
	}
	return cfg
}

// sinks replaces the references of all sinks, and reads their files.
func (x *expansion) sinks(sinks map[string]Sink) {
	for _, of := range slices.Sorted(maps.Keys(sinks)) {
		s, path := sinks[of], "sinks."+of
		x.whole(&s.Username, path+".username")
		x.whole(&s.Password, path+".password")
		s.tls = x.certificates(s.TLS, path+".tls")
		sinks[of] = s
	}
}

// sinks checks each sink. What only its module knows, the command says when it makes it.
func (c *check) sinks(f File) {
	for _, of := range slices.Sorted(maps.Keys(f.Sinks)) {
		s, path := f.Sinks[of], "sinks."+of
		c.Note(path, name.Check("sink", of))
		c.Refuse(!slices.Contains(kinds, s.Kind), path+".kind", "sink %s: kind %q: use %s", of, s.Kind, strings.Join(kinds, ", "))
		c.Refuse(s.TLS.lacksHalf(), path+".tls", "sink %s: tls needs both cert and key, or neither", of)
		c.Refuse(s.Exchange != "" && s.Kind != "rabbitmq", path+".exchange", "sink %s: only kind rabbitmq has an exchange", of)
		for i, address := range s.Addresses {
			key := fmt.Sprintf("%s.addresses[%d]", path, i)
			c.Refuse(strings.HasPrefix(address, encrypted) != strings.HasPrefix(s.Addresses[0], encrypted), key, "sink %s: begin all addresses with %s, or none", of, encrypted)
		}
		c.Note(path, f.Sink(of).Validate())
	}
}
