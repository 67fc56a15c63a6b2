package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/api/console"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/outbox/relay"
	"github.com/tocsinhq/tocsin/pull"
)

// serveFlags are those of `tocsin serve`; they win over the config file.
type serveFlags struct{ name, listen, group, pprof, api string }

func newServe(a *app) *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use: "serve", Short: "Run a node that delivers HTTP callbacks, and to message brokers", Args: noArgs,
		Long: `Runs a node: it takes its share of the tables and delivers the HTTP callbacks of its
group, and what goes to the sinks of the config. On SIGTERM or Ctrl-C it takes in no more and gives its tables up: other nodes have
them at once. It lets deliveries in hand end, for node.drain_timeout of the config (30s) at
most, settles them and exits with 0. The log says what was left.

The listen address serves /metrics for Prometheus, /status (200 while the node may
deliver, else 503), /readyz (the same without the report) and /healthz (200 while the
process lives). node.status of the config sets a token and TLS.

With --api, or node.api.listen of the config, it also serves the HTTP API: tasks, biz types,
nodes and counts, as docs/api.md describes; and web pages, with console.base of the config, as
docs/console.md describes. Without tokens (node.api.tokens or tokens_file)
the address must be a loopback one: make a token with ` + "`tocsin token new`" + `.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },
	}
	c.Flags().StringVar(&f.name, "name", "", "name of the node (default: node.name of the config, then the host name)")
	c.Flags().StringVar(&f.listen, "listen", "", "address of the status page (default: node.listen of the config); off for none")
	c.Flags().StringVar(&f.api, "api", "", "address of the HTTP API, such as 127.0.0.1:8481 (default: node.api.listen of the config); off for none")
	c.Flags().StringVar(&f.group, "group", biztype.CallbackGroup, "group whose callbacks to deliver")
	c.Flags().StringVar(&f.pprof, "pprof", "", "loopback address for Go's profiles, for example 127.0.0.1:6060 (default: none)")
	return c
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	registry := newRegistry()
	cfg, file, guard, err := a.serveConfig(f, registry)
	if err != nil {
		return err
	}
	sinks, err := a.sinks(file)
	if err != nil {
		return err
	}
	defer sinks.close(ctx)
	cfg.Sinks = sinks
	requested := cmp.Or(f.api, file.Node.API.Listen)
	cfg.API = file.Node.API.URL(requested)
	n, err := node.New(cfg, nil)
	if err != nil {
		return err
	}
	page, err := listen(cfg.Listen, guard)
	if err != nil {
		return err
	}
	profiles, err := listenPprof(f.pprof)
	if err != nil {
		return errors.Join(err, page.close())
	}
	requests, err := a.listenAPI(file, requested, n.Pull(), a.logger(file.Log.Level, file.Log.Format), registry)
	if err != nil {
		return errors.Join(err, page.close(), profiles.close())
	}
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, working := errgroup.WithContext(ctx) // a page or an API that fails ends the node, so that its error is told at once
	taking, stop := context.WithCancel(working)
	defer stop()
	g.Go(func() error { return page.serve(work, statusMux(n.Status(), registry, page.token, n.ID)) })
	g.Go(func() error { return profiles.serve(work, pprofMux()) })
	g.Go(func() error { return requests.serve(taking) })
	g.Go(func() error {
		defer end()  // the page lives as long as the node
		defer stop() // a node that failed leaves no API behind
		return n.Run(working)
	})
	return g.Wait()
}

// newRegistry holds the process's own metrics beside those of the engines.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// apiServer is the API of tocsin serve; nil: there is none.
type apiServer struct {
	served   *api.API
	tls      *tls.Config // nil: plain text
	listener net.Listener
}

// listenAPI takes the address of the API at once, as listen does. r may be nil.
func (a *app) listenAPI(file config.File, address string, workers *pull.Hub, log *slog.Logger, r prometheus.Registerer) (*apiServer, error) {
	of := file.Node.API
	if address == "" || address == config.Off {
		return nil, nil
	}
	tokens, secure, err := apiAccess(of, address, func(err error) { log.Warn("the API keeps its last tokens", "error", err) })
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("API: %w: free the port, or choose another with --api or node.api.listen", err)
	}
	log.Info("the API listens", "address", l.Addr().String(), "tokens", of.HasTokens(), "tls", secure != nil, "console", file.Console.Base)
	return &apiServer{api.New(api.Config{
		Tables: file.Tocsin(), Cluster: viewOf(file), Pull: workers, Tokens: tokens, Origins: of.CORS, Body: int64(of.Limits.BodyKiB) << 10, Rate: of.Limits.Rate,
		Timeout: of.Limits.Timeout.D(), Drain: file.Node.DrainTimeout.D(), Beside: consoleOf(file, tokens, log), Logger: log, Registerer: r,
	}), secure, l}, nil
}

// apiAccess reads who may use the API at an address, and its certificate; nil: plain text. told gets later errors of the tokens.
func apiAccess(of config.API, address string, told func(error)) (tokens func() apitoken.Set, secure *tls.Config, err error) {
	if err := of.LoopbackOnly(address); err != nil {
		return nil, nil, usageError{err}
	}
	if tokens, err = of.TokenSource(told); err == nil {
		secure, err = of.ServerTLS()
	}
	return tokens, secure, err
}

// consoleOf makes the console of a config; nil: it wants none.
func consoleOf(file config.File, tokens func() apitoken.Set, log *slog.Logger) func(*api.API) http.Handler {
	if file.Console.Base == "" {
		return nil
	}
	of := console.Config{
		Tokens: tokens, Base: file.Console.Base, Key: file.Console.Key, Trace: file.Console.Links.Trace, Grafana: file.Console.Links.Grafana,
		Timeout: file.Node.API.Limits.Timeout.D(), Logger: log,
	}
	if p := file.Console.Proxy; p != nil {
		of.Proxy = &console.Proxy{
			Networks: p.Prefixes(), Secret: p.Secret, SecretHeader: p.SecretHeader, UserHeader: p.UserHeader, GroupsHeader: p.GroupsHeader, Groups: p.Groups,
		}
	}
	return func(served *api.API) http.Handler {
		of.API = served
		return console.New(of)
	}
}

// serve answers until ctx ends, and lets requests in hand end.
func (s *apiServer) serve(ctx context.Context) error {
	if s == nil {
		return nil
	}
	return s.served.Serve(ctx, s.listener, s.tls)
}

// url is where the API is.
func (s *apiServer) url() string { return "http://" + s.listener.Addr().String() }

func newRelay(a *app) *cobra.Command {
	var f outboxFlags
	var listenOn string
	var replay bool
	cmd := &cobra.Command{
		Use: "relay", Short: "Move the rows of outboxes to the tables of their tasks", Args: noArgs,
		Long: `Moves the rows of outboxes, and carries out the commands of entrances: all of the config or, with
