package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"golang.org/x/term"

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
	w := &watch{app: a, flags: f, cluster: file.Cluster, asker: askerOf(file)}
	if f.once {
		return w.once(ctx)
	}
	return w.live(ctx)
}

// watch looks at all nodes again and again. It belongs to one goroutine.
type watch struct {
	*app
	asker   cluster.Asker
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
		v.Notes = append(v.Notes, "the nodes could not be listed just now, these are the last known: "+cluster.OneLine(w.failed)+"; --status HOST:PORT,... asks status pages without it")
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

// What a terminal understands, ECMA-48.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

// plainHeight is how high a terminal is taken to be that does not say.
const plainHeight = 24

// ctrlC is what the key sends while the terminal is raw.
const ctrlC = 3

// live draws one look after another until q, Ctrl-C or the end of ctx, and leaves the terminal as it was.
func (w *watch) live(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	if isatty.IsTerminal(os.Stdin.Fd()) {
		was, err := term.MakeRaw(int(os.Stdin.Fd()))
		if err != nil {
			return fmt.Errorf("read keys from the terminal: %w", err)
		}
		defer func() { _ = term.Restore(int(os.Stdin.Fd()), was) }()
		go awaitQuit(os.Stdin, end) // it waits for a key for ever, and ends with the process
	}
	fmt.Fprint(w.out.file, enterScreen)
	defer fmt.Fprint(w.out.file, leaveScreen)
	for {
		began := time.Now()
		v := w.look(ctx)
		if ctx.Err() != nil {
			return nil // what was cut off says nothing
		}
		var text strings.Builder
		writeTop(&text, v, w.cluster)
		if _, err := io.WriteString(w.out.file, w.screen(text.String())); err != nil {
			return err
		}
		if wait.For(ctx, w.flags.interval-time.Since(began)) != nil {
			return nil
		}
	}
}

// awaitQuit calls end at the first q or Ctrl-C, or when there are no more keys.
func awaitQuit(keys io.Reader, end func()) {
	defer end()
	for key := make([]byte, 16); ; {
		n, err := keys.Read(key)
		if err != nil || bytes.ContainsAny(key[:n], "qQ"+string(rune(ctrlC))) {
			return
		}
	}
}

// screen cuts text to the terminal, and draws it over what is there.
func (w *watch) screen(text string) string {
	width, height, err := term.GetSize(int(w.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = plainWidth, plainHeight
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if more := len(lines) - (height - 1); more > 0 {
		lines = append(lines[:max(height-2, 0)], fmt.Sprintf("and %d lines more: make the window larger, or use --once", more+1))
	}
	var b strings.Builder
	b.WriteString(toTop)
	for _, line := range append(lines, "q: quit") {
		if letters := []rune(line); len(letters) > width {
			line = string(letters[:width])
		}
		b.WriteString(line + clearLine + "\r\n")
	}
	return strings.TrimSuffix(b.String(), "\r\n") + clearRest
}

// tidied writes rows as lines, in columns as wide as their cells. Foreign text can't steer the terminal.
func tidied(rows [][]string) []string {
	var text strings.Builder
	var block [][]string
	flush := func() {
		columns(&text, block...)
		block = nil
	}
	for _, row := range rows {
		for i := range row {
			row[i] = oneCell(row[i])
		}
		if len(row) == 1 {
			flush()
			text.WriteString(row[0] + "\n")
			continue
		}
		block = append(block, row)
	}
	flush()
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}
