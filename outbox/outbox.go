package outbox

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/name"
)

// WaitTimeout is how long the server waits for a session of ours that sends nothing, before it ends the session.
const WaitTimeout = 10 * time.Second

// Config says where an outbox is.
type Config struct {
	Name  string      // in logs and metrics, one line of text; "": the table
	DSN   string      // of the business server, as in tocsin.Server; a database in it is ignored. PostgreSQL: a URL, postgres://user:password@host/database
	TLS   *tls.Config `json:"-"` // overrides the DSN; nil: the DSN decides
	Table string      // database.table; in PostgreSQL schema.table; in Kafka the topic

	// Driver reaches servers that are neither MySQL nor MariaDB: tocsinpg.Driver{} for PostgreSQL, a tocsinkafka.Entrance for Kafka. nil: MySQL or MariaDB.
	Driver Driver `json:"-"`
}

// OnPostgreSQL reports whether the DSN is a URL of PostgreSQL.
func (c Config) OnPostgreSQL() bool {
	return strings.HasPrefix(c.DSN, "postgres://") || strings.HasPrefix(c.DSN, "postgresql://")
}

// WithDefaults fills in what is empty.
func (c Config) WithDefaults() Config {
	c.Name = cmp.Or(c.Name, c.Table)
	return c
}

// Validate returns the first mistake. It connects to nothing.
func (c Config) Validate() error {
	if err := c.ValidateForm(); err != nil {
		return err
	}
	switch {
	case c.Driver != nil:
		return c.Driver.Check(c)
	case c.OnPostgreSQL():
		return errors.New("the outbox is in PostgreSQL: set Driver to that of package tocsinpg")
	}
	return nil
}

// ValidateForm is Validate without the Driver, for callers that set the Driver later.
func (c Config) ValidateForm() error {
	c = c.WithDefaults()
	if err := name.CheckShown("outbox", c.Name); err != nil {
		return err
	}
	if c.Driver != nil && !c.OnPostgreSQL() {
		return nil // its Check knows the rest
	}
	if err := CheckTable(c.Table); err != nil {
		return err
	}
	within, _ := Split(c.Table)
	switch {
	case c.OnPostgreSQL() && within == "":
		return fmt.Errorf("outbox table %q: name its schema too, as public.%s", c.Table, c.Table)
	case c.OnPostgreSQL():
		return nil
	case within == "":
		return fmt.Errorf("outbox table %q: name its database too, as shop.%s", c.Table, c.Table)
	}
	_, err := mysql.Check(c.DSN)
	return err
}

// Outbox is one outbox. Safe for concurrent use.
type Outbox struct {
	Name string
	Server
}

// Open makes a pool for the outbox's server. It connects to nothing.
func Open(cfg Config) (*Outbox, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	open := openMySQL
	if cfg.Driver != nil {
		open = cfg.Driver.Open
	}
	server, err := open(cfg)
	if err != nil {
		return nil, err
	}
	return &Outbox{Name: cfg.Name, Server: server}, nil
}

// ErrNoIdentity says that the table lacks its identity, under which relays note what they have moved.
var ErrNoIdentity = errors.New("it is not there, this user has no right on it, or the comment of its table holds no identity: run `tocsin outbox apply`")
