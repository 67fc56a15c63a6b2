package tocsintest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of Cluster.DB

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
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

// Cluster is a test's own MariaDB with Tocsin's tables. All its databases are on
// one server.
type Cluster struct {
	Config tocsin.Config
	Client *tocsin.Client
	DB     *sql.DB // for the test's own statements and transactions, with no default database
}

// Start makes a cluster with the biz types, numbered from 1 in the order given,
// all of Group and without limits worth mentioning. It lives until the test ends.
func Start(tb testing.TB, types ...Named) *Cluster {
	tb.Helper()
	policies := make([]biztype.Policy, len(types))
	for i, t := range types {
		policies[i] = biztype.Policy{Name: t.Name(), Number: uint64(i + 1), Group: Group}
	}
	return StartWith(tb, policies...)
}

// StartWith is Start with policies of the test's own: attempts, time-outs, other
// groups. A policy without a group and without a webhook gets Group.
func StartWith(tb testing.TB, policies ...biztype.Policy) *Cluster {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	server, err := devserver.StartMariaDB(ctx, devserver.MariaDBConfig{})
	if err != nil {
		tb.Fatalf("tocsintest: %v", err)
	}
	tb.Cleanup(func() { _ = server.Stop() })
	c, err := newCluster(ctx, server.DSN(), grouped(policies))
	if err != nil {
		tb.Fatalf("tocsintest: %v", err)
	}
	tb.Cleanup(func() {
		if err := c.close(); err != nil {
			tb.Errorf("tocsintest: %v", err)
		}
	})
	return c
}

// grouped gives Group to the policies for Go handlers that name none.
func grouped(policies []biztype.Policy) []biztype.Policy {
	all := slices.Clone(policies)
	for i, p := range all {
		if p.Group == "" && p.Webhook == nil {
			all[i].Group = Group
		}
	}
	return all
}

// newCluster makes the tables, then opens what the test uses.
func newCluster(ctx context.Context, dsn string, policies []biztype.Policy) (*Cluster, error) {
	c := &Cluster{Config: tocsin.Config{
		Layout:  tocsin.Layout{Databases: databases, Tables: tables},
		Servers: []tocsin.Server{{Name: "test", DSN: dsn}},
		Cluster: Group,
	}}
	if _, err := ddl.Apply(ctx, c.Config, ddl.Options{Cluster: Group}); err != nil {
		return nil, err
	}
	if len(policies) > 0 {
		if _, err := biztype.Apply(ctx, c.Config, policies); err != nil {
			return nil, err
		}
	}
	var err error
	if c.Client, err = tocsin.Open(ctx, c.Config); err != nil {
		return nil, err
	}
	if c.DB, err = sql.Open("mysql", dsn); err != nil {
		return nil, errors.Join(err, c.Client.Close())
	}
	return c, nil
}

func (c *Cluster) close() error { return errors.Join(c.Client.Close(), c.DB.Close()) }
