package node

import (
	"context"
	"slices"
	"sync"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/store"
)

// look is how a node looks at a table, where nobody owns tables.
type look uint8

const (
	never  look = iota // its database is wrong
	second             // another node looks at it first
	first
)

// claimers is the node's place in a group in which nobody owns tables. It works on all tables: on those that the group
// leaves to it first, on the others a little later. Claims decide who gets a row.
type claimers struct {
	*assign.Rows
	intake     intake
	scan       scan
	databaseOf func(table int) int

	mu    sync.Mutex // held while tables are handed to intake and scan
	begun bool
	looks []look // by table
	wrong []int  // databases
}

func newClaimers(cfg Config, s *store.Store, info assign.NodeInfo) (*claimers, error) {
	layout := cfg.Tables.Layout
	c := &claimers{databaseOf: layout.DatabaseOf, looks: make([]look, layout.Total())}
	var err error
	c.Rows, err = assign.NewRows(assign.RowsConfig{
		Tables: s, Layout: layout, Group: cfg.Group, Node: cfg.Name, Weight: cfg.Weight, Info: info,
		Changed: c.update, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	return c, err
}

// Run works on the tables until ctx ends. Then it takes in nothing more, and returns when what is in delivery has ended or
// is claimed. An error says what could not be settled.
func (c *claimers) Run(ctx context.Context) error {
	c.set(func() { c.begun = true })
	stop := func() { c.set(func() { c.begun = false }) }
	defer context.AfterFunc(ctx, stop)() // at once: to remove the node's rows may take a while
	err := c.Rows.Run(ctx)
	stop()
	all := make([]int, len(c.looks))
	for table := range all {
		all[table] = table
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), fenceTimeout)
	defer cancel()
	_ = c.intake.Drain(bounded, all) // what is left, the dispatcher goes on settling, and says what is lost
	return err
}

// use sets which databases are wrong: no work is done on their tables.
func (c *claimers) use(wrong []int) { c.set(func() { c.wrong = wrong }) }

// update follows what the node looks at first.
func (c *claimers) update() { c.set(func() {}) }

// set changes what the looks depend on, and brings intake and scan to how each table is to be looked at then.
func (c *claimers) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	changed := map[look][]int{}
	for table, was := range c.looks {
		if now := c.wanted(table); now != was {
			changed[now] = append(changed[now], table)
			c.looks[table] = now
		}
	}
	for look, as := range map[look]*duequeue.Access{never: nil, second: {Guest: true}, first: {}} {
		if some := changed[look]; len(some) > 0 {
			c.scan.Set(some, as)
		}
	}
}

// wanted returns how a table is to be looked at. Called under mu.
func (c *claimers) wanted(table int) look {
	if !c.begun || slices.Contains(c.wrong, c.databaseOf(table)) {
		return never
	}
	if c.LooksFirst(table) {
		return first
	}
	return second
}

// has reports whether the node looks at a table first.
func (c *claimers) has(table int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun && c.LooksFirst(table)
}
