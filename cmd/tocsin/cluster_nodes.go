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

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/doctor"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/store"
)

const (
	askWithin = 3 * time.Second // one status page
	maxReport = 1 << 20         // bytes of one
)

// groupNodes is the JSON of `cluster nodes` for one group.
type groupNodes struct {
	Group    string             `json:"group"`
	Nodes    []assign.NodeState `json:"nodes"` // null: etcd did not answer
	Unlisted []lastOwner        `json:"unlisted"`
	Asked    []askedNode        `json:"asked,omitempty"`
	Faults   []fault            `json:"faults,omitempty"` // handlers that get no task, biz types of a group without nodes
}

// fault is something wrong with what a group delivers.
type fault struct {
	Is  string `json:"is"`
	Fix string `json:"fix"` // what to change
}

// lastOwner is a node without a key in etcd that the owner rows in MySQL name for
// tables which no live node has: it has ended, or goes on in claim mode.
type lastOwner struct {
	ID     string `json:"id"`
	Tables int    `json:"tables"`
}

// askedNode is what a node's status page says.
type askedNode struct {
	Address string       `json:"address"`
	Report  *node.Report `json:"report"` // null: it does not answer
	Error   string       `json:"error,omitempty"`
}

func newClusterNodes(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "nodes", Short: "Show the live nodes of every group", Args: noArgs,
		Long: `Show the live nodes of every group, as etcd knows them, and those that MySQL names as the
last owner of tables which no live node has: they have ended, or lost their lease and go on
in claim mode. With --ask a node's own status page says which; that works without etcd too.
If layout.ownership is rows, it shows the nodes that the node tables name: TABLES are those
that a node looks at first, and LEASE LEFT is when it counts as gone unless it is seen again.`,
	}
	only := groupFlag(cmd)
	ask := cmd.Flags().StringSlice("ask", nil, "addresses of status pages to ask, host:port")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkAddresses("--ask", *ask); err != nil {
			return err
		}
		groups, err := a.allNodes(cmd.Context(), *only, *ask)
		if err != nil && len(groups) == 0 {
			return err // "no nodes" would be a claim, and nothing is known
		}
		return errors.Join(a.print(groups, func(w io.Writer) { writeGroups(w, groups) }), err)
	}
	return cmd
}

// allNodes reads etcd, MySQL and the status pages. An error beside a result says
// what could not be read.
func (a *app) allNodes(ctx context.Context, only string, ask []string) ([]groupNodes, error) {
	if a.byRows() {
		return a.listPresent(ctx, only, ask)
	}
	asked := a.askAll(ctx, ask)
	groups, failed := a.nodes(ctx, only)
	if failed != nil {
		if _, _, err := a.etcd(); err != nil {
			return nil, err
		}
		groups = []groupNodes{}
	}
	policies, unread := a.policies(ctx)
	groups = addGroups(groups, policies, only, nodesOf(failed))
	if len(groups) > 0 {
		unread = errors.Join(unread, a.addUnlisted(ctx, groups, failed == nil))
	}
	if failed == nil && unread == nil {
		addFaults(groups, policies, only)
	}
	var foreign error
	if failed == nil {
		_, foreign = a.identityInEtcd(ctx)
	}
	groups = addAsked(groups, asked, nodesOf(failed))
	groups = slices.DeleteFunc(groups, func(g groupNodes) bool { return len(g.Nodes)+len(g.Unlisted)+len(g.Asked)+len(g.Faults) == 0 })
	slices.SortFunc(groups, func(x, y groupNodes) int { return strings.Compare(x.Group, y.Group) })
	return groups, errors.Join(failed, unread, foreign)
}

// nodesOf returns the nodes of a group that etcd does not list: none, or nil if etcd
// could not be read.
func nodesOf(failed error) []assign.NodeState {
	if failed != nil {
		return nil
	}
	return []assign.NodeState{}
}

// addGroups adds the groups of the policies that are not listed yet, with the given nodes.
func addGroups(groups []groupNodes, policies []biztype.Policy, only string, nodes []assign.NodeState) []groupNodes {
	for _, p := range policies {
		name := p.WithDefaults().Group
		if (only == "" || only == name) && !slices.ContainsFunc(groups, func(g groupNodes) bool { return g.Group == name }) {
			groups = append(groups, groupNodes{Group: name, Nodes: nodes, Unlisted: []lastOwner{}})
		}
	}
	return groups
}

// addFaults adds to each group its handlers that get no task, and its biz types if it has no node. Nothing is said of
// groups without nodes if no group has any: a cluster that has not been started yet has no fault.
func addFaults(groups []groupNodes, policies []biztype.Policy, only string) {
	some := only != "" || slices.ContainsFunc(groups, func(g groupNodes) bool { return len(g.Nodes) > 0 })
	for i, g := range groups {
		checks := doctor.Idle(policies, membersOf(g))
		if some && len(g.Nodes) == 0 {
			checks = append(checks, doctor.Away(policies, g.Group)...)
		}
		for _, c := range checks {
			groups[i].Faults = append(groups[i].Faults, fault{c.Is, c.Fix})
		}
	}
}

// addUnlisted adds the last owners of tables without an owner. The error names what
// could not be read.
func (a *app) addUnlisted(ctx context.Context, groups []groupNodes, etcd bool) error {
	db, err := a.store()
	if err != nil {
		return err
	}
	defer db.Close()
	owners := map[string][]string{}
	if etcd {
		if owners, err = a.owners(ctx); err != nil {
			return err
		}
	}
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.Group
	}
	rows, unread := ownerRows(ctx, db, names)
	for i, g := range groups {
		groups[i].Unlisted = lastOwners(g, rows[i], owners[g.Group])
	}
	return unread
}

