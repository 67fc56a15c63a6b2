package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
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
	Nodes    []assign.NodeState `json:"nodes"`
	Unlisted []lastOwner        `json:"unlisted"`
	Asked    []askedNode        `json:"asked,omitempty"`
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
in claim mode. With --ask a node's own status page says which; that works without etcd too.`,
	}
	only := groupFlag(cmd)
	ask := cmd.Flags().StringSlice("ask", nil, "addresses of status pages to ask, host:port")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, address := range *ask {
			if _, _, err := net.SplitHostPort(address); err != nil {
				return usage("--ask %q: want host:port", address)
			}
		}
		groups, err := a.allNodes(cmd.Context(), *only, *ask)
		if groups == nil {
			return err
		}
		return errors.Join(a.print(groups, func(w io.Writer) { writeGroups(w, groups) }), err)
	}
	return cmd
}

// allNodes reads etcd, MySQL and the status pages. An error beside a result says
// what could not be read.
func (a *app) allNodes(ctx context.Context, only string, ask []string) ([]groupNodes, error) {
	asked := askAll(ctx, ask)
	groups, failed := a.nodes(ctx, only)
	if failed != nil {
		if _, _, err := a.etcd(); err != nil {
			return nil, err
		}
		groups = []groupNodes{}
	}
	for _, name := range a.typeGroups(ctx, only) {
		if !slices.ContainsFunc(groups, func(g groupNodes) bool { return g.Group == name }) {
			groups = append(groups, groupNodes{Group: name, Nodes: []assign.NodeState{}})
		}
	}
	a.addUnlisted(ctx, groups, failed == nil)
	groups = addAsked(groups, asked)
	groups = slices.DeleteFunc(groups, func(g groupNodes) bool { return len(g.Nodes)+len(g.Unlisted)+len(g.Asked) == 0 })
	slices.SortFunc(groups, func(x, y groupNodes) int { return strings.Compare(x.Group, y.Group) })
	if failed != nil && len(groups) == 0 {
		return nil, failed
	}
	return groups, failed
}

// typeGroups gives the groups of the biz types; none where no server answers.
func (a *app) typeGroups(ctx context.Context, only string) (names []string) {
	cfg, err := a.cluster()
	if err != nil {
		return nil
	}
	policies, _ := biztype.Load(ctx, cfg)
	for _, p := range policies {
		if name := p.WithDefaults().Group; only == "" || only == name {
			names = append(names, name)
		}
	}
	return names
}

// addUnlisted adds the last owners of tables that nobody has. What a server that
// does not answer knows is left out: this is about nodes.
func (a *app) addUnlisted(ctx context.Context, groups []groupNodes, etcd bool) {
	db, err := a.store()
	if err != nil {
		return
	}
	defer db.Close()
	owners := map[string][]string{}
	if etcd {
		if owners, err = a.owners(ctx); err != nil {
			return
		}
	}
	for i := range groups {
		groups[i].Unlisted = lastOwners(ctx, db, groups[i], owners[groups[i].Group])
	}
}

// lastOwners counts the tables of a group that have no owner by etcd, by who took
// them last. owners nil: no table has one, or nobody knows.
func lastOwners(ctx context.Context, db *store.Store, g groupNodes, owners []string) []lastOwner {
	tables := map[string]int{}
	for server := range db.Servers() {
		rows, _ := db.Owners(ctx, server, g.Group)
		for table, id := range rows {
			if owners == nil || owners[table] == "" {
				tables[id]++
			}
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
func askAll(ctx context.Context, addresses []string) []askedNode {
	asked := make([]askedNode, len(addresses))
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() {
			asked[i] = askedNode{Address: address}
			var err error
			if asked[i].Report, err = askNode(ctx, address); err != nil {
				asked[i].Error = oneLine(err)
			}
		})
	}
	wg.Wait()
	return asked
}

// askNode reads a status page; one that says 503 has a report too.
func askNode(ctx context.Context, address string) (*node.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/status", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var report node.Report
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReport)).Decode(&report); err != nil {
		return nil, fmt.Errorf("no status page: %w", err)
	}
	return &report, nil
}

// addAsked puts what the pages said to their groups. Pages that don't answer are
// shown with the first.
func addAsked(groups []groupNodes, asked []askedNode) []groupNodes {
	for _, one := range asked {
		name := ""
		if one.Report != nil {
			name = one.Report.Group
		}
		i := slices.IndexFunc(groups, func(g groupNodes) bool { return name == "" || g.Group == name })
		if i < 0 {
			groups, i = append(groups, groupNodes{Group: name, Nodes: []assign.NodeState{}}), len(groups)
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
		fmt.Fprintf(w, "group %s: %s\n", g.Group, plural(len(g.Nodes), "node"))
		writeNodes(w, g.Nodes, time.Now())
		for _, n := range g.Unlisted {
			fmt.Fprintf(w, "note: %s is not registered and took %s last, which nobody has now: it has ended, or goes on in claim mode; its status page says which (--ask)\n",
				oneCell(n.ID), plural(n.Tables, "table"))
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
	rows := [][]string{{"NODE", "MODE", "VERSION", "WEIGHT", "TABLES", "WANTED", "LEASE LEFT", "STARTED", "LISTENS ON", "HANDLERS"}}
	for _, n := range nodes {
		rows = append(rows, []string{
			oneCell(n.ID), n.Mode, orDash(n.Info.Version), strconv.Itoa(n.Weight), strconv.Itoa(n.Tables), strconv.Itoa(n.Wanted),
			n.TTL.String(), away(n.Info.Started.Sub(now)), orDash(n.Info.Listen), handlers(n.Info.Types),
		})
	}
	columns(w, rows...)
	for _, n := range nodes {
		writeDifference(w, n)
	}
}

// writeDifference says which tasks wait because nodes of a group are not alike,
// and what a node can't reach.
func writeDifference(w io.Writer, n assign.NodeState) {
	if len(n.Lacks) > 0 {
		fmt.Fprintf(w, "note: %s has no handler for %s, which others of its group have: such tasks in its tables wait\n",
			oneCell(n.ID), handlers(n.Lacks))
	}
	if len(n.Misses) > 0 {
		fmt.Fprintf(w, "note: %s can't reach the databases %s: their tables go to nodes that can\n",
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
