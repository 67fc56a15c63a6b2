package operator

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/pull"
)

// Group is the nodes of one group; the JSON of `tocsin cluster nodes`.
type Group struct {
	Group    string             `json:"group"`
	Nodes    []assign.NodeState `json:"nodes"` // null: etcd did not answer
	Unlisted []LastOwner        `json:"unlisted"`
	Asked    []AskedNode        `json:"asked,omitempty"`
	Faults   []Fault            `json:"faults,omitempty"` // handlers that get no task, biz types of a group without nodes
}

// Fault is something wrong with what a group delivers.
type Fault struct {
	Is  string `json:"is"`
	Fix string `json:"fix"` // what to change
}

// LastOwner is a node without a key in etcd that the owner rows in MySQL name for
// tables which no live node has: it has ended, or goes on in claim mode.
type LastOwner struct {
	ID     string `json:"id"`
	Tables int    `json:"tables"`
}

// AskedNode is what a node's status page says.
type AskedNode struct {
	Address string       `json:"address"`
	Report  *node.Report `json:"report"` // null: it does not answer
	Error   string       `json:"error,omitempty"`
}

// Nodes reads the nodes of one group, or of all if only is "", from etcd or the session tables. An error beside nodes of the session tables
// names what could not be read.
func (v View) Nodes(ctx context.Context, only string) ([]Group, error) {
	if v.ByRows {
		groups, _, _, err := v.present(ctx, only)
		return groups, err
	}
	groups := []Group{}
	err := v.AskEtcd(ctx, func(keys *assign.Registry) (err error) {
		names := []string{only}
		if only == "" {
			names, err = keys.Groups(ctx)
		}
		for i := 0; i < len(names) && err == nil; i++ {
			g := Group{Group: names[i], Unlisted: []LastOwner{}}
			g.Nodes, err = keys.Nodes(ctx, g.Group)
			groups = append(groups, g)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return groups, nil
}

// Owners returns the owner of each table by group; if nobody owns tables, the node that looks at it first, and an error beside them
// names what could not be read.
func (v View) Owners(ctx context.Context) (map[string][]string, error) {
	if v.ByRows {
		_, firsts, _, err := v.present(ctx, "")
		return firsts, err
	}
	owners := map[string][]string{}
	err := v.AskEtcd(ctx, func(keys *assign.Registry) error {
		names, err := keys.Groups(ctx)
		for i := 0; i < len(names) && err == nil; i++ {
			owners[names[i]], err = keys.Owners(ctx, names[i])
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return owners, nil
}

// present reads the sessions of all servers at once, if nobody owns tables: the nodes of one group, or of all if only is "", and
// by group which node looks at each table first. The error names what could not be read; read holds the servers that could.
func (v View) present(ctx context.Context, only string) (groups []Group, firsts map[string][]string, read map[int]bool, err error) {
	db, err := store.Open(v.Tables)
	if err != nil {
		return nil, nil, nil, err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	seen, errs := assign.ReadSessions(ctx, db)
	read = map[int]bool{}
	for server, err := range errs {
		read[server] = err == nil
	}
	nodes, err := assign.PresentNodes(v.Tables.Layout, slices.Concat(seen...)), errors.Join(errs...)
	if len(nodes) == 0 && err != nil {
		return nil, nil, read, err
	}
	groups, firsts = []Group{}, map[string][]string{}
	for _, n := range nodes { // of a group one after another
		if firsts[n.Group] == nil {
			firsts[n.Group] = make([]string, v.Tables.Layout.Total())
		}
		for _, table := range n.First {
			firsts[n.Group][table] = n.ID
		}
		if only != "" && n.Group != only {
			continue
		}
		if len(groups) == 0 || groups[len(groups)-1].Group != n.Group {
			groups = append(groups, Group{Group: n.Group, Nodes: []assign.NodeState{}, Unlisted: []LastOwner{}})
		}
		g := &groups[len(groups)-1]
		g.Nodes = append(g.Nodes, n.NodeState)
	}
	return groups, firsts, read, err
}

// List reads the nodes, MySQL and the status pages at ask. An error beside a result says what could not be read.
func (v View) List(ctx context.Context, only string, ask []string) ([]Group, error) {
	pages := make([]statusPage, len(ask))
	for i, address := range ask {
		pages[i].Address = address
	}
	v.ask(ctx, pages, "/status")
	groups, failed := v.Nodes(ctx, only)
	if failed != nil && !v.ByRows && v.NoEtcd != nil {
		return nil, v.NoEtcd
	}
	nodes := []assign.NodeState{} // of a group that is not registered: none, or nil if nobody knows
	if failed != nil && !v.ByRows {
		nodes = nil
	}
	policies, unread := Policies(ctx, v.Tables)
	groups = addGroups(groups, policies, only, nodes)
	if !v.ByRows && len(groups) > 0 {
		unread = errors.Join(unread, v.addUnlisted(ctx, groups, failed == nil))
	}
	if failed == nil && unread == nil {
		addFaults(groups, policies, only)
	}
	var foreign error
	if failed == nil && !v.ByRows {
		_, foreign = v.identity(ctx)
	}
	groups = addAsked(groups, pages, nodes)
	groups = slices.DeleteFunc(groups, func(g Group) bool { return len(g.Nodes)+len(g.Unlisted)+len(g.Asked)+len(g.Faults) == 0 })
	slices.SortFunc(groups, func(x, y Group) int { return strings.Compare(x.Group, y.Group) })
	return groups, errors.Join(failed, unread, foreign)
}

// addGroups adds the groups of the policies that are not listed yet, with the given nodes. It returns no nil.
func addGroups(groups []Group, policies []biztype.Policy, only string, nodes []assign.NodeState) []Group {
	groups = append([]Group{}, groups...)
	for _, p := range policies {
		if (only == "" || only == p.Group) && !slices.ContainsFunc(groups, func(g Group) bool { return g.Group == p.Group }) {
			groups = append(groups, Group{Group: p.Group, Nodes: nodes, Unlisted: []LastOwner{}})
		}
	}
	return groups
}

// addFaults adds to each group its handlers that get no task, its pull types that no worker asks for, and its biz types if it has no
// node. That a node lacks a pull type is no fault: it is not told. Nothing is said of
// groups without nodes if no group has any: a cluster that has not been started yet has no fault.
func addFaults(groups []Group, policies []biztype.Policy, only string) {
	some := only != "" || slices.ContainsFunc(groups, func(g Group) bool { return len(g.Nodes) > 0 })
	for i, g := range groups {
		checks := append(idleHandlers(policies, groups[i:i+1]), unasked(policies, groups[i:i+1], nil)...)
		if some && len(g.Nodes) == 0 {
			checks = append(checks, groupAway(policies, g.Group)...)
		}
		for _, p := range policies {
			for _, n := range g.Nodes {
				if p.Pull != nil {
					delete(n.Info.Lacks, p.Name)
				}
			}
		}
		for _, c := range checks {
			groups[i].Faults = append(groups[i].Faults, Fault{c.Is, c.Fix})
		}
	}
}

// addUnlisted adds the last owners of tables without an owner, from all servers at once. The error names what could not be read
// in full.
func (v View) addUnlisted(ctx context.Context, groups []Group, etcd bool) error {
	db, err := store.Open(v.Tables)
	if err != nil {
		return err
	}
	defer db.Close()
	owners := map[string][]string{}
	if etcd {
		if owners, err = v.Owners(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	rows, errs := make([]map[int]string, len(groups)), make([]error, len(db.Servers())) // rows: by group, then by table
	for i := range rows {
		rows[i] = map[int]string{}
	}
	var mu sync.Mutex // guards rows
	store.EachServer(len(errs), func(server int) {
		for i := 0; i < len(groups) && errs[server] == nil; i++ { // after a failure the next group would fail the same way
			var found map[int]string
			found, errs[server] = db.Owners(ctx, server, groups[i].Group)
			mu.Lock()
			maps.Copy(rows[i], found)
			mu.Unlock()
		}
	})
	for i, g := range groups {
		groups[i].Unlisted = lastOwners(g, rows[i], owners[g.Group])
	}
	return errors.Join(errs...)
}

// lastOwners counts the tables of a group that have no owner by etcd, by who took
// them last. owners nil: no table has one, or nobody knows.
func lastOwners(g Group, rows map[int]string, owners []string) []LastOwner {
	tables := map[string]int{}
	for table, id := range rows {
		if owners == nil || owners[table] == "" {
			tables[id]++
		}
	}
	unlisted := []LastOwner{}
	for _, id := range slices.Sorted(maps.Keys(tables)) {
		if !slices.ContainsFunc(g.Nodes, func(n assign.NodeState) bool { return n.ID == id }) {
			unlisted = append(unlisted, LastOwner{id, tables[id]})
		}
	}
	return unlisted
}

// errNoPage is why a node can't be asked.
var errNoPage = errors.New("it publishes no address: give one with --ask")

// ask asks status pages, all at once.
func (v View) ask(ctx context.Context, pages []statusPage, path string) {
	var all sync.WaitGroup
	for i := range pages {
		p := &pages[i]
		if p.Address == "" {
			p.Err = errNoPage
			continue
		}
		all.Go(func() { p.Report, p.Err = v.Pages.Report(ctx, p.Address, path) })
	}
	all.Wait()
}

// askAll asks the status pages of all nodes.
func (v View) askAll(ctx context.Context, groups []Group) (pages []statusPage) {
	for _, g := range groups {
		for _, n := range g.Nodes {
			pages = append(pages, pageOf(n))
		}
	}
	v.ask(ctx, pages, "/status")
	return pages
}

// askedBy sums up the workers that ask some nodes for tasks of a biz type. False: none of the nodes answered.
func askedBy(pages []statusPage, bizType string) (all pull.Asked, answered bool) {
	for _, p := range pages {
		if p.Report == nil {
			continue
		}
		answered = true
		workers := p.Report.Asked[bizType]
		all.Waiting += workers.Waiting
		if workers.Last.After(all.Last) {
			all.Last = workers.Last
		}
	}
	return all, answered
}

// addAsked adds what the status pages answered to their groups. Pages that don't
// answer are shown with the first group. A group that is not listed yet gets the
// given nodes.
func addAsked(groups []Group, pages []statusPage, nodes []assign.NodeState) []Group {
	for _, p := range pages {
		one, name := AskedNode{Address: p.Address, Report: p.Report}, ""
		if p.Err != nil {
			one.Error = OneLine(p.Err)
		} else {
			name = p.Report.Group
		}
		i := slices.IndexFunc(groups, func(g Group) bool { return name == "" || g.Group == name })
		if i < 0 {
			groups, i = append(groups, Group{Group: name, Nodes: nodes, Unlisted: []LastOwner{}}), len(groups)
		}
		groups[i].Asked = append(groups[i].Asked, one)
	}
	return groups
}

// pageOf returns where a node's status page is; its address is "" if it has none. A node that listens on all addresses of its host is
// asked by its name, which by default is the host's.
func pageOf(n assign.NodeState) statusPage {
	return statusPage{Node: n.ID, Address: reached(n, n.Info.Listen)}
}

// APIOf returns the URL of a node's HTTP API; "" if it has none.
func APIOf(n assign.NodeState) string {
	scheme, listen, _ := strings.Cut(n.Info.API, "://")
	if at := reached(n, listen); at != "" {
		return scheme + "://" + at
	}
	return ""
}

// reached is how others reach what a node listens on: on all addresses, by the node's name. "": it is not known.
func reached(n assign.NodeState, listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = n.ID[:max(strings.LastIndex(n.ID, "-"), 0)]
	}
	return net.JoinHostPort(host, port)
}

// Lane is what a node has in hand of one biz type.
type Lane struct {
	Node  string                 `json:"node"`
	Lane  *dispatcher.LaneReport `json:"lane"`            // null: the node knows no policy of the type, or could not be asked
	Error string                 `json:"error,omitempty"` // why it could not be asked

	Workers *pull.Asked `json:"workers,omitempty"` // of a pull type
}

// Lanes asks the nodes of a group, all at once, what they have in hand of a biz type. The error is that of Nodes.
func (v View) Lanes(ctx context.Context, group, bizType string) ([]Lane, error) {
	groups, err := v.Nodes(ctx, group)
	pages := v.askAll(ctx, groups)
	lanes := make([]Lane, len(pages))
	for i, p := range pages {
		lanes[i].Node = p.Node
		switch {
		case p.Address == "":
			lanes[i].Error = "it publishes no address: set Listen of its node.Config"
		case p.Err != nil:
			lanes[i].Error = OneLine(p.Err)
		default:
			if at := slices.IndexFunc(p.Report.Lanes, func(l dispatcher.LaneReport) bool { return l.BizType == bizType }); at >= 0 {
				lanes[i].Lane = &p.Report.Lanes[at]
			}
			if workers, pulled := p.Report.Asked[bizType]; pulled {
				lanes[i].Workers = &workers
			}
		}
	}
	return lanes, err
}

// Policies reads the stored policies, with the defaults filled in.
func Policies(ctx context.Context, cfg tocsin.Config) ([]biztype.Policy, error) {
	policies, err := biztype.Load(ctx, cfg)
	for i, p := range policies {
		policies[i] = p.WithDefaults()
	}
	return policies, err
}
