package tocsinnats

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
)

// seed and public are the key of a user of NATS.
var seed, public = newKey()

func newKey() (seed, public string) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		panic(err)
	}
	secret, err := pair.Seed()
	if err != nil {
		panic(err)
	}
	if public, err = pair.PublicKey(); err != nil {
		panic(err)
	}
	return string(secret), public
}

func TestNewRefusesWhatCanNeverConnect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(cfg *sink.Config)
		want   string // "": taken
	}{
		"host:port":                  {func(*sink.Config) {}, ""},
		"an address of IPv6":         {func(c *sink.Config) { c.Addresses = []string{"[::1]:4222"} }, ""},
		"a name and a password":      {func(c *sink.Config) { c.Username, c.Password = "shop", "secret" }, ""},
		"a token":                    {func(c *sink.Config) { c.Username, c.Password, c.Mechanism = "any", "secret", "token" }, ""},
		"an nkey":                    {func(c *sink.Config) { c.Username, c.Password, c.Mechanism = public, seed, "nkey" }, ""},
		"no addresses":               {func(c *sink.Config) { c.Addresses = nil }, "has no addresses"},
		"no port":                    {func(c *sink.Config) { c.Addresses = []string{"a:1", "nats.internal"} }, "not host:port"},
		"a URL with a password":      {func(c *sink.Config) { c.Addresses = []string{"nats://shop:secret@a:4222"} }, "not host:port"},
		"two addresses in one":       {func(c *sink.Config) { c.Addresses = []string{"a,b:4222"} }, "not host:port"},
		"a token that is missing":    {func(c *sink.Config) { c.Username, c.Mechanism = "any", "token" }, "no password, which would be the token"},
		"a mechanism of Kafka":       {func(c *sink.Config) { c.Username, c.Password, c.Mechanism = "shop", "secret", "SCRAM-SHA-256" }, `no mechanism "SCRAM-SHA-256"`},
		"an nkey without its seed":   {func(c *sink.Config) { c.Username, c.Password, c.Mechanism = public, "secret", "nkey" }, "begins with SU"},
		"an nkey of somebody else":   {func(c *sink.Config) { c.Username, c.Password, c.Mechanism = "UABC", seed, "nkey" }, "not the public key"},
		"a password without a user":  {func(c *sink.Config) { c.Password = "secret" }, "no username"},
		"a glob that is none":        {func(c *sink.Config) { c.Topics = []string{"["} }, "no pattern"},
		"no subjects that it allows": {func(c *sink.Config) { c.Topics = nil }, "allows no topics"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := sink.Config{Name: "nats", Addresses: []string{"127.0.0.1:4222"}, Topics: []string{"*"}}
			c.change(&cfg)
			m, err := New(cfg)
			wantLine(t, err, c.want)
			if err == nil {
				if err := m.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
			}
		})
	}
}

// wantLine wants an error with a text, in one line and without a password; or none.
func wantLine(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil && want == "" {
		return
	}
	if err == nil || want == "" || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v, want %q", err, want)
	}
	for _, never := range []string{"\n", "secret", seed} {
		if strings.Contains(err.Error(), never) {
			t.Errorf("%q contains %q", err, never)
		}
	}
}

func TestSinkRefusesWhatIsNoSubject(t *testing.T) {
	t.Parallel()
	cfg := sink.Config{Name: "nats", Addresses: []string{"127.0.0.1:4222"}, Topics: []string{"*", ""}}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]string{
		"": "", "orders.{biz_type}": "", "{header.to}": "", "orders.春": "",
		"orders..paid": "no subject of NATS", "orders.": "no subject of NATS", ".orders": "no subject of NATS", "orders.*": "no subject of NATS",
		"orders.>": "no subject of NATS", "orders paid": "no subject of NATS", "orders\tpaid": "no subject of NATS", "orders\r\nPUB x": "no subject of NATS",
		"$JS.API.STREAM.DELETE.X": "no subject that a task can have", strings.Repeat("a", 1025): "no subject that a task can have",
	} {
		p := policy(topic)
		to, err := m.Sink(p)
		if (to == nil) != (err != nil) {
			t.Errorf("%q: %v, %v", topic, to, err)
		}
		wantLine(t, err, want)
	}
}

