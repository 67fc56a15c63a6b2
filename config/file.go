package config

import (
	"crypto/tls"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/outbox"
)

// Defaults of a file.
const (
	DefaultListen       = "127.0.0.1:8480"
	DefaultWeight       = 1
	DefaultPayloadMiB   = 128
	DefaultScanInterval = 5 * time.Second
	DefaultGrace        = biztype.DefaultSweepGrace
	DefaultDrainTimeout = 30 * time.Second
	DefaultLogLevel     = "info"
)

// File is a whole config file. Load and Parse fill in the defaults.
type File struct {
	Cluster   string              `yaml:"cluster"` // cluster id, [A-Za-z0-9._-], a letter or digit first, at most 64; "" takes the stored one; nodes must set it
	Layout    Layout              `yaml:"layout"`
	Servers   []Server            `yaml:"servers"`
	Outboxes  []Outbox            `yaml:"outboxes"`  // in business databases, relayed by `tocsin serve` and `tocsin relay`
	Sinks     map[string]Sink     `yaml:"sinks"`     // message brokers, by the names that policies use
	Entrances map[string]Entrance `yaml:"entrances"` // topics of commands, relayed by `tocsin serve` and `tocsin relay`
	Etcd      Etcd                `yaml:"etcd"`
	Node      Node                `yaml:"node"`
	Console   Console             `yaml:"console"` // web pages at the address of the HTTP API
	Inserts   map[string]Inserts  `yaml:"inserts"` // by biz type: limits and spreads what a process adds with this file, be it the HTTP API, the command or a client in Go
	Scan      Scan                `yaml:"scan"`
	Sweep     Sweep               `yaml:"sweep"`
	Purge     Purge               `yaml:"purge"`
	Log       Log                 `yaml:"log"`
}

// Layout says how many tables there are; see tocsin.Layout. A file must say it:
// it can never be changed, so nobody should get it by leaving it out.
type Layout struct {
	Databases int    `yaml:"databases"` // at least 1
	Tables    int    `yaml:"tables"`    // in each database, at least 1
	Prefix    string `yaml:"prefix"`    // of database names; "": toc
	Ownership string `yaml:"ownership"` // etcd: nodes own tables, by keys in etcd; rows: every node claims each row, and etcd is not used; "": etcd
}

// Server is one MySQL server, a primary, with its replicas if the DSN names them.
type Server struct {
	Name        string    `yaml:"name"`         // in messages, logs and metrics; "": the address
	DSN         string    `yaml:"dsn"`          // user:password@tcp(host:port)/ or user:password@tcp(host:port,host:port)/, see tocsin.Server; ${NAME} is replaced
	PasswordEnv string    `yaml:"password_env"` // variable that holds the password, instead of the one in dsn
	Databases   Databases `yaml:"databases"`    // numbers and ranges; may be left out for a single server
	MaxConns    int       `yaml:"max_conns"`    // open connections of each process at most, 4 to 10000; 0: 16
	TLS         TLS       `yaml:"tls"`          // PEM files; none: the dsn decides

	tls *tls.Config // of TLS, read by Parse
}

// Outbox is a table in a business database, whose rows a relay moves to the tables of their tasks.
type Outbox struct {
	Name        string `yaml:"name"`         // in messages, logs and metrics; "": the table
	DSN         string `yaml:"dsn"`          // of the business server, as in Server
	PasswordEnv string `yaml:"password_env"` // as in Server
	Table       string `yaml:"table"`        // database.table
	TLS         TLS    `yaml:"tls"`          // PEM files; none: the dsn decides

	tls *tls.Config // of TLS, read by Parse
}

// Etcd says where nodes register. Sweepers and clients need none.
type Etcd struct {
	Endpoints []string `yaml:"endpoints"` // host:port, or a URL with http or https
	Username  string   `yaml:"username"`  // or ${NAME}
	Password  string   `yaml:"password"`  // ${NAME}; a literal one works but does not belong into a file
	TLS       TLS      `yaml:"tls"`       // PEM files; none: plain text, unless an endpoint is an https URL
}

// Node is about this process.
type Node struct {
	Name   string `yaml:"name"`   // same form as Cluster, at most 40; "": the host name, adapted
	Weight int    `yaml:"weight"` // share of the tables against other nodes, 1 to 100; 0: 1
	// PayloadMiB limits the payloads of tasks in memory, in MiB, 1 to 65536; one biz type uses at most half of it; 0:
	// 128.
	PayloadMiB int `yaml:"payload_mib"`
	// DrainTimeout is how long deliveries in hand may go on after SIGTERM, 1s to 1h; 0: 30s. The process ends at most 5
	// s later.
	DrainTimeout biztype.Duration `yaml:"drain_timeout"`
	SecretsDir   string           `yaml:"secrets_dir"` // directory with a file for each callback secret, named after it; absolute; "": secrets come from the environment
	Listen       string           `yaml:"listen"`      // of /metrics, /status, /healthz and /readyz; "": 127.0.0.1:8480; "off": none
	Status       StatusPage       `yaml:"status"`      // who may read that page, and how
	API          API              `yaml:"api"`         // the HTTP API of tocsin serve
}