// ownerRows reads the last owner of each table, for each of the groups, from all
// servers at once. The error names the servers that could not be read in full.
func ownerRows(ctx context.Context, db *store.Store, groups []string) ([]map[int]string, error) {
	ctx, cancel := context.WithTimeout(ctx, doctor.DefaultTimeout)
	defer cancel()
	rows, errs := make([]map[int]string, len(groups)), make([]error, len(db.Servers()))
	for i := range rows {
		rows[i] = map[int]string{}
	}
	var mu sync.Mutex // guards rows
	var readers sync.WaitGroup
	for server := range errs {
		readers.Go(func() {
			for i, group := range groups {
				found, err := db.Owners(ctx, server, group)
				mu.Lock()
				maps.Copy(rows[i], found)
				mu.Unlock()
				if errs[server] = err; err != nil {
					return // the next group would fail the same way
				}
			}
		})
	}
	readers.Wait()
	return rows, errors.Join(errs...)
}

// lastOwners counts the tables of a group that have no owner by etcd, by who took
// them last. owners nil: no table has one, or nobody knows.
func lastOwners(g groupNodes, rows map[int]string, owners []string) []lastOwner {
	tables := map[string]int{}
	for table, id := range rows {
		if owners == nil || owners[table] == "" {
			tables[id]++
		}
	}
	unlisted := []lastOwner{}
	for id, n := range tables {
		if !slices.ContainsFunc(g.Nodes, func(n assign.NodeState) bool { return n.ID == id }) {
			unlisted = append(unlisted, lastOwner{id, n})
		}
	}
	slices.SortFunc(unlisted, func(x, y lastOwner) int { return strings.Compare(x.ID, y.ID) })
	return unlisted
}

// askAll asks all status pages at once.
func (a *app) askAll(ctx context.Context, addresses []string) []askedNode {
	asked := make([]askedNode, len(addresses))
	as := a.asker()
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() {
			asked[i] = askedNode{Address: address}
			var err error
			if asked[i].Report, err = as.ask(ctx, address); err != nil {
				asked[i].Error = oneLine(err)
			}
		})
	}
	wg.Wait()
	return asked
}

// addAsked adds what the status pages answered to their groups. Pages that don't
// answer are shown with the first group. A group that is not listed yet gets the
// given nodes.
func addAsked(groups []groupNodes, asked []askedNode, nodes []assign.NodeState) []groupNodes {
	for _, one := range asked {
		name := ""
		if one.Report != nil {
			name = one.Report.Group
		}
		i := slices.IndexFunc(groups, func(g groupNodes) bool { return name == "" || g.Group == name })
		if i < 0 {
			groups, i = append(groups, groupNodes{Group: name, Nodes: nodes, Unlisted: []lastOwner{}}), len(groups)
		}
		groups[i].Asked = append(groups[i].Asked, one)
	}
	return groups
}

const noNodes = "no nodes: start one with `tocsin serve`"

func writeGroups(w io.Writer, groups []groupNodes) {
	if len(groups) == 0 {
		fmt.Fprintln(w, noNodes)
	}
	for i, g := range groups {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "group %s: %s\n", g.Group, headcount(g.Nodes))
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

// headcount returns how many nodes are registered, if that is known.
func headcount(nodes []assign.NodeState) string {
	if nodes == nil {
		return "etcd does not say which nodes are registered"
	}
	return plural(len(nodes), "node")
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
	rows := [][]string{{"NODE", "MODE", "VERSION", "WEIGHT", "TABLES", "WANTED", "LEASE LEFT", "STARTED", "LISTENS ON", "HANDLERS"}}
	for _, n := range nodes {
		rows = append(rows, []string{
			oneCell(n.ID), n.Mode, orDash(n.Info.Version), strconv.Itoa(n.Weight), strconv.Itoa(n.Tables), strconv.Itoa(n.Wanted),
			n.TTL.String(), away(n.Info.Started.Sub(now)), orDash(n.Info.Listen), handlers(n.Info.Types),
		})
	}
	columns(w, rows...)
	for _, n := range nodes {
		writeLacking(w, n, nodes)
		writeDifference(w, n)
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

// writeDifference writes which tasks wait because nodes of a group differ, and which
// databases a node can't use. A node with an older program does not publish what it
// lacks, so nobody stands in for it.
func writeDifference(w io.Writer, n assign.NodeState) {
	if n.Info.Lacks == nil && len(n.Lacks) > 0 {
		fmt.Fprintf(w, "note: %s has no handler for %s, which others of its group have: such tasks in its tables wait\n",
			oneCell(n.ID), handlers(n.Lacks))
	}
	if len(n.Misses) > 0 {
		fmt.Fprintf(w, "note: %s can't use the databases %s: their tables go to nodes that can; its log and status page say why (--ask)\n",
			oneCell(n.ID), strings.Trim(fmt.Sprint(n.Misses), "[]"))
	}
}

// writeAsked writes what the status pages said.
func writeAsked(w io.Writer, asked []askedNode) {
	if len(asked) == 0 {
		return
	}
	rows := [][]string{{"ASKED", "NODE", "MODE", "VERSION", "TABLES", "WANTED", "STARTED", "IN HAND"}}
	for _, one := range asked {
		if r := one.Report; r != nil {
			rows = append(rows, []string{one.Address, orDash(r.Node), string(r.Mode), orDash(r.Version), strconv.Itoa(r.Owned),
				strconv.Itoa(r.Wanted), away(time.Until(r.Started)), strconv.Itoa(r.Work.Open)})
		} else {
			rows = append(rows, []string{one.Address, oneCell(one.Error)})
		}
	}
	columns(w, rows...)
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
