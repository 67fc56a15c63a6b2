package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/internal/yamlfile"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/upkeep"
)

// Off as node.listen means no status page.
const Off = "off"

// Bounds.
const (
	minConns     = 4 // a node needs a few at the same time
	maxConns     = 10000
	maxWeight    = 100
	maxPayload   = 65536 // MiB
	minInterval  = 100 * time.Millisecond
	maxInterval  = time.Minute
	maxLookAhead = 10 * time.Minute
	minDrain     = time.Second
	maxDrain     = time.Hour
	minSweep     = time.Second
	maxSweep     = 24 * time.Hour
)

// check collects what is wrong with a file.
type check struct{ yamlfile.Faults }

// faults finds all that is wrong with a file whose defaults are filled in.
func (f File) faults() yamlfile.Faults {
	c := &check{}
	if f.Cluster != "" {
		c.Note("cluster", name.Check("cluster", f.Cluster))
	}
	if err := f.Tocsin().Layout.Validate(); err != nil {
		c.Note("layout", err)
	} else {
		c.servers(f)
	}
	c.Refuse(f.Layout.Ownership != "" && f.Layout.Ownership != ddl.ByEtcd && f.Layout.Ownership != ddl.ByRows, "layout.ownership",
		"layout.ownership %q: use %s or %s", f.Layout.Ownership, ddl.ByEtcd, ddl.ByRows)
	c.outboxes(f)
	c.sinks(f)
	c.entrances(f)
	c.etcd(f.Etcd)
	c.node(f.Node)
	c.console(f)
	c.scan(f.Scan)
	c.Between("sweep.grace", f.Sweep.Grace.D(), ddl.MinSweepGrace, ddl.MaxSweepGrace)
	if f.Sweep.Timeout != 0 {
		c.Between("sweep.timeout", f.Sweep.Timeout.D(), minSweep, maxSweep)
	}
	c.cron("sweep.cron", f.Sweep.Cron)
	c.cron("purge.cron", f.Purge.Cron)
	c.log(f.Log)
	return c.Faults
}

// servers checks each server, and then that every database has one.
func (c *check) servers(f File) {
	before := len(c.Found)
	names := map[string]bool{}
	for i, s := range f.Servers {
		path := fmt.Sprintf("servers[%d]", i)
		tls, err := mysql.Check(s.DSN)
		c.Refuse(s.DSN == "", path, "server %s: needs a dsn", label(s, i))
		c.Refuse(s.DSN != "" && err != nil, path+".dsn", "server %s: %w", label(s, i), err)
		c.Refuse(s.MaxConns != 0 && (s.MaxConns < minConns || s.MaxConns > maxConns), path+".max_conns",
			"server %s: max_conns %d: use %d to %d", label(s, i), s.MaxConns, minConns, maxConns)
		c.Refuse(s.TLS.lacksHalf(), path+".tls", "server %s: tls needs both cert and key, or neither", label(s, i))
		c.Refuse(s.TLS != TLS{} && tls, path+".tls", "server %s: the dsn has a parameter tls too: use one of them", label(s, i))
		c.Refuse(s.Name != "" && names[s.Name], path+".name", "two servers are named %s", s.Name)
		names[s.Name] = true
		c.Note(path+".name", name.CheckShown("server", s.Name))
	}
	cfg := f.Tocsin()
	cfg.Cluster = "" // checked above
	inserts := cfg.Inserts
	cfg.Inserts = nil
	if len(c.Found) == before {
		c.Note("servers", cfg.Validate())
	}
	if cfg.Inserts = inserts; len(c.Found) == before {
		c.Note("inserts", cfg.Validate())
	}
}

// decidesTLS reports whether the DSN of an outbox says whether its connections use TLS.
func decidesTLS(o outbox.Config) bool {
	if !o.OnPostgreSQL() {
		tls, _ := mysql.Check(o.DSN)
		return tls
	}
	u, err := url.Parse(o.DSN)
	return err == nil && u.Query().Has("sslmode")
}

