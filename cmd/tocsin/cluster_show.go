package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/operator"
)

func newClusterNodes(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "nodes", Short: "Show the live nodes of every group", Args: noArgs,
		Long: `Show the live nodes of every group, as etcd knows them, and those that MySQL names as the
last owner of tables which no live node has: they have ended, or lost their lease and go on
in claim mode. With --ask a node's own status page says which; that works without etcd too.
If layout.ownership is rows, it shows the nodes that the session tables name: TABLES are those
that a node looks at first, and LEASE LEFT is when it counts as gone unless it is seen again.`,
	}
	only := groupFlag(cmd)
	ask := cmd.Flags().StringSlice("ask", nil, "addresses of status pages to ask, host:port")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkAddresses("--ask", *ask); err != nil {
			return err
		}
		v, err := a.view()
		if err != nil {
			return err
		}
		groups, err := v.List(cmd.Context(), *only, *ask)
		if err != nil && len(groups) == 0 {
			return err // "no nodes" would be a claim, and nothing is known
		}
		return errors.Join(a.print(groups, func(w io.Writer) { writeGroups(w, groups) }), err)
	}
	return cmd
}

const noNodes = "no nodes: start one with `tocsin serve`"

func writeGroups(w io.Writer, groups []operator.Group) {
	if len(groups) == 0 {
		fmt.Fprintln(w, noNodes)
	}
	for i, g := range groups {
		if i > 0 {
			fmt.Fprintln(w)
		}
		registered := plural(len(g.Nodes), "node")
		if g.Nodes == nil {
			registered = "etcd does not say which nodes are registered"
		}
		fmt.Fprintf(w, "group %s: %s\n", g.Group, registered)
		writeNodes(w, g.Nodes, time.Now())
		for _, n := range g.Unlisted {
			fmt.Fprintf(w, "note: %s is not registered and took %s last, which nobody has now: it has ended, or goes on in claim mode; its status page says which (--ask)\n",
				oneCell(n.ID), plural(n.Tables, "table"))
		}
		for _, c := range g.Faults {
			fmt.Fprintf(w, "note: %s; to mend it, %s\n", oneCell(c.Is), oneCell(c.Fix))
		}
		writeAsked(w, g.Asked)
	}
}

// plural writes "1 node", "2 nodes".
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func writeNodes(w io.Writer, nodes []assign.NodeState, now time.Time) {
	if len(nodes) == 0 {
		return
	}
	head := []string{"NODE", "MODE", "VERSION", "WEIGHT", "TABLES", "WANTED", "LEASE LEFT", "STARTED", "LISTENS ON", "HANDLERS"}
	table(w, head, nodes, func(n assign.NodeState) []any {
		return []any{
			oneCell(n.ID), n.Mode, orDash(n.Info.Version), n.Weight, n.Tables, n.Wanted,
			n.TTL, away(n.Info.Started.Sub(now)), orDash(n.Info.Listen), handlers(n.Info.Types),
		}
	})
	for _, n := range nodes {
		writeLacking(w, n, nodes)
		writeNewer(w, n, nodes)
		writeDifference(w, n, nodes)
	}
}

// writeLacking writes what a node can't deliver, and whether others stand in for it.
func writeLacking(w io.Writer, n assign.NodeState, group []assign.NodeState) {
	for _, name := range slices.Sorted(maps.Keys(n.Info.Lacks)) {
		meanwhile := "no node of its group can: such tasks wait"
		if slices.ContainsFunc(group, func(o assign.NodeState) bool { return slices.Contains(o.Info.Types, name) }) {
			meanwhile = "others of its group stand in for it"
		}
		fmt.Fprintf(w, "note: %s can't deliver %s (%s); %s\n", oneCell(n.ID), oneCell(name), oneCell(n.Info.Lacks[name]), meanwhile)
	}
}