// StatusPage protects the status page. The zero value: everybody who reaches it may read it, in plain text.
type StatusPage struct {
	Token     string `yaml:"token"`      // bearer token of /metrics and /status, ${NAME}, 16 to 256 visible characters; "": none
	TokenFile string `yaml:"token_file"` // file with the token instead, read again for each request; absolute
	TLS       TLS    `yaml:"tls"`        // cert and key of the page, read again for each connection; ca for those who ask it; none: plain text
}

// Inserts limits and spreads the tasks of a biz type that a process adds; see tocsin.Inserts. The HTTP API refuses what is over the limit.
type Inserts struct {
	Rate   float64          `yaml:"rate"`   // tasks a second, at most 1000000; 0: no limit
	Burst  int              `yaml:"burst"`  // tasks at once after a pause, at most 1000000; 0: rate, rounded up
	Spread biztype.Duration `yaml:"spread"` // tasks that are due on a whole minute are moved later by less than this, at most 1h; 0: they are not
}

// Scan is about reading the tables.
type Scan struct {
	Interval  biztype.Duration `yaml:"interval"`   // between two peeks of a table, 100ms to 1m; 0: 5s
	LookAhead biztype.Duration `yaml:"look_ahead"` // at least twice the interval, at most 10m; 0: twice the interval
}

// Sweep is about overdue tasks.
type Sweep struct {
	Grace   biztype.Duration `yaml:"grace"`   // how long a task must be overdue before a sweeper takes it, 1s to 24h; 0: 60s
	Timeout biztype.Duration `yaml:"timeout"` // how long a sweep takes in tasks, 1s to 24h; 0: 50s, for the resident sweeper 5/6 of the time to its next sweep
	Cron    string           `yaml:"cron"`    // of the resident sweeper, "*/5 * * * *" or "@every 1m"; "": a single sweep
}

// Purge is about tasks that are past the retention of their biz type.
type Purge struct {
	Cron string `yaml:"cron"` // of the resident purger, "30 4 * * *"; "": one purge, then it ends
}

// Log is about standard error.
type Log struct {
	Level  string `yaml:"level"`  // trace, debug, info, warn or error; "": info
	Format string `yaml:"format"` // text or json; "": text on a terminal, else json
}

// Default holds all defaults and the layout of development, 8 x 16. It names no
// server.
func Default() File {
	return File{
		Layout: Layout{Databases: 8, Tables: 16, Prefix: tocsin.DefaultPrefix},
		Node:   Node{Weight: DefaultWeight, PayloadMiB: DefaultPayloadMiB, Listen: DefaultListen, DrainTimeout: biztype.Duration(DefaultDrainTimeout), API: API{Limits: APILimits{}.withDefaults()}},
		Scan:   Scan{Interval: biztype.Duration(DefaultScanInterval), LookAhead: biztype.Duration(2 * DefaultScanInterval)},
		Sweep:  Sweep{Grace: biztype.Duration(DefaultGrace)},
		Log:    Log{Level: DefaultLogLevel},
	}
}

// withDefaults fills in what is zero.
func (f File) withDefaults() File {
	d := Default()
	fill(&f.Layout.Prefix, d.Layout.Prefix)
	fill(&f.Node.Weight, d.Node.Weight)
	fill(&f.Node.PayloadMiB, d.Node.PayloadMiB)
	fill(&f.Node.Listen, d.Node.Listen)
	fill(&f.Node.DrainTimeout, d.Node.DrainTimeout)
	f.Node.API.Limits = f.Node.API.Limits.withDefaults()
	if f.Console.Proxy != nil {
		f.Console.Proxy = f.Console.Proxy.withDefaults()
	}
	fill(&f.Scan.Interval, d.Scan.Interval)
	fill(&f.Scan.LookAhead, 2*f.Scan.Interval)
	fill(&f.Sweep.Grace, d.Sweep.Grace)
	fill(&f.Log.Level, d.Log.Level)
	return f
}

func fill[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Tocsin gives the servers, the layout, and what inserts says.
func (f File) Tocsin() tocsin.Config {
	cfg := tocsin.Config{
		Cluster: f.Cluster,
		Layout:  tocsin.Layout{Databases: f.Layout.Databases, Tables: f.Layout.Tables, Prefix: f.Layout.Prefix},
	}
	for _, s := range f.Servers {
		cfg.Servers = append(cfg.Servers, tocsin.Server{Name: s.Name, DSN: s.DSN, Databases: s.Databases, MaxConns: s.MaxConns, TLS: s.tls})
	}
	if len(f.Inserts) > 0 {
		cfg.Inserts = make(map[string]tocsin.Inserts, len(f.Inserts))
	}
	for bizType, i := range f.Inserts {
		cfg.Inserts[bizType] = tocsin.Inserts{Rate: i.Rate, Burst: i.Burst, Spread: i.Spread.D()}
	}
	return cfg
}

// Relayed gives the outboxes.
func (f File) Relayed() []outbox.Config {
	var all []outbox.Config
	for _, o := range f.Outboxes {
		all = append(all, outbox.Config{Name: o.Name, DSN: o.DSN, Table: o.Table, TLS: o.tls})
	}
	return all
}
