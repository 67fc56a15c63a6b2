package tocsintest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of Cluster.DB

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/outbox"
)

// Group is the group of the biz types that Start applies: that of the node
// whose handlers a test runs.
const Group = "test"

// The layout of a Cluster is small, so that a test starts in about a second, but
// has more than one of everything.
const (
	databases = 2
	tables    = 4
)

// startTimeout bounds Start on a busy machine.
const startTimeout = 2 * time.Minute

// Named is any tocsin.BizType.
type Named interface{ Name() string }

// Cluster is Tocsin's tables in databases of a test's own, on a server that all tests share, and a database for the test's
// business beside them. Tests that run at the same time see nothing of each other.
type Cluster struct {
	Config tocsin.Config
	Client *tocsin.Client
	DB     *sql.DB // the business database, empty at first; AddTx takes its transactions

	Outboxes []outbox.Config // that nodetest.RunDue relays; see WithOutbox
}

// Start makes a cluster with the biz types, numbered from 1 in the order given, with the policies of their Define, or else all of
// Group and without limits worth mentioning. It lives until the test ends.
func Start(tb testing.TB, types ...Named) *Cluster {
	tb.Helper()
	policies := make([]biztype.Policy, len(types))
	for i, t := range types {
		policies[i] = biztype.Policy{Name: t.Name()}
		if defined, ok := t.(interface{ Policy() (tocsin.Policy, bool) }); ok {
			if p, ok := defined.Policy(); ok {
				policies[i] = p
			}
		}
		policies[i].Number = cmp.Or(policies[i].Number, uint64(i+1))
	}
	return StartWith(tb, policies...)
}

// StartWith is Start with policies of the test's own: attempts, time-outs, other
// groups. A policy without a group and without a webhook gets Group.
func StartWith(tb testing.TB, policies ...biztype.Policy) *Cluster {
	tb.Helper()
	c := &Cluster{Config: tocsin.Config{
		Layout:  tocsin.Layout{Databases: databases, Tables: tables, Prefix: newPrefix()},
		Servers: []tocsin.Server{{Name: "test", DSN: serverDSN(tb)}},
		Cluster: Group,
	}}
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	if err := c.makeTables(ctx, grouped(policies)); err != nil {
		tb.Fatalf("tocsintest: %v", err)
	}
	var names []string
	for db := range databases {
		names = append(names, c.Config.Layout.Database(db))
	}
	c.DB = c.newDatabase(tb, "app", names...)
	c.open(tb)
	return c
}

// WithOutbox returns the cluster as a service sees it whose own database is on another server than the tasks: DB is a new
// business database with an outbox, and tasks that Client adds in its transactions go through that. nodetest.RunDue relays
// the outbox. For a business database in PostgreSQL see package contrib/tocsinpg/pgtest.
func (c *Cluster) WithOutbox(tb testing.TB) *Cluster {
	tb.Helper()
	name := "shop" + strconv.Itoa(len(c.Outboxes))
	db := c.newDatabase(tb, name)
	table := c.Config.Layout.Prefix + "_" + name + ".tocsin_outbox"
	from := outbox.Config{DSN: c.Config.Servers[0].DSN, Table: table}
	if _, err := ddl.ApplyOutbox(tb.Context(), ddl.Outbox{DSN: from.DSN, Table: table}); err != nil {
		tb.Fatalf("tocsintest: %v", err)
	}
	return c.Beside(tb, db, from)
}

// Beside returns the cluster as a service sees it whose transactions are in db, and go through an outbox there that is made
// already.
func (c *Cluster) Beside(tb testing.TB, db *sql.DB, from outbox.Config) *Cluster {
	tb.Helper()
	beside := &Cluster{Config: c.Config, DB: db, Outboxes: append(slices.Clone(c.Outboxes), from)}
	beside.Config.Outbox = tocsin.Outbox{Table: from.Table, PostgreSQL: from.OnPostgreSQL()}
	beside.open(tb)
	return beside
}

// grouped gives Group to the policies for Go handlers that name none.
func grouped(policies []biztype.Policy) []biztype.Policy {
	all := slices.Clone(policies)
	for i, p := range all {
		if p.Group == "" && p.Handled() {
			all[i].Group = Group
		}
	}
	return all
}

// makeTables makes the databases of the tasks.
func (c *Cluster) makeTables(ctx context.Context, policies []biztype.Policy) error {
	_, err := ddl.Apply(ctx, c.Config, ddl.Options{Cluster: Group})
	if err == nil && len(policies) > 0 {
		_, err = biztype.Apply(ctx, c.Config, policies)
	}
	return err
}

// newDatabase makes a database and opens it. It goes when the test ends, and others with it.
func (c *Cluster) newDatabase(tb testing.TB, suffix string, others ...string) *sql.DB {
	tb.Helper()
	name := c.Config.Layout.Prefix + "_" + suffix
	db, err := sql.Open("mysql", c.Config.Servers[0].DSN)
	if err == nil {
		_, err = db.ExecContext(tb.Context(), "CREATE DATABASE "+name+" DEFAULT CHARACTER SET utf8mb4")
		err = errors.Join(err, db.Close())
	}
	if err == nil {
		db, err = sql.Open("mysql", c.Config.Servers[0].DSN+name)
	}
	if err != nil {
		tb.Fatalf("tocsintest: %v", err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(db.Close(), c.drop(append(others, name))); err != nil {
			tb.Errorf("tocsintest: %v", err)
		}
	})
	return db
}

// open opens the client.
func (c *Cluster) open(tb testing.TB) {
	tb.Helper()
	var err error
	if c.Client, err = tocsin.Open(tb.Context(), c.Config); err != nil {
		tb.Fatalf("tocsintest: %v", err)
	}
	tb.Cleanup(func() {
		if err := c.Client.Close(); err != nil {
			tb.Errorf("tocsintest: %v", err)
		}
	})
}

// drop drops databases, over a connection of its own. A transaction that a test has left open would hold it up.
func (c *Cluster) drop(names []string) error {
	db, err := sql.Open("mysql", c.Config.Servers[0].DSN+"?lock_wait_timeout=30")
	for _, name := range names {
		if err == nil {
			_, err = db.Exec("DROP DATABASE IF EXISTS " + name)
		}
	}
	return errors.Join(err, db.Close())
}