// writeNewer writes which tasks a node leaves alone since their payload is newer than it reads.
func writeNewer(w io.Writer, n assign.NodeState, group []assign.NodeState) {
	for _, name := range slices.Sorted(maps.Keys(n.Info.Newer)) {
		version := n.Info.Newer[name]
		meanwhile := "no node of its group reads it: such tasks wait"
		if slices.ContainsFunc(group, func(o assign.NodeState) bool { return o.Info.Reads(name, version) }) {
			meanwhile = "others of its group do"
		}
		fmt.Fprintf(w, "note: %s leaves tasks of %s whose payload has version %d, as it reads %d at most; %s\n",
			oneCell(n.ID), oneCell(name), version, max(n.Info.Versions[name], 1), meanwhile)
	}
}

// writeDifference writes which tasks wait because nodes of a group differ, and which
// databases a node can't use. A node with an older program does not publish what it
// lacks, so nobody stands in for it.
func writeDifference(w io.Writer, n assign.NodeState, group []assign.NodeState) {
	if n.Info.Lacks == nil && len(n.Lacks) > 0 {
		fmt.Fprintf(w, "note: %s has no handler for %s, which others of its group have: such tasks in its tables wait\n",
			oneCell(n.ID), handlers(n.Lacks))
	}
	var some, all []int // databases that some nodes miss, and that all do
	for _, database := range n.Misses {
		if slices.ContainsFunc(group, func(o assign.NodeState) bool { return !slices.Contains(o.Misses, database) }) {
			some = append(some, database)
		} else {
			all = append(all, database)
		}
	}
	writeMissed(w, n.ID, some, "their tables go to nodes that can")
	writeMissed(w, n.ID, all, "no node of its group can, so their tables wait")
}

// writeMissed writes which databases a node can't use, if any.
func writeMissed(w io.Writer, id string, databases []int, meanwhile string) {
	if len(databases) > 0 {
		fmt.Fprintf(w, "note: %s can't use the databases %s: %s; its log and status page say why (--ask)\n",
			oneCell(id), strings.Trim(fmt.Sprint(databases), "[]"), meanwhile)
	}
}

// writeAsked writes what the status pages said.
func writeAsked(w io.Writer, asked []operator.AskedNode) {
	if len(asked) == 0 {
		return
	}
	head := []string{"ASKED", "NODE", "MODE", "VERSION", "TABLES", "WANTED", "STARTED", "IN HAND"}
	table(w, head, asked, func(one operator.AskedNode) []any {
		r := one.Report
		if r == nil {
			return []any{one.Address, oneCell(one.Error)}
		}
		return []any{one.Address, orDash(r.Node), r.Mode, orDash(r.Version), r.Owned, r.Wanted, away(time.Until(r.Started)), r.Work.Open}
	})
	for _, one := range asked {
		if one.Report == nil {
			continue
		}
		for _, d := range one.Report.Databases {
			fmt.Fprintf(w, "note: for %s %s is %s: %s\n", oneCell(one.Report.Node), d.Name, d.Is, oneCell(d.Why))
		}
		for _, server := range slices.Sorted(maps.Keys(one.Report.Hangs)) {
			fmt.Fprintf(w, "note: for %s server %s hangs: %s\n", oneCell(one.Report.Node), oneCell(server), oneCell(one.Report.Hangs[server]))
		}
	}
}

// handlers lists biz types; a node that serves callbacks may not tell any.
func handlers(types []string) string { return orDash(strings.Join(types, ", ")) }

// orDash shows that a cell is empty.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return oneCell(text)
}

// maxRanges is how many ranges of tables stand in one line for people.
const maxRanges = 6

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
		groups, err := v.Owned(cmd.Context(), *only, *count)
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

