package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/internal/ownership"
	"github.com/tocsinhq/tocsin/operator/cluster"
)

// maxRanges is how many ranges of tables stand in one line for people.
const maxRanges = 6

// groupTables is the JSON of `cluster tables` for one group.
type groupTables = cluster.Tables

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
		v, err := a.view()
		if err != nil {
			return err
		}
		groups, err := v.Tables(cmd.Context(), *only, *count)
		if groups == nil {
			return err
		}
		return errors.Join(a.print(groups, func(w io.Writer) {
			writeTables(w, groups, *count, width)
			writeUncounted(w, err)
		}), err)
	}
	return cmd
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
	marks := ownership.Marks(g.Owners)
	rows := [][]string{{"NODE", "TABLES", "PENDING", "CLAIMED", "DEAD", "OLDEST OVERDUE", last}}
	for _, s := range g.Shares {
		row := []string{nodeName(s.Node), strconv.Itoa(s.Tables), "-", "-", "-", "-", ranges(s.Ranges)}
		if count {
			copy(row[2:], []string{strconv.Itoa(s.Pending), strconv.Itoa(s.Claimed), strconv.Itoa(s.Dead), overdue(s.Overdue)})
		}
		if grid {
			row[6] = marks[s.Node]
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
