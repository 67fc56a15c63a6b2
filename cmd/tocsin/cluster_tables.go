package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/ownership"
	"github.com/tocsinhq/tocsin/store"
)

// maxRanges is how many ranges of tables stand in one line for people.
const maxRanges = 6

// groupTables is the JSON of `cluster tables` for one group.
type groupTables struct {
	Group  string            `json:"group"`
	Tables int               `json:"tables"` // of the layout
	Owned  int               `json:"owned"`
	Shares []ownership.Share `json:"shares"`

	layout tocsin.Layout
	owners []string          // by table number
	marks  map[string]string // of the owners, in the grid
}

func newClusterTables(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tables", Short: "Show which node owns which tables, and what waits in them", Args: noArgs,
		Long: "Show, for every group, which node owns which tables, and the tasks of the group's biz\n" +
			"types that wait in them. Tasks of a paused type count, but are not overdue. Counting reads\n" +
			"an index of every table: leave it out with --counts=false where there are very many rows.\n" +
			"On a terminal every table is drawn as one character, its owner's mark.",
	}
	only := groupFlag(cmd)
	count := cmd.Flags().Bool("counts", true, "count the tasks")
	grid := cmd.Flags().Bool("grid", false, "draw all tables, a character each (default on a terminal)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		width, onTerminal := a.terminal()
		if drawn := *grid || onTerminal && !cmd.Flags().Changed("grid"); !drawn {
			width = 0
		}
		groups, err := a.tables(cmd.Context(), *only, *count)
		if groups == nil {
			return err
		}
		return errors.Join(a.print(groups, func(w io.Writer) { writeTables(w, groups, *count, width) }), err)
	}
	return cmd
}

// tables reads who owns what. An error beside a result names what is missing in
// the counts.
func (a *app) tables(ctx context.Context, only string, count bool) ([]groupTables, error) {
	cfg, err := a.cluster()
	if err != nil {
		return nil, err
	}
	owners, err := a.owners(ctx)
	if err != nil {
		return nil, err
	}
	types, counts, failed := map[uint64]biztype.Policy{}, []counted{}, error(nil)
	if count {
		types, counts, failed = census(ctx, cfg)
	}
	for _, p := range types {
		if name := p.Group; owners[name] == nil {
			owners[name] = make([]string, cfg.Layout.Total()) // a group without nodes
		}
	}
	groups := []groupTables{}
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		if only == "" || only == name {
			groups = append(groups, divide(name, cfg.Layout, owners[name], types, counts))
		}
	}
	return groups, failed
}

// owners reads the owner of each table by group; if nobody owns tables, who looks at
// it first.
func (a *app) owners(ctx context.Context) (map[string][]string, error) {
	if a.byRows() {
		return a.firsts(ctx)
	}
	keys, err := a.registry(ctx)
	if err != nil {
		return nil, err
	}
	defer keys.Close()
	names, err := keys.Groups(ctx)
	if err != nil {
		return nil, err
	}
	owners := map[string][]string{}
	for _, name := range names {
		if owners[name], err = keys.Owners(ctx, name); err != nil {
			return nil, err
		}
	}
	return owners, nil
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
	return types, counts, errors.Join(err, errors.Join(errs...))
}

func countServer(ctx context.Context, tables *store.Store, server int) (c counted, err error) {
	if _, err = tables.Measure(ctx, server); err != nil {
		return c, err
	}
	c.counts, err = tables.Counts(ctx, server, tables.TablesOf(server))
	c.now = tables.Now(server)
	return c, err
}

// divide gives the shares of one group.
func divide(group string, layout tocsin.Layout, owners []string, types map[uint64]biztype.Policy, counts []counted) groupTables {
	part := func(number uint64) ownership.Part {
		switch p, known := types[number]; {
		case !known || p.Group != group:
			return ownership.Not
		case p.Paused:
			return ownership.Waits
		}
		return ownership.Counts
	}
	tallies := map[int]ownership.Tally{}
	for _, c := range counts {
		maps.Copy(tallies, ownership.Tallies(c.counts, c.now, part))
	}
	g := groupTables{Group: group, Tables: len(owners), Shares: ownership.Shares(owners, tallies)}
	g.layout, g.owners, g.marks = layout, owners, ownership.Marks(owners)
	for _, s := range g.Shares {
		if s.Node != "" {
			g.Owned += s.Tables
		}
	}
	return g
}

// writeTables draws the grid in so many columns; 0: none.
func writeTables(w io.Writer, groups []groupTables, count bool, width int) {
	if len(groups) == 0 {
		fmt.Fprintln(w, "no groups: start a node with `tocsin serve`")
	}
	for i, g := range groups {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "group %s: %d of %d tables owned\n", g.Group, g.Owned, g.Tables)
		if width > 0 {
			writeGrid(w, g, width)
		}
		writeShares(w, g, count, width > 0)
	}
}

// writeShares writes a line per node. Beside a grid its mark there stands for the table numbers.
func writeShares(w io.Writer, g groupTables, count, grid bool) {
	last := "TABLE NUMBERS"
	if grid {
		last = "MARK"
	}
	rows := [][]string{{"NODE", "TABLES", "PENDING", "CLAIMED", "DEAD", "OLDEST OVERDUE", last}}
	for _, s := range g.Shares {
		row := []string{nodeName(s.Node), strconv.Itoa(s.Tables), "-", "-", "-", "-", ranges(s.Ranges)}
		if count {
			copy(row[2:], []string{strconv.Itoa(s.Pending), strconv.Itoa(s.Claimed), strconv.Itoa(s.Dead), overdue(s.Overdue)})
		}
		if grid {
			row[6] = g.marks[s.Node]
		}
		rows = append(rows, row)
	}
	columns(w, rows...)
}

func nodeName(id string) string {
	if id == "" {
		return "(nobody)"
	}
	return oneCell(id)
}

func overdue(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond).String()
}

func ranges(all []string) string {
	if len(all) <= maxRanges {
		return strings.Join(all, " ")
	}
	return fmt.Sprintf("%s and %d ranges more", strings.Join(all[:maxRanges], " "), len(all)-maxRanges)
}