// writeTables draws the grid with this number of columns; 0: no grid.
func writeTables(w io.Writer, groups []operator.Tables, count bool, width int) {
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
func writeShares(w io.Writer, g operator.Tables, count, grid bool) {
	last := "TABLE NUMBERS"
	if grid {
		last = "MARK"
	}
	marks := operator.Marks(g.Owners)
	head := []string{"NODE", "TABLES", "PENDING", "CLAIMED", "DEAD", "OLDEST OVERDUE", last}
	table(w, head, g.Shares, func(s operator.Share) []any {
		row := []any{nodeName(s.Node), s.Tables, "-", "-", "-", "-", ranges(s.Ranges)}
		if count {
			copy(row[2:], []any{s.Pending, s.Claimed, s.Dead, overdue(s.Overdue)})
		}
		if grid {
			row[6] = marks[s.Node]
		}
		return row
	})
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

// plainWidth is how wide a terminal is taken to be that does not say.
const plainWidth = 80

// terminal reports whether people look at the output, and how wide it is.
func (a *app) terminal() (width int, is bool) {
	if a.json || !isatty.IsTerminal(a.out.Fd()) {
		return plainWidth, false
	}
	width, _, err := term.GetSize(int(a.out.Fd()))
	if err != nil || width == 0 {
		width = plainWidth
	}
	return width, true
}

// writeGrid draws one character per table, a line or more per database.
func writeGrid(w io.Writer, g operator.Tables, width int) {
	name := len(g.Layout.Database(g.Layout.Databases - 1))
	digits := len(fmt.Sprint(g.Layout.Tables - 1))
	room := width - name - digits - 3
	for _, line := range operator.Grid(g.Owners, operator.Marks(g.Owners), g.Layout.Tables, room) {
		fmt.Fprintf(w, "%-*s %*d  %s\n", name, g.Layout.Database(line.Database), digits, line.First, line.Marks)
	}
	fmt.Fprintln(w)
}

// nodes reads the nodes of one group, or of all if only is "".
func (a *app) nodes(ctx context.Context, only string) ([]operator.Group, error) {
	v, err := a.view()
	if err != nil {
		return nil, err
	}
	return v.Nodes(ctx, only)
}

// view asks the config's cluster.
func (a *app) view() (operator.View, error) {
	file, err := a.load()
	if err != nil {
		return operator.View{}, err
	}
	return viewOf(file), nil
}

// viewOf asks the cluster of a config file.
func viewOf(file config.File) operator.View {
	etcd, err := file.EtcdConfig()
	v := operator.View{
		Tables: file.Tocsin(), ByRows: file.Layout.Ownership == ddl.ByRows, Grace: file.Sweep.Grace.D(), Listen: file.Node.Listen,
		Etcd: etcd, NoEtcd: err, Pages: askerOf(file),
	}
	switch {
	case err != nil:
	case len(etcd.Endpoints) == 0:
		v.NoEtcd = errors.New("the config names no etcd.endpoints, where the nodes are registered")
	case v.Tables.Cluster == "":
		v.NoEtcd = errors.New("the config names no cluster, under which the nodes are registered in etcd")
	}
	return v
}

// askerOf asks status pages, as the config's node.status says.
func askerOf(file config.File) operator.Asker {
	as := operator.Asker{Client: http.DefaultClient, Scheme: "http"}
	token, err := file.Node.Status.TokenSource()
	if err == nil && token != nil {
		as.Token = token()
	}
	cfg, failed := file.Node.Status.ClientTLS()
	if cfg != nil {
		as.Scheme, as.Client = "https", &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}
	}
	as.Failed = errors.Join(err, failed)
	return as
}

// checkAddresses refuses what is no address of a status page.
func checkAddresses(flag string, addresses []string) error {
	for _, address := range addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return usage("%s %q: want host:port", flag, address)
		}
	}
	return nil
}

// nodeNames returns the ids of the live nodes that can be listed.
func (a *app) nodeNames(ctx context.Context) (ids []cobra.Completion) {
	groups, _ := a.nodes(ctx, "")
	for _, g := range groups {
		for _, n := range g.Nodes {
			ids = append(ids, cobra.CompletionWithDesc(n.ID, g.Group))
		}
	}
	return ids
}