--dsn, --table or --outbox, one outbox. It needs no etcd. For each outbox, and each partition of an
entrance's topic, one process is active; others stand by and take over when it ends or hangs.
"tocsin serve" relays those of its config too, so this is for hosts beside a business database that
nodes do not reach.

If the offset of an entrance's group was set back, its commands would be carried out a second time:
the relay refuses that without --replay.

--listen serves /metrics for Prometheus and /healthz; node.status of the config sets a token
and TLS.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.relay(cmd.Context(), f, listenOn, replay) },
	}
	f.flags(cmd)
	cmd.Flags().Lookup("dsn").Usage = "the business server of one outbox, as tocsin outbox takes it (default, with --table: $" + envOutbox + ")"
	cmd.Flags().BoolVar(&replay, "replay", false, "carry out commands again that stand behind an offset that was set back")
	cmd.Flags().StringVar(&listenOn, "listen", config.Off, "address of /metrics; off for none")
	return cmd
}

func (a *app) relay(ctx context.Context, f outboxFlags, listenOn string, replay bool) error {
	file, err := a.load()
	if err != nil {
		return err
	}
	outboxes := a.relayed(file)
	if f != (outboxFlags{}) {
		one, err := f.one(a)
		if err != nil {
			return err
		}
		outboxes = []outbox.Config{one}
	}
	if len(outboxes) == 0 {
		return usage("the config has no outboxes and no entrances: use --dsn and --table")
	}
	registry := newRegistry()
	r, err := relay.New(relay.Config{
		Tables: file.Tocsin(), Outboxes: outboxes, Replay: replay, Logger: a.logger(file.Log.Level, file.Log.Format), Registerer: registry,
	})
	if err != nil {
		return err
	}
	guarded, err := newGuard(file.Node.Status)
	if err != nil {
		return err
	}
	page, err := listen(listenOn, guarded)
	if err != nil {
		return err
	}
	alive := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	return beside(ctx, r.Run, func(work context.Context) error {
		return page.serve(work, statusMux(alive, registry, page.token, func() string { return "relay" }))
	})
}

// beside runs a page for as long as the work; a page that fails ends the work, so that its error is told at once.
func beside(ctx context.Context, work, page func(context.Context) error) error {
	shown, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, working := errgroup.WithContext(ctx)
	g.Go(func() error { return page(shown) })
	g.Go(func() error {
		defer end()
		return work(working)
	})
	return g.Wait()
}

