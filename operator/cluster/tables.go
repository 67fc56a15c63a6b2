package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/store"
)

// Tables is who owns the tables of one group; the JSON of `tocsin cluster tables`.
type Tables struct {
	Group  string  `json:"group"`
	Tables int     `json:"tables"` // of the layout
	Owned  int     `json:"owned"`
	Shares []Share `json:"shares"`

	Layout tocsin.Layout `json:"-"`
	Owners []string      `json:"-"` // by table number
}

// Tables reads who owns what in one group, or in all if only is "", and with count the tasks that wait there. An error beside a
// result names what is missing in the counts.
func (v View) Tables(ctx context.Context, only string, count bool) ([]Tables, error) {
	owners, err := v.Owners(ctx)
	if err != nil {
		return nil, err
	}
	types, counts, failed := map[uint64]biztype.Policy{}, []counted{}, error(nil)
	if count {
		types, counts, failed = census(ctx, v.cfg.Tables)
	}
	for _, p := range types {
		if name := p.Group; owners[name] == nil {
			owners[name] = make([]string, v.cfg.Tables.Layout.Total()) // a group without nodes
		}
	}
	groups := []Tables{}
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		if only == "" || only == name {
			groups = append(groups, divide(name, v.cfg.Tables.Layout, owners[name], types, counts))
		}
	}
	return groups, failed
}

// counted is what one server holds, and its clock at that time.
type counted struct {
	counts []store.Count
	now    int64
}

// census reads the biz types by number, with their groups, and counts the rows of all
// servers at once. The error names what could not be read.
func census(ctx context.Context, cfg tocsin.Config) (map[uint64]biztype.Policy, []counted, error) {
	policies, err := biztype.Load(ctx, cfg)
	types := map[uint64]biztype.Policy{}
	for _, p := range policies {
		types[p.Number] = p.WithDefaults()
	}
	tables, openErr := store.Open(cfg)
	if openErr != nil {
		return types, nil, openErr
	}
	defer tables.Close()
	counts := make([]counted, len(tables.Servers()))
	errs := make([]error, len(counts))
	var wg sync.WaitGroup
	for i := range counts {
		wg.Go(func() { counts[i], errs[i] = countServer(ctx, tables, i) })
	}
	wg.Wait()
	return types, counts, errors.Join(err, store.Lacking(tables.Servers(), errs))
}

func countServer(ctx context.Context, tables *store.Store, server int) (c counted, err error) {
	if _, err = tables.MeasureSoon(ctx, server); err != nil {
		return c, err
	}
	c.counts, err = tables.Counts(ctx, server, tables.TablesOf(server))
	c.now = tables.Now(server)
	return c, err
}

// divide gives the shares of one group.
func divide(group string, layout tocsin.Layout, owners []string, types map[uint64]biztype.Policy, counts []counted) Tables {
	waiting := map[int]Tally{}
	for _, c := range counts {
		maps.Copy(waiting, tallies(c.counts, c.now, types, group))
	}
	g := Tables{Group: group, Tables: len(owners), Shares: shares(owners, waiting)}
	g.Layout, g.Owners = layout, owners
	for _, s := range g.Shares {
		if s.Node != "" {
			g.Owned += s.Tables
		}
	}
	return g
}
