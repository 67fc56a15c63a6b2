package operator

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
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

// Share is what one node owns.
type Share struct {
	Node   string   `json:"node"` // its id; "": nobody owns these
	Tables int      `json:"tables"`
	Ranges []string `json:"ranges"` // table numbers, see Ranges
	Tally
}

// Tally is what waits in some tables. A table that could not be counted counts as empty.
type Tally struct {
	Pending int     `json:"pending"`
	Claimed int     `json:"claimed"`
	Dead    int     `json:"dead"`
	Overdue float64 `json:"oldest_overdue_seconds"` // of the oldest pending task whose type is not paused; 0: none is overdue
}

func (t *Tally) add(other Tally) {
	t.Pending += other.Pending
	t.Claimed += other.Claimed
	t.Dead += other.Dead
	t.Overdue = max(t.Overdue, other.Overdue)
}

// Owned reads who owns what in one group, or in all if only is "", and with count the tasks that wait there. An error beside a
// result names what is missing.
func (v View) Owned(ctx context.Context, only string, count bool) ([]Tables, error) {
	owners, unread := v.Owners(ctx)
	if owners == nil {
		return nil, unread
	}
	tallies, failed := map[string]map[int]Tally{}, error(nil)
	if count {
		tallies, failed = v.tallies(ctx)
	}
	for name := range tallies {
		if owners[name] == nil {
			owners[name] = make([]string, v.Tables.Layout.Total()) // a group without nodes
		}
	}
	groups := []Tables{}
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		if only != "" && only != name {
			continue
		}
		g := Tables{Group: name, Tables: len(owners[name]), Shares: shares(owners[name], tallies[name]), Layout: v.Tables.Layout, Owners: owners[name]}
		for _, s := range g.Shares {
			if s.Node != "" {
				g.Owned += s.Tables
			}
		}
		groups = append(groups, g)
	}
	return groups, errors.Join(unread, failed)
}

// tallies counts the rows of all servers at once, and sums them up by group and table number. Each group that has a biz type is in
// the result. The error names what could not be read.
func (v View) tallies(ctx context.Context) (map[string]map[int]Tally, error) {
	policies, err := Policies(ctx, v.Tables)
	sums := map[string]map[int]Tally{}
	for _, p := range policies {
		sums[p.Group] = map[int]Tally{}
	}
	tables, openErr := store.Open(v.Tables)
	if openErr != nil {
		return sums, openErr
	}
	defer tables.Close()
	counts := make([][]store.Count, len(tables.Servers()))
	errs := tables.Everywhere(ctx, func(server int) (err error) {
		counts[server], err = tables.Counts(ctx, server, tables.TablesOf(server))
		return err
	})
	for server, all := range counts {
		tally(sums, policies, all, tables.Now(server))
	}
	return sums, errors.Join(err, store.Lacking(tables.Servers(), errs))
}

// tally adds counts to the sums of the groups of their biz types. Tasks of a paused type count, but none of them is overdue. now is
// the clock of the server that holds the tables, in Unix ms.
func tally(sums map[string]map[int]Tally, policies []biztype.Policy, counts []store.Count, now int64) {
	for _, c := range counts {
		at := slices.IndexFunc(policies, func(p biztype.Policy) bool { return p.Number == c.Type })
		if at < 0 {
			continue
		}
		one := Tally{Pending: c.Pending, Claimed: c.Claimed, Dead: c.Dead}
		if !policies[at].Paused {
			one.Overdue = overdue(c, now)
		}
		sum := sums[policies[at].Group][c.Table]
		sum.add(one)
		sums[policies[at].Group][c.Table] = sum
	}
}

// overdue is how long ago the earliest pending task was due, in seconds.
func overdue(c store.Count, now int64) float64 {
	if c.Oldest == 0 {
		return 0
	}
	return (time.Duration(max(now-c.Oldest, 0)) * time.Millisecond).Seconds()
}

// shares divides all tables by their owner, "" is nobody, ordered by node with nobody last. tallies may lack tables.
func shares(owners []string, tallies map[int]Tally) []Share {
	tables := make(map[string][]int)
	waiting := make(map[string]Tally)
	for table, owner := range owners {
		tables[owner] = append(tables[owner], table)
		sum := waiting[owner]
		sum.add(tallies[table])
		waiting[owner] = sum
	}
	all := make([]Share, 0, len(tables))
	for _, node := range slices.SortedFunc(maps.Keys(tables), nobodyLast) {
		all = append(all, Share{Node: node, Tables: len(tables[node]), Ranges: Ranges(tables[node]), Tally: waiting[node]})
	}
	return all
}

func nobodyLast(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(len(b), len(a))
	}
	return cmp.Compare(a, b)
}

// Ranges writes ascending numbers in short: "0-511", "517".
func Ranges(numbers []int) []string {
	ranges := []string{}
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		text := strconv.Itoa(numbers[i])
		if end > i {
			text += "-" + strconv.Itoa(numbers[end])
		}
		ranges = append(ranges, text)
		i = end + 1
	}
	return ranges
}

// What stands in a grid for a table that nobody owns, and for one whose owner has no character of its own.
const (
	MarkNobody = "."
	MarkOther  = "+"
)

const markText = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// gridStep is what the length of a full line is a multiple of, so that table numbers can be counted.
const gridStep = 16

// Marks gives each owner a character, in the order of Tables.Shares. Those beyond the 62nd share MarkOther.
func Marks(owners []string) map[string]string {
	marks := make(map[string]string)
	for _, owner := range owners {
		marks[owner] = MarkOther
	}
	delete(marks, "")
	for i, owner := range slices.Sorted(maps.Keys(marks)) {
		if i < len(markText) {
			marks[owner] = markText[i : i+1]
		}
	}
	marks[""] = MarkNobody
	return marks
}

// GridLine is the owners of consecutive tables of one database, a character each.
type GridLine struct {
	Database int
	First    int // of the tables, in its database
	Marks    string
}

// Grid draws the owners of all tables, perDatabase to a database, in lines of at most width characters, but at least 16.
func Grid(owners []string, marks map[string]string, perDatabase, width int) []GridLine {
	if width < perDatabase {
		width = max(width-width%gridStep, gridStep)
	}
	var lines []GridLine
	database := 0
	for tables := range slices.Chunk(owners, perDatabase) {
		first := 0
		for part := range slices.Chunk(tables, width) {
			text := ""
			for _, owner := range part {
				text += marks[owner]
			}
			lines = append(lines, GridLine{Database: database, First: first, Marks: text})
			first += len(part)
		}
		database++
	}
	return lines
}