// outboxes checks each outbox.
func (c *check) outboxes(f File) {
	names := map[string]bool{}
	for i, o := range f.Relayed() {
		path := fmt.Sprintf("outboxes[%d]", i)
		o = o.WithDefaults()
		files := f.Outboxes[i].TLS
		tls := decidesTLS(o)
		c.Refuse(o.DSN == "", path, "outbox %s: needs a dsn", o.Name)
		c.Refuse(files.lacksHalf(), path+".tls", "outbox %s: tls needs both cert and key, or neither", o.Name)
		c.Refuse(files != TLS{} && tls, path+".tls", "outbox %s: the dsn has a parameter tls or sslmode too: use one of them", o.Name)
		c.Refuse(names[o.Name], path+".name", "two outboxes are named %s", o.Name)
		names[o.Name] = true
		if o.DSN != "" {
			c.Note(path, o.ValidateForm()) // the command adds the driver
		}
	}
}

func label(s Server, i int) string {
	if s.Name == "" {
		return "number " + strconv.Itoa(i+1)
	}
	return s.Name
}

func (c *check) etcd(e Etcd) {
	for i, endpoint := range e.Endpoints {
		c.Note(fmt.Sprintf("etcd.endpoints[%d]", i), assign.CheckEndpoint(endpoint))
	}
	c.Refuse(e.Password != "" && e.Username == "", "etcd.password", "etcd has a password but no username")
	c.Refuse(e.TLS.lacksHalf(), "etcd.tls", "etcd.tls needs both cert and key, or neither")
}

func (c *check) node(n Node) {
	if n.Name != "" {
		c.Note("node.name", name.CheckNode("node.name", n.Name))
	}
	c.Refuse(n.Weight < 1 || n.Weight > maxWeight, "node.weight", "node.weight %d: use 1 to %d", n.Weight, maxWeight)
	c.Refuse(n.PayloadMiB < 1 || n.PayloadMiB > maxPayload, "node.payload_mib", "node.payload_mib %d: use 1 to %d", n.PayloadMiB, maxPayload)
	c.Between("node.drain_timeout", n.DrainTimeout.D(), minDrain, maxDrain)
	c.Refuse(n.SecretsDir != "" && !filepath.IsAbs(n.SecretsDir), "node.secrets_dir", "node.secrets_dir %q: want an absolute path", n.SecretsDir)
	if n.Listen != Off {
		c.Refuse(listenError(n.Listen) != nil, "node.listen", "node.listen %q: want host:port such as %s, or %s", n.Listen, DefaultListen, Off)
	}
	c.status(n.Status)
	c.api(n.API)
}

func (c *check) status(s StatusPage) {
	const path = "node.status"
	c.Refuse(s.Token != "" && s.TokenFile != "", path+".token_file", "node.status has a token too: use one of them")
	if s.Token != "" {
		c.Refuse(!tokenForm.MatchString(s.Token), path+".token", "node.status.token: want %s", tokenWords)
	}
	c.Refuse(s.TokenFile != "" && !filepath.IsAbs(s.TokenFile), path+".token_file", "node.status.token_file %q: want an absolute path", s.TokenFile)
	c.Refuse(s.TLS.lacksHalf(), path+".tls", "node.status.tls needs both cert and key, or neither")
	c.Refuse(s.TLS.CA != "" && s.TLS.Cert == "" && s.TLS.Key == "", path+".tls", "node.status.tls has a ca, but no cert and key")
}

func listenError(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return errors.New("no port")
	}
	return nil
}

func (c *check) scan(s Scan) {
	c.Between("scan.interval", s.Interval.D(), minInterval, maxInterval)
	c.Refuse(s.LookAhead < 2*s.Interval, "scan.look_ahead", "scan.look_ahead %s: must be at least twice scan.interval %s", s.LookAhead, s.Interval)
	c.Refuse(s.LookAhead.D() > maxLookAhead, "scan.look_ahead", "scan.look_ahead %s: at most %s", s.LookAhead, maxLookAhead)
}

func (c *check) cron(path, expression string) {
	if expression == "" {
		return
	}
	_, err := upkeep.ParseTimes(expression)
	c.Note(path, err)
}

// logLevels are the levels of the command's log.
var logLevels = []string{"trace", "debug", "info", "warn", "error"}

func (c *check) log(l Log) {
	c.Refuse(!slices.Contains(logLevels, strings.ToLower(l.Level)), "log.level", "log.level %q: use trace, debug, info, warn or error", l.Level)
	c.Refuse(l.Format != "" && l.Format != "text" && l.Format != "json", "log.format", "log.format %q: use text or json", l.Format)
}
