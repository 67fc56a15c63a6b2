// Package client is what package tocsin does on its servers: it is the authority for where a row is stored, for the statements that
// store, cancel and reschedule tasks, and for what an error says of them. Package tocsin has the public types, the functions that
// users wrap around calls, and what is told of calls; package outbox/relay moves rows of outboxes through it.
//
//	Task --Row--> Row --Add, AddMany--> a transaction of its own
//	                  --AddTx---------> the caller's transaction, or its outbox
//	                  --Relay---------> the outbox
//	Ref  --Change, ChangeTx, RelayChange, likewise
//
// Before each transaction of its own it looks at the layout rows of the databases, at most a second ago and over the same
// connection (server.admit). A caller's transaction carries that condition in its statements (oursSQL). A connection that is lost is
// replaced and the write repeated (tries): it is never stored twice, or the error wraps ErrUnknownOutcome.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Config says where the tables are; see tocsin.Config.
type Config struct {
	Layout  Layout
	Cluster string       // the cluster id that the stored layout must have; "" takes any
	Servers []mysql.Spec // each database on exactly one of them
	Outbox  Outbox
	Spreads map[string]time.Duration // windows of tocsin.Inserts, by biz type
}

// Client stores tasks. It holds a pool of connections to each server. Safe for concurrent use.
type Client struct {
	Types BizTypes
	IDs   ids.Maker

	layout  Layout
	servers []*server
	home    []*server      // by database number
	want    layoutrow.Want // of servers that are met later
	agreed  layoutrow.Identities
	marks   layoutrow.Marks
	horizon time.Duration
	outbox  Outbox
	spreads map[string]time.Duration
}

// Open compares the config with the stored layout, cluster, schema version and biz types. One database that agrees is enough. It
// returns ErrLayout if none agrees, or ErrUnreachable if no server answers.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	c := &Client{layout: cfg.Layout, home: make([]*server, cfg.Layout.Databases), outbox: cfg.Outbox, spreads: cfg.Spreads}
	c.want = layoutrow.Want{Databases: cfg.Layout.Databases, Tables: cfg.Layout.Tables, Cluster: cfg.Cluster}
	c.Types.read, c.Types.reads = c.readBizTypes, make(chan struct{}, 1)
	for _, spec := range cfg.Servers {
		opened, err := mysql.Open(spec)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		s := &server{Server: opened, client: c}
		c.servers = append(c.servers, s)
		for _, db := range spec.Databases {
			c.home[db] = s
		}
	}
	if err := c.meet(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the pools. Calls under way fail.
func (c *Client) Close() error {
	var errs []error
	for _, s := range c.servers {
		errs = append(errs, s.DB.Close())
	}
	return errors.Join(errs...)
}

// ServerOf returns the name of the server on which the tasks of a biz_id are.
func (c *Client) ServerOf(bizID uint64) string { return c.homeOf(c.layout.TableOf(bizID)).Name }

// homeOf returns the server of a table number.
func (c *Client) homeOf(table int) *server { return c.home[c.layout.DatabaseOf(table)] }

// Where names a table for errors: "toc_3.task_0517 on db2".
func (c *Client) Where(table int) string {
	return c.layout.Table(table) + " on " + c.homeOf(table).Name
}

// stragglers is how long Open waits for the other servers once one has answered:
// the identity of most databases decides which of them are ours.
const stragglers = time.Second

// meet asks all servers at once and takes the first that has a usable database;
// those that do not answer soon after it are asked again when they are used. It
// returns when all have ended.
func (c *Client) meet(ctx context.Context) error {
	soon, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, len(c.servers))
	for _, s := range c.servers {
		go func() { answers <- c.ask(soon, s) }()
	}
	var good []answer
	var wrong error
	var down []string
	for range c.servers {
		a := <-answers
		switch {
		case a.err == nil:
			if good = append(good, a); len(good) == 1 {
				defer time.AfterFunc(stragglers, cancel).Stop()
			}
		case errors.Is(a.err, ErrLayout):
			wrong = cmp.Or(wrong, a.err)
		case len(good) == 0: // else it may have been cancelled
			down = append(down, a.err.Error())
		}
	}
	good, wrong = c.agree(ctx, good, wrong)
	switch {
	case len(good) > 0:
		c.want.Cluster, c.horizon = good[0].facts.cluster, good[0].facts.horizon
		c.Types.set(good[0].types)
		return nil
	case wrong != nil:
		return wrong
	}
	return Refuse(ErrUnreachable, "no MySQL server can be used: %s", strings.Join(down, "; "))
}

// agree asks servers again if their databases have different identities: some were
// judged before the others had answered. It leaves out those that are wrong.
func (c *Client) agree(ctx context.Context, good []answer, wrong error) ([]answer, error) {
	if !c.agreed.Disputed() {
		return good, wrong
	}
	var still []answer
	for _, a := range good {
		if a = c.ask(ctx, a.server); a.err == nil {
			still = append(still, a)
		} else {
			wrong = cmp.Or(wrong, a.err)
		}
	}
	return still, wrong
}

// answer is what one server said to Open.
type answer struct {
	server *server
	facts  *facts
	types  map[string]uint64
	err    error
}

func (c *Client) ask(ctx context.Context, s *server) answer {
	if len(s.Databases) == 0 {
		return answer{err: fmt.Errorf("server %s holds no database", s.Name)}
	}
	f, err := s.check(ctx)
	if err != nil {
		return answer{err: err}
	}
	types, err := s.bizTypes(ctx, f)
	if err != nil {
		return answer{err: err}
	}
	return answer{server: s, facts: f, types: types}
}

// readBizTypes asks all servers at once and takes the first answer: one that hangs holds up nobody. It returns when all
// have ended.
func (c *Client) readBizTypes(ctx context.Context) (types map[string]uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, len(c.servers))
	asked := 0
	for _, s := range c.servers {
		if len(s.Databases) == 0 {
			continue
		}
		asked++
		go func() {
			f, err := s.checked(ctx)
			a := answer{server: s, facts: f, err: err}
			if err == nil {
				a.types, a.err = s.bizTypes(ctx, f)
			}
			answers <- a
		}()
	}
	var errs []error
	for range asked {
		a := <-answers
		if a.err == nil && types == nil {
			types = a.types
			cancel()
		}
		errs = append(errs, a.err)
	}
	if types != nil {
		return types, nil
	}
	return nil, errors.Join(errs...)
}

// serverOf returns the server of a table number, if its database may be read.
func (c *Client) serverOf(ctx context.Context, table int) (*server, error) {
	db := c.layout.DatabaseOf(table)
	return c.home[db], c.home[db].readable(ctx, db)
}

// TableOf returns the table number of a job_id; ErrNotFound where the layout has
// no such table.
func (c *Client) TableOf(id uint64) (int, error) {
	if table := ids.Table(id); id != 0 && table < c.layout.Total() {
		return table, nil
	}
	return 0, Refuse(ErrNotFound, "no task %d", id)
}
