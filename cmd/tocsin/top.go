package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/internal/top"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/operator/cluster"
)

// listWithin bounds one look at etcd, or the node tables.
const listWithin = 4 * time.Second

const (
	topInterval   = 2 * time.Second
	leastInterval = 500 * time.Millisecond
	listEvery     = 10 * time.Second // between two looks for nodes
)

// topFlags are those of `tocsin top`.
type topFlags struct {
	once     bool
	interval time.Duration
	group    string
	status   []string
}

func newTop(a *app) *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use: "top", Short: "Watch what all nodes deliver: rates, lateness, overdue tasks", Args: noArgs,
		Long: `Shows, again and again, what each biz type delivers, how late, what is queued and overdue, and what
each node does. q or Ctrl-C ends it. It asks each node that etcd, or the node tables, list for its
/metrics once in each interval; a node that does not answer is named, and the others are shown.
With --status it asks these addresses alone, and needs neither etcd nor MySQL.

With --once it prints the same once, after one interval, as plain lines, or with --json as JSON.
It names servers that hang or that nodes do not reach, overdue figures that are old (marked "?"), and
groups that have biz types and no node.
Exit code 1 if no node answers, or a server is in trouble.`,
		Example: "  tocsin top\n  tocsin top --once --interval 10s\n  tocsin top --status 10.0.0.7:8480,10.0.0.8:8480",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.top(cmd.Context(), f) },
	}
	c.Flags().BoolVar(&f.once, "once", false, "print once and end")
	c.Flags().DurationVar(&f.interval, "interval", topInterval, "between two looks, 500ms or more")
	c.Flags().StringVar(&f.group, "group", "", "nodes of this group only")
	c.Flags().StringSliceVar(&f.status, "status", nil, "addresses of status pages, host:port, instead of those of the listed nodes")
	return c
}

func (a *app) top(ctx context.Context, f topFlags) error {
	if err := checkAddresses("--status", f.status); err != nil {
		return err
	}
	_, onTerminal := a.terminal()
	switch {
	case f.interval < leastInterval:
		return usage("--interval %s: want %s or more", f.interval, leastInterval)
	case f.group != "" && len(f.status) > 0:
		return usage("use --group or --status, not both")
	case !f.once && !onTerminal:
		return usage("standard output is no terminal, or --json is given: use --once")
	}
	file, err := a.load()
	if err != nil {
		return err
	}
	w := &watch{app: a, flags: f, cluster: file.Cluster, asker: a.asker()}
	if f.once {
		return w.once(ctx)
	}
	return w.live(ctx)
}

// watch looks at all nodes again and again. It belongs to one goroutine.
type watch struct {
	*app
	asker   asker
	flags   topFlags
	cluster string

	pages  []pageOfNode          // of the nodes, as last listed
	listed time.Time             // when; zero: never
	failed error                 // why they could not be listed then
	before map[string]top.Sample // by address
}

// pageOfNode is where a node's metrics are.
type pageOfNode struct{ node, group, address string }

// once prints what happens within one interval.
func (w *watch) once(ctx context.Context) error {
	if v := w.look(ctx); len(v.Nodes) > 0 {
		if err := wait.For(ctx, w.flags.interval); err != nil {
			return err
		}
	}
	v := w.look(ctx)
	if len(v.Nodes) == 0 && w.failed != nil {
		return fmt.Errorf("%w; --status HOST:PORT,... asks status pages without it", w.failed) // "no nodes" would be a claim, and nothing is known
	}
	if err := w.print(v, func(to io.Writer) { writeTop(to, v, w.cluster) }); err != nil {
		return err
	}
	if len(v.Servers) > 0 || !slices.ContainsFunc(v.Nodes, func(n top.Node) bool { return n.Error == "" }) {
		return errSilent
	}
	return nil
}

func writeTop(to io.Writer, v top.View, cluster string) {
	for _, line := range tidied(v.Lines(cluster)) {
		fmt.Fprintln(to, line)
	}
	if len(v.Nodes) == 0 {
		fmt.Fprintln(to, noNodes)
	}
}

// look lists the nodes if that is due, asks each for its metrics at once, and compares them with those of the last look.
func (w *watch) look(ctx context.Context) top.View {
	if w.listed.IsZero() || time.Since(w.listed) >= listEvery {
		w.list(ctx)
	}
	now := make([]top.Sample, len(w.pages))
	var all sync.WaitGroup
	for i, p := range w.pages {
		all.Go(func() { now[i] = w.sample(ctx, p) })
	}
	all.Wait()
	by := make(map[string]top.Sample, len(now))
	for _, s := range now {
		by[s.Address+" "+s.Node] = s
	}
	v := top.Between(w.before, by, time.Now())
	w.before = by
	if w.failed != nil || w.flags.group != "" || len(w.flags.status) > 0 {
		v.Groups = []top.Group{} // there may be nodes that were not asked
	}
	if w.failed != nil {
		v.Notes = append(v.Notes, "the nodes could not be listed just now, these are the last known: "+oneLine(w.failed)+"; --status HOST:PORT,... asks status pages without it")
	}
	return v
}

// list finds the nodes. If that fails, those found before stay.
func (w *watch) list(ctx context.Context) {
	w.listed = time.Now()
	if len(w.flags.status) > 0 {
		w.pages = nil
		for _, address := range w.flags.status {
			w.pages = append(w.pages, pageOfNode{address: address})
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	groups, err := w.nodes(ctx, w.flags.group)
	if w.failed = err; err != nil && len(groups) == 0 {
		return
	}
	w.pages = nil
	for _, g := range groups {
		for _, n := range g.Nodes {
			w.pages = append(w.pages, pageOfNode{n.ID, g.Group, cluster.PageOf(n)})
		}
	}
}

// errAnother is why what answers is not shown as the node that was asked.
var errAnother = errors.New("another node answers there: correct node.listen in its config, or use --status")
