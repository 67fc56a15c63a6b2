package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/operator"
)

const (
	topInterval   = 2 * time.Second
	leastInterval = 500 * time.Millisecond
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
each node does. q or Ctrl-C ends it. It asks each node that etcd, or the session tables, list for its
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
	within(c, "interval", leastInterval, maxDuration)
	c.Flags().StringVar(&f.group, "group", "", "nodes of this group only")
	c.Flags().StringSliceVar(&f.status, "status", nil, "addresses of status pages, host:port, instead of those of the listed nodes")
	return c
}

func (a *app) top(ctx context.Context, f topFlags) error {
	if err := checkAddresses("--status", f.status); err != nil {
		return err
	}
	switch {
	case f.group != "" && len(f.status) > 0:
		return usage("use --group or --status, not both")
	case !f.once && (a.json || !a.out.draws()):
		return usage("standard output is no terminal that can be drawn on, or --json is given: use --once")
	}
	file, err := a.load()
	if err != nil {
		return err
	}
	w := &watch{app: a, cluster: file.Cluster, Watch: operator.Watch{View: viewOf(file), Group: f.group, Status: f.status, Interval: f.interval}}
	if f.once {
		return w.once(ctx)
	}
	return w.live(ctx)
}

// watch is the command top: it prints the samples of an operator.Watch.
type watch struct {
	*app
	operator.Watch
	cluster string
}

// once prints what happens within one interval.
func (w *watch) once(ctx context.Context) error {
	if v := w.Look(ctx); len(v.Nodes) > 0 {
		if err := loop.Wait(ctx, w.Interval); err != nil {
			return err
		}
	}
	v := w.Look(ctx)
	if len(v.Nodes) == 0 && w.Failed != nil {
		return fmt.Errorf("%w; --status HOST:PORT,... asks status pages without it", w.Failed) // "no nodes" would be a claim, and nothing is known
	}
	if err := w.print(v, func(to io.Writer) { writeTop(to, v, w.cluster) }); err != nil {
		return err
	}
	if len(v.Servers) > 0 || !slices.ContainsFunc(v.Nodes, func(n operator.NodeActivity) bool { return n.Error == "" }) {
		return errSilent
	}
	return nil
}

func writeTop(to io.Writer, v operator.Activity, cluster string) {
	for _, line := range tidied(v.Lines(cluster)) {
		fmt.Fprintln(to, line)
	}
	if len(v.Nodes) == 0 {
		fmt.Fprintln(to, noNodes)
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
		v := w.Look(ctx)
		if ctx.Err() != nil {
			return nil // what was cut off says nothing
		}
		var text strings.Builder
		writeTop(&text, v, w.cluster)
		if _, err := io.WriteString(w.out.file, w.screen(text.String())); err != nil {
			return err
		}
		if loop.Wait(ctx, w.Interval-time.Since(began)) != nil {
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
