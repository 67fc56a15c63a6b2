package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/devserver"
)

// deliverWithin is how long after the last sample is due `dev --exit` waits.
const deliverWithin = time.Minute

// serverUsage explains --server, of every command that starts a private server.
var serverUsage = "the private server: " + devserver.ProductNames() + "; scripts/install-server.sh installs the last two (default mariadb)"

// devFlags are those of `tocsin dev`.
type devFlags struct {
	tasks, nodes, servers, load   int
	layout, server, rules         string
	biz, configOut                string
	over                          time.Duration
	exit, etcd, prometheus, kafka bool
	mysqlPort, etcdPort, httpPort int
	apiPort, kafkaPort            int
	prometheusPort                int
}

func newDev(a *app) *cobra.Command {
	var f devFlags
	c := &cobra.Command{
		Use: "dev", Short: "Run everything on this machine and deliver sample tasks", Args: noArgs,
		Long: `Starts a private MariaDB or MySQL, etcd (unless --etcd=false), nodes and a small HTTP
receiver, adds sample tasks of three biz types due over the next seconds, and sums up what
became of them. It then stays up until Ctrl-C, with a schedule that makes a task every 5
seconds and a few dead tasks of refund.send, and serves the HTTP API and the console; nothing is left behind. If Prometheus is installed, it
collects the metrics of all parts.

With --load it goes on adding tasks, also of biz types that fail, hang, have a low rate, are
paused or have no handler; it sweeps every 10 seconds, and purges and audits each minute.

With --kafka a broker that speaks Kafka's protocol runs beside it, in memory, and the tasks of the
biz type order.notify become its records: read them with kcat. The config has it as the sink kafka.

With --biz it is a cluster for a program of yours: tables and the biz types of a file, but no
sample tasks and no nodes. Your program reads the config that is printed, and runs the nodes.`,
		Example: `  tocsin dev --exit
  tocsin dev --etcd=false --biz biz.yaml --config-out tocsin.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.dev(cmd.Context(), f) },
	}
	c.Flags().IntVar(&f.tasks, "tasks", 1000, "sample tasks")
	within(c, "tasks", 0, 10_000_000)
	c.Flags().IntVar(&f.nodes, "nodes", 2, "nodes")
	within(c, "nodes", 1, 64)
	c.Flags().StringVar(&f.layout, "layout", "8x16", "databases x tables")
	c.Flags().StringVar(&f.server, "server", "", serverUsage)
	c.Flags().DurationVar(&f.over, "over", 10*time.Second, "the span over which the sample tasks are due")
	within(c, "over", 0, time.Hour)
	c.Flags().StringVar(&f.biz, "biz", "", "file of biz types, as for tocsin biz apply: no sample tasks and no nodes, for a program of yours")
	c.Flags().StringVar(&f.configOut, "config-out", "", "where to write the config file; it goes at the end (default in a temporary folder)")
	c.Flags().BoolVar(&f.exit, "exit", false, "stop when all are delivered; exit code 1 if any is not within a minute")
	c.Flags().BoolVar(&f.etcd, "etcd", true, "start etcd, in which nodes own tables; --etcd=false: one database server is all, and every node claims each row")
	c.Flags().BoolVar(&f.kafka, "kafka", false, "start a Kafka broker, to which the tasks of order.notify go")
	c.Flags().IntVar(&f.kafkaPort, "kafka-port", 0, "port of the Kafka broker; 0: a free one")
	c.Flags().IntVar(&f.load, "load", 0, "tasks to add each second after the sample tasks, until Ctrl-C")
	within(c, "load", 0, 1000)
	c.Flags().IntVar(&f.servers, "servers", 1, "database servers, among which the databases are divided")
	within(c, "servers", 1, 8)
	c.Flags().BoolVar(&f.prometheus, "prometheus", true, "start Prometheus if it is installed, unless --exit is given")
	c.Flags().IntVar(&f.prometheusPort, "prometheus-port", 0, "port of Prometheus; 0: a free one")
	c.Flags().StringVar(&f.rules, "rules", "", "folder whose files *.rules.yaml Prometheus loads, such as deploy/prometheus")
	c.Flags().IntVar(&f.mysqlPort, "mysql-port", 0, "port of the first database server; 0: a free one")
	c.Flags().IntVar(&f.etcdPort, "etcd-port", 0, "port of etcd; 0: a free one")
	c.Flags().IntVar(&f.apiPort, "api-port", 0, "port of the HTTP API; 0: a free one")
	c.Flags().IntVar(&f.httpPort, "http-port", 0, "port of the HTTP receiver; 0: a free one")
	for _, of := range []string{"kafka", "prometheus", "mysql", "etcd", "api", "http"} {
		within(c, of+"-port", 0, math.MaxUint16)
	}
	return c
}

// validate reads the layout and refuses what makes no sense.
func (f devFlags) validate() (tocsin.Layout, error) {
	l, err := parseLayout(f.layout)
	if err != nil {
		return l, err
	}
	switch {
	case f.servers > l.Databases:
		return l, usage("--servers %d: there are %d databases", f.servers, l.Databases)
	case f.load > 0 && f.exit:
		return l, usage("--load goes on until Ctrl-C: leave --exit out")
	case f.biz != "" && (f.load > 0 || f.exit):
		return l, usage("--biz stays up for your program, without tasks of its own: leave --load and --exit out")
	case f.configOut != "" && !devcluster.MayReplace(f.configOut):
		return l, usage("--config-out %s: a file of that name is there, and was not written by tocsin dev: name another", f.configOut)
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
	var policies []biztype.Policy
	if f.biz != "" {
		if policies, err = readPolicies(f.biz); err != nil {
			return err
		}
	}
	broker, err := f.broker(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, broker.stop()) }()
	view := &devView{stages: &stages{app: a, units: devUnits}}
	c, err := devcluster.Start(ctx, devcluster.Options{
		Layout: layout, Policies: policies, Server: devserver.Product(f.server), Servers: f.servers, Nodes: f.nodes, Demo: f.load > 0, Version: version, Progress: view.progress, OnDelivery: view.delivery,
		Broker: broker.beside, NoEtcd: !f.etcd, MySQLPort: f.mysqlPort, EtcdPort: f.etcdPort, HTTPPort: f.httpPort, Logger: a.logger("warn", "text"),
	})
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	watcher, err := f.watch(ctx, c)
	if err != nil {
		return interrupted(ctx, err)
	}
	if f.biz != "" {
		view.end()
		return a.stayUp(ctx, c, f, view)
	}
	summary, err := runSamples(ctx, c, f, view)
	if err != nil {
		return interrupted(ctx, err)
	}
	summary.Prometheus = watcher
	view.end()
	if err := a.print(summary, func(w io.Writer) { fmt.Fprint(w, "\n", summary) }); err != nil {
		return err
	}
	switch {
	case !f.exit:
		return a.stayUp(ctx, c, f, view)
	case !summary.OK():
		return fmt.Errorf("%d of %d tasks delivered within a minute, %d early", summary.Delivered, summary.Tasks, summary.Early)
	}
	return nil
}

// watch starts Prometheus and returns its URL; "" if there is none, or if it would have nothing to watch for long.
func (f devFlags) watch(ctx context.Context, c *devcluster.Cluster) (url string, err error) {
	if f.exit || !f.prometheus || f.biz != "" {
		return "", nil
	}
	opts := devcluster.WatchOptions{Port: f.prometheusPort}
	if f.rules != "" {
		rules, err := filepath.Abs(filepath.Join(f.rules, "*.rules.yaml"))
		if err != nil {
			return "", err
		}
		opts.Rules = []string{rules}
	}
	url, err = c.Watch(ctx, opts)
	if errors.Is(err, devserver.ErrNoPrometheus) {
		return "", nil
	}
	return url, err
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

// writeConfig writes the config file for other programs. The caller calls remove at the end.
func (f devFlags) writeConfig(c *devcluster.Cluster) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "tocsin-dev-")
	if err != nil {
		return "", func() {}, fmt.Errorf("folder for the config: %w", err)
	}
	path = cmp.Or(f.configOut, filepath.Join(dir, "tocsin.yaml"))
	return path, func() { _, _ = os.Remove(path), os.RemoveAll(dir) }, c.WriteConfig(path, dir)
}

// How often a demo sweeps, and how often it purges and audits.
const (
	demoSweep  = 10 * time.Second
	demoUpkeep = time.Minute
)

// hint says what to do in a second terminal.
func (f devFlags) hint(c *devcluster.Cluster, path, api string) string {
	if f.biz != "" {
		return fmt.Sprintf(bizHint, programName(), path, f.biz, c.MySQLPort(), api)
	}
	kafka := ""
	if b := c.Broker(); b != nil {
		kafka = fmt.Sprintf(kafkaHint, b.Address)
	}
	return fmt.Sprintf(devHint, programName(), path, c.MySQLPort(), api, kafka)
}

// closing ends the hint.
func (f devFlags) closing(c *devcluster.Cluster) string {
	text := "Deliveries appear here, one every 5 seconds by a schedule."
	switch {
	case f.biz != "":
		text = "Until your program, or `tocsin serve` for webhooks, runs a node, tasks wait."
	case f.load > 0:
		text = fmt.Sprintf("%d tasks are added each second; deliveries are not shown.", f.load)
	}
	switch url := c.WatcherURL(); {
	case url != "":
		text = "Prometheus collects the metrics: " + url + "\n\n" + text
	case f.prometheus && f.biz == "":
		text = "The metrics are not collected: " + devserver.ErrNoPrometheus.Error() + "\n\n" + text
	}
	return "\n" + text + " Ctrl-C stops everything and leaves nothing behind.\n"
}

// programName is how the second terminal calls this program.
func programName() string {
	if p, err := os.Executable(); err == nil {
		return p
	}
	return "tocsin"
}

const devHint = `
It is still up. Look at it in a browser: %[4]s/

From a second terminal, paste for example:

  export TOCSIN_CONFIG=%[2]s
  alias tocsin='%[1]s'
  tocsin task add --type order.close --biz-id 700042 --in 5s --payload '{"order_id":700042,"cents":990}'
  tocsin task add --type coupon.remind --biz-id 700042 --in 30m --payload '{"user_id":700042,"code":"SAVE10"}'
  tocsin task list --biz-id 700042
  tocsin task why JOB_ID
  tocsin schedule show coupon-every-5s
  tocsin cluster nodes
  tocsin top

Or from any program, over HTTP:

  curl -sS %[4]s/v1/tasks -H 'Content-Type: application/json' -d '{"biz_type": "order.close", "biz_id": "700043", "delay_ms": 5000, "payload": "{\"order_id\":700043,\"cents\":990}"}'

Or be a worker that asks for tasks, as the sample's does: within 30 s it has to settle or extend its lease.

  tocsin task add --type label.print --biz-id 700045 --in 10s --payload '{"order_id":700045,"cents":990}'
  curl -sS %[4]s/v1/pull:reserve -H 'Content-Type: application/json' -d '{"biz_types": ["label.print"]}'

%[5]sOr look with a SQL client: mariadb --user root --host 127.0.0.1 --port %[3]d
`

const kafkaHint = `Or have a task become a record of Kafka, and read it:

  tocsin task add --type order.notify --biz-id 700044 --in 5s --payload '{"order_id":700044,"cents":990}'
  kcat -C -b %s -t order.notify -f '%%k %%s\n%%h\n'

`

const bizHint = `
A cluster with the biz types of %[3]s is up, without nodes. For your program, and for commands in a second terminal:

  export TOCSIN_CONFIG=%[2]s
  alias tocsin='%[1]s'
  tocsin biz list
  tocsin cluster nodes

The console is at %[5]s/, the HTTP API at %[5]s/v1.
Or look with a SQL client: mariadb --user root --host 127.0.0.1 --port %[4]d
`

// stayUp shows how to use the cluster from a second terminal, serves the API and keeps the load up, until ctx ends.
func (a *app) stayUp(ctx context.Context, c *devcluster.Cluster, f devFlags, view *devView) error {
	path, remove, err := f.writeConfig(c)
	defer remove()
	if err != nil {
		return err
	}
	if f.biz == "" {
		if err := errors.Join(c.AddSchedule(ctx), c.AddTrial(ctx)); err != nil {
			return interrupted(ctx, err)
		}
	}
	file, err := config.Load(path)
	if err != nil {
		return err
	}
	file.Console.Base = "/"
	requests, err := a.listenAPI(file, net.JoinHostPort("127.0.0.1", strconv.Itoa(f.apiPort)), c.Pull(), a.logger("warn", "text"), c.Registerer())
	if err != nil {
		return err
	}
	if !a.json {
		fmt.Fprint(a.out, f.hint(c, path, requests.url()), f.closing(c))
	}
	if f.load == 0 {
		view.follow()
	}
	g, work := errgroup.WithContext(ctx)
	if f.load > 0 {
		g.Go(func() error {
			return c.Demo(work, devcluster.DemoOptions{Rate: f.load, Sweep: demoSweep, Upkeep: demoUpkeep})
		})
	}
	g.Go(func() error { return requests.serve(work) })
	g.Go(func() error { return c.Wait(work) })
	return g.Wait()
}

// devUnits are the stages of `tocsin dev` that show progress, with what they count.
var devUnits = map[string]string{"create": "tables", "deliver": "tasks"}

// devView shows what `tocsin dev` does: progress stage by stage, and after the
// samples a line a delivery. Safe for concurrent use.
type devView struct {
	*stages
	following atomic.Bool
}

// follow shows each delivery from now on.
func (v *devView) follow() { v.following.Store(!v.app.json) }

// delivery shows one.
func (v *devView) delivery(d devcluster.Delivery) {
	if v.following.Load() {
		fmt.Fprintf(v.app.out, "delivered %s biz_id %d job_id %s by %s, %.1f ms after its time\n",
			d.Info.BizType, d.Info.BizID, d.Info.JobID, d.Node, float64(d.Late.Microseconds())/1000)
	}
}
