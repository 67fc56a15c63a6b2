package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/devserver"
)

// deliverWithin is how long after the last sample is due `dev --exit` waits.
const deliverWithin = time.Minute

// serverUsage explains --server, of every command that starts a private server.
var serverUsage = "the private server: " + devserver.ProductNames() + "; scripts/install-server.sh installs the last two (default mariadb)"

// devFlags are those of `tocsin dev`.
type devFlags struct {
	tasks, nodes                  int
	layout, server                string
	over                          time.Duration
	exit, etcd                    bool
	mysqlPort, etcdPort, httpPort int
}

func newDev(a *app) *cobra.Command {
	var f devFlags
	c := &cobra.Command{
		Use: "dev", Short: "Run everything on this machine and deliver sample tasks", Args: noArgs,
		Long: `Starts a private MariaDB or MySQL, etcd (unless --etcd=false), nodes and a small HTTP
receiver, adds sample tasks of two biz types due over the next seconds, and sums up what
became of them. It then stays up until Ctrl-C; nothing is left behind.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.dev(cmd.Context(), f) },
	}
	c.Flags().IntVar(&f.tasks, "tasks", 1000, "sample tasks")
	c.Flags().IntVar(&f.nodes, "nodes", 2, "nodes")
	c.Flags().StringVar(&f.layout, "layout", "8x16", "databases x tables")
	c.Flags().StringVar(&f.server, "server", "", serverUsage)
	c.Flags().DurationVar(&f.over, "over", 10*time.Second, "the span over which the sample tasks are due")
	c.Flags().BoolVar(&f.exit, "exit", false, "stop when all are delivered; exit code 1 if any is not within a minute")
	c.Flags().BoolVar(&f.etcd, "etcd", true, "start etcd, in which nodes own tables; --etcd=false: one database server is all, and every node claims each row")
	c.Flags().IntVar(&f.mysqlPort, "mysql-port", 0, "port of the database server; 0: a free one")
	c.Flags().IntVar(&f.etcdPort, "etcd-port", 0, "port of etcd; 0: a free one")
	c.Flags().IntVar(&f.httpPort, "http-port", 0, "port of the HTTP receiver; 0: a free one")
	return c
}

// validate reads the layout and refuses what makes no sense.
func (f devFlags) validate() (tocsin.Layout, error) {
	l, err := parseLayout(f.layout)
	if err != nil {
		return l, err
	}
	switch {
	case f.tasks < 0 || f.tasks > 10_000_000:
		return l, usage("--tasks %d: want 0 to 10000000", f.tasks)
	case f.nodes < 1 || f.nodes > 64:
		return l, usage("--nodes %d: want 1 to 64", f.nodes)
	case f.over < 0 || f.over > time.Hour:
		return l, usage("--over %s: want 0s to 1h", f.over)
	}
	if _, err := devserver.ParseProduct(f.server); err != nil {
		return l, usage("--server: %w", err)
	}
	return l, nil
}

// parseLayout reads a layout from the command line.
func parseLayout(text string) (l tocsin.Layout, err error) {
	if _, err := fmt.Sscanf(text, "%dx%d", &l.Databases, &l.Tables); err != nil || l.String() != text {
		return l, usage("layout %q: want databases x tables, such as 8x16", text)
	}
	if err := l.Validate(); err != nil {
		return l, usageError{err}
	}
	return l, nil
}

func (a *app) dev(ctx context.Context, f devFlags) (err error) {
	layout, err := f.validate()
	if err != nil {
		return err
	}
	view := newDevView(a)
	c, err := devcluster.Start(ctx, devcluster.Options{
		Layout: layout, Server: devserver.Product(f.server), Nodes: f.nodes, Version: version, Progress: view.progress, OnDelivery: view.delivery,
		NoEtcd: !f.etcd, MySQLPort: f.mysqlPort, EtcdPort: f.etcdPort, HTTPPort: f.httpPort, Logger: a.logger("warn", "text"),
	})
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	summary, err := runSamples(ctx, c, f, view)
	if err != nil {
		return interrupted(ctx, err)
	}
	view.end()
	if err := a.print(summary, func(w io.Writer) { fmt.Fprint(w, "\n", summary) }); err != nil {
		return err
	}
	if f.exit {
		return verdict(summary)
	}
	return a.stayUp(ctx, c, view)
}

// interrupted makes the error of a Ctrl-C say so.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// runSamples adds the sample tasks and waits until they are delivered.
func runSamples(ctx context.Context, c *devcluster.Cluster, f devFlags, view *devView) (devcluster.Summary, error) {
	if err := c.AddSamples(ctx, f.tasks, f.over); err != nil {
		return devcluster.Summary{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, f.over+deliverWithin)
	defer cancel()
	err := c.AwaitSeen(bounded, f.tasks, func(n int) { view.progress("deliver", n, f.tasks) })
	if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return devcluster.Summary{}, err
	}
	settle, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return c.Summary(settle, f.tasks)
}

func verdict(s devcluster.Summary) error {
	if s.OK() {
		return nil
	}
	return fmt.Errorf("%d of %d tasks delivered within a minute, %d early", s.Delivered, s.Tasks, s.Early)
}

// stayUp shows how to use the cluster from a second terminal until ctx ends.
func (a *app) stayUp(ctx context.Context, c *devcluster.Cluster, view *devView) error {
	dir, err := os.MkdirTemp("", "tocsin-dev-")
	if err != nil {
		return fmt.Errorf("folder for the config: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tocsin.yaml")
	if err := c.WriteConfig(path); err != nil {
		return err
	}
	if !a.json {
		name, value := devcluster.Secret()
		fmt.Fprintf(a.out, devHint, programName(), path, name, value, c.MySQLPort())
	}
	view.follow()
	return c.Wait(ctx)
}

// programName is how the second terminal calls this program.
func programName() string {
	if p, err := os.Executable(); err == nil {
		return p
	}
	return "tocsin"
}

const devHint = `
It is still up. From a second terminal, paste for example:

  export TOCSIN_CONFIG=%[2]s
  export %[3]s=%[4]s
  alias tocsin='%[1]s'
  tocsin task add --type order.close --biz-id 700042 --in 5s --attribute '{"order_id":700042,"cents":990}'
  tocsin task add --type coupon.remind --biz-id 700042 --in 30m --attribute '{"user_id":700042,"code":"SAVE10"}'
  tocsin task list --biz-id 700042
  tocsin cluster nodes

Or look with a SQL client: mariadb --user root --host 127.0.0.1 --port %[5]d

Deliveries appear here. Ctrl-C stops everything and leaves nothing behind.
`