// policy is that of a biz type whose tasks go to a subject.
func policy(topic string) tocsin.Policy {
	return tocsin.Policy{Name: "order.close", Number: 7, Sink: &tocsin.Sink{Name: "nats", Topic: topic}}
}

func TestHeadersThatNATSCantCarryAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", ""},
		{"X.Tenant_1-a", "é 春, and 50% \"off\"", ""},
		{"empty", "", ""},
		{"", "x", "character other than"}, {"a:b", "x", "character other than"}, {"a b", "x", "character other than"}, {"a\r\nb", "x", "character other than"},
		{"naïve", "x", "character other than"}, {"a\x00", "x", "character other than"},
		{"a", "x\r\nb: y", "line break"}, {"a", "x\ny", "line break"}, {"a", " x", "space at an end"}, {"a", "x\t", "space at an end"},
	} {
		msg, err := encode(sink.Message{ID: "1.2", Topic: "orders", ContentType: "text/plain", Headers: []sink.Pair{{Name: c.name, Text: c.text}}})
		wantLine(t, err, c.want)
		if err == nil && (len(msg.Header) != 3 || msg.Header[c.name][0] != c.text) {
			t.Errorf("%q: %v", c.name, msg.Header)
		}
	}
}

func TestHeadersThatHaveAMeaningOfTheirOwnAreLeftOut(t *testing.T) {
	t.Parallel()
	var theirs []sink.Pair
	for _, name := range []string{"Nats-Msg-Id", "nats-rollup", "Content-Type", "content-type", "CE-id", "ce-id", "kept"} {
		theirs = append(theirs, sink.Pair{Name: name, Text: "theirs"})
	}
	msg, err := encode(sink.Message{ID: "1.2", Topic: "orders", ContentType: "text/plain", Headers: theirs})
	if err != nil {
		t.Fatal(err)
	}
	if want := (nats.Header{"Nats-Msg-Id": {"1.2"}, "content-type": {"text/plain"}, "kept": {"theirs"}}); !maps.EqualFunc(msg.Header, want, slices.Equal) {
		t.Errorf("%v, want %v", msg.Header, want)
	}
}

func TestAttributesAreEncodedAsTheBindingSays(t *testing.T) {
	t.Parallel()
	msg, err := encode(sink.Message{ID: "1.2", Topic: "orders", ContentType: "text/plain; charset=utf-8", Attributes: []sink.Pair{
		{Name: "id", Text: "1.2"}, {Name: "subject", Text: "Euro € 😀"}, {Name: "partitionkey", Text: "~a\"100%\"\x7f\n"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, texts := range msg.Header {
		got[name] = strings.Join(texts, "|")
	}
	want := map[string]string{
		"Nats-Msg-Id": "1.2", "content-type": "text/plain; charset=utf-8", "ce-datacontenttype": "text/plain;%20charset=utf-8",
		"ce-id": "1.2", "ce-subject": "Euro%20%E2%82%AC%20%F0%9F%98%80", "ce-partitionkey": "~a%22100%25%22%7F%0A",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAPatternCoversSubjectsAsTheServerSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"orders.paid", "orders.paid", true}, {"orders.*", "orders.paid", true}, {"*.paid", "orders.paid", true}, {"orders.>", "orders.paid", true},
		{"orders.>", "orders.paid.late", true}, {">", "orders", true}, {"orders.*", "orders", false}, {"orders.>", "orders", false}, {"orders", "orders.paid", false},
		{"orders.paid", "orders", false}, {"orders.*", "orders.paid.late", false}, {"order", "orders", false}, {"*", "orders", true}, {"", "orders", false},
	} {
		if got := covers(c.pattern, c.subject); got != c.want {
			t.Errorf("%s has %s: %t", c.pattern, c.subject, got)
		}
	}
}

func TestWithoutALoggerOnlyWarningsAndErrorsAreLogged(t *testing.T) {
	t.Parallel()
	m, err := New(sink.Config{Name: "nats", Addresses: []string{"localhost:4222"}, Topics: []string{"*"}, Cluster: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if log := m.cfg.Logger; log.Enabled(t.Context(), slog.LevelInfo) || !log.Enabled(t.Context(), slog.LevelWarn) {
		t.Error("the level is not that of warnings")
	}
}