func newToken(a *app) *cobra.Command {
	return group("token", "Make tokens of the HTTP API", newTokenNew(a))
}

func newTokenNew(a *app) *cobra.Command {
	var t apitoken.Token
	var scope, expires string
	c := &cobra.Command{
		Use: "new --name NAME --scope SCOPE --types PATTERN", Short: "Make a token of the HTTP API", Args: noArgs,
		Long: `Prints a new token once, and the lines that the config keeps of it: its SHA-256, not the token. Put
the lines into the file of node.api.tokens_file, which tocsin serve reads again when it changes, or
below node.api.tokens. To take a token back, remove its lines.

  scope    allows
  work     to take the tasks of biz types with pull, and settle them; nothing else
  read     to look up tasks, schedules, runs, biz types, nodes and counts
  write    and to work, and to add, cancel and reschedule tasks, to create, change, run and delete schedules
  operate  and to redrive and bury tasks, to backfill schedules, to pause and resume biz types`,
		Example: "  tocsin token new --name shop --scope write --types 'order.*'\n" +
			"  tocsin token new --name grafana --scope read --types '*' --expires 2160h",
		RunE: func(*cobra.Command, []string) error {
			var missing []string
			for flag, text := range map[string]string{"--name": t.Name, "--scope": scope, "--types": strings.Join(t.BizTypes, "")} {
				if text == "" {
					missing = append(missing, flag)
				}
			}
			if slices.Sort(missing); len(missing) > 0 {
				verb := map[bool]string{true: "is", false: "are"}[len(missing) == 1]
				return usage("%s %s missing: see `tocsin token new --help`", strings.Join(missing, ", "), verb)
			}
			t.Scope = apitoken.Scope(scope)
			var err error
			if t.Expires, err = expiry(expires, time.Now()); err != nil {
				return err
			}
			return a.newToken(t)
		},
	}
	c.Flags().StringVar(&t.Name, "name", "", "holder of the token, as shown in the log: letters, digits, '.', '_' and '-'")
	c.Flags().StringVar(&scope, "scope", "", "work, read, write or operate")
	c.Flags().StringSliceVar(&t.BizTypes, "types", nil, "names of biz types, where * stands for any text; a single * allows all")
	c.Flags().StringVar(&expires, "expires", "", "when the token ends: a time (2030-01-02T15:04:05Z), or a duration from now (2160h); default: never")
	return c
}

// expiry reads a time, or a duration from now; "" is the zero time.
func expiry(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := name.ReadTime(text)
	if d, wrong := time.ParseDuration(text); wrong == nil {
		at, err = now.Add(d).UTC(), nil
	}
	if err != nil || !at.After(now) {
		return at, usage("--expires %q: want a time in the future, such as 2030-01-02T15:04:05Z, or a duration, such as 2160h", text)
	}
	return at.Truncate(time.Second), nil
}

// madeToken is the JSON of `token new`: the token, and what the config keeps of it.
type madeToken struct {
	Text string `json:"token"`
	apitoken.Token
}

func (a *app) newToken(t apitoken.Token) error {
	text, made, err := apitoken.New(t)
	if err != nil {
		return usageError{err}
	}
	lines, err := yaml.Marshal(struct {
		Tokens []apitoken.Token `yaml:"tokens"`
	}{[]apitoken.Token{made}})
	if err != nil {
		return err
	}
	return a.print(madeToken{text, made}, func(w io.Writer) {
		fmt.Fprintf(w, "# The token, which is shown only now:\n#   %s\n# For the config, in the file of node.api.tokens_file or below node.api:\n%s", text, lines)
	})
}

// serveConfig is that of a node that runs, with the flags over the file, the file, and what guards its status page.
func (a *app) serveConfig(f serveFlags, r prometheus.Registerer) (node.Config, config.File, guard, error) {
	file, err := a.load()
	if err != nil {
		return node.Config{}, file, guard{}, err
	}
	cfg, err := file.NodeConfig()
	if err != nil {
		return cfg, file, guard{}, err
	}
	cfg.Version, cfg.Logger, cfg.Registerer, cfg.Group = version, a.logger(file.Log.Level, file.Log.Format), r, f.group
	cfg.Outboxes = a.relayed(file)
	if f.name != "" {
		cfg.Name = f.name
	}
	cfg.Listen = cmp.Or(f.listen, file.Node.Listen)
	if cfg.Ownership != node.ByRows && len(file.Etcd.Endpoints) == 0 {
		return cfg, file, guard{}, errors.New("no etcd endpoints in the config: a node registers there, unless layout.ownership is rows")
	}
	guarded, err := newGuard(file.Node.Status)
	return cfg, file, guarded, err
}
