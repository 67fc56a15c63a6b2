package assign

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	sessions "github.com/tocsinhq/tocsin/internal/session"
	"github.com/tocsinhq/tocsin/internal/store"
)

// ReadSessions reads the sessions of all servers at once, with what their processes say of themselves, by server: those that have beaten in the
// last GoneAfter by the server's clock. An error names what could not be read; what was read stands beside it.
func ReadSessions(ctx context.Context, s *store.Store) (found [][]store.Session, errs []error) {
	found, errs = make([][]store.Session, len(s.Servers())), make([]error, len(s.Servers()))
	store.EachServer(len(errs), func(server int) {
		found[server], errs[server] = s.Told(ctx, server, GoneAfter)
	})
	return found, errs
}

// PresentNode is a node of a group in which nobody owns tables, in the words of one that does: its tables are those it
// looks at first, and its TTL ends when it is no longer shown, unless it beats.
type PresentNode struct {
	NodeState
	Group string
	First []int // tables that it looks at first
}

// PresentNodes returns the nodes that have sessions, by group and id.
func PresentNodes(layout tocsin.Layout, seen []store.Session) (nodes []PresentNode) {
	lists := map[string]map[int][]present{} // group -> database -> nodes
	for _, s := range seen {
		if !s.Seat {
			continue
		}
		record := readRow(s.About)
		record.Schema = s.Schema
		i, known := slices.BinarySearchFunc(nodes, s, func(n PresentNode, s store.Session) int {
			return cmp.Or(cmp.Compare(n.Group, s.Group), cmp.Compare(n.ID, s.Node))
		})
		if !known {
			nodes = slices.Insert(nodes, i, PresentNode{Group: s.Group, NodeState: NodeState{
				ID: s.Node, Info: record.NodeInfo, Weight: record.Weight, Mode: ModeRows, Misses: []int{}, Lacks: []string{}, Extra: []string{},
			}})
		}
		nodes[i].TTL = max(nodes[i].TTL, (GoneAfter - s.Modified).Round(time.Second))
		if lists[s.Group] == nil {
			lists[s.Group] = map[int][]present{}
		}
		lists[s.Group][s.Database] = append(lists[s.Group][s.Database], presentOf(sessions.Member{Session: s, Silent: s.Modified > sessions.SilentAfter}))
	}
	for i := range nodes {
		n := &nodes[i]
		able := map[int][]attendee{}
		for database, list := range lists[n.Group] {
			able[database] = ableIn(list)
			if !slices.ContainsFunc(list, func(p present) bool { return p.ID == n.ID }) {
				n.Misses = append(n.Misses, database)
			}
		}
		slices.Sort(n.Misses)
		n.First = firsts(n.ID, layout, able)
		n.Tables, n.Wanted = len(n.First), len(n.First)
	}
	return nodes
}
