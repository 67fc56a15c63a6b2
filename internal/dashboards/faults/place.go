package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/dashboards"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/loop"
)

const (
	shortest = 8 * time.Second  // a window
	scrapes  = time.Second      // between two looks of Prometheus
	cluster  = "faults"         // its id
	every    = time.Second / 10 // between two tasks of each biz type
)

// groups are those of the nodes.
var groups = [...]string{"callback", "callback", "mail"}

// place is the Tocsin that is broken.
type place struct {
	opts     options
	dir      string
	site     *devcluster.Site // two servers: the databases 0 and 2, and 1 and 3
	admins   [2]*sqlx.DB      // root on each server
	receiver *httptest.Server
	fails    atomic.Int32         // what the receiver does with biz type order.close: 0 accept, 1 fail, 2 hang, 3 refuse
	disk     *devserver.SmallDisk // for the binary log of the second server; nil: there is none
	pages    [len(groups)]string
	procs    [len(groups)]*exec.Cmd
	logs     [len(groups)]bytes.Buffer
	watcher  *devserver.Prometheus
	prom     promv1.API
	pager    *devserver.Prometheus // Alertmanager
	client   *tocsin.Client

	mu    sync.Mutex
	tasks []task          // the latest; guarded by mu
	told  map[string]bool // what Alertmanager has notified of since the last tellsAnew; guarded by mu
}

// task is one that was added.
type task struct {
	id  tocsin.JobID
	typ string
	due time.Time
}

func (p *place) start(ctx context.Context) (err error) {
	if p.dir, err = os.MkdirTemp("", "tocsin-faults-"); err != nil {
		return err
	}
	if err := os.Mkdir(p.diskDir(), 0o700); err != nil {
		return err
	}
	if p.disk, err = devserver.MountSmallDisk(p.diskDir()); err != nil {
		fmt.Fprintln(os.Stderr, "The fault \"the disk is full\" can't be played:", err)
	}
	const pool, log = 64 << 20, 32 << 20
	p.site, err = devcluster.StartSite(ctx, devcluster.SiteOptions{
		Config:  tocsin.Config{Cluster: cluster, Layout: tocsin.Layout{Databases: 4, Tables: 4}},
		Name:    "db",
		Servers: []devserver.MariaDBConfig{{Memory: pool, RedoLog: log}, {Memory: pool, RedoLog: log, Args: p.disk.Args()}},
		Etcd:    &devserver.EtcdConfig{},
	})
	if err != nil {
		return err
	}
	for i, server := range p.site.Servers {
		if err := p.grant(ctx, i); err != nil {
			return err
		}
		p.site.Config.Servers[i].DSN = fmt.Sprintf("tocsin@tcp(%s)/", server.Endpoint())
	}
	if _, err := ddl.Apply(ctx, p.site.Config, ddl.Options{}); err != nil {
		return err
	}
	p.receiver = httptest.NewServer(http.HandlerFunc(p.receive))
	if err := p.apply(ctx, p.policies()...); err != nil {
		return err
	}
	if err := p.startNodes(); err != nil {
		return err
	}
	if p.client, err = tocsin.Open(ctx, p.site.Config); err != nil {
		return err
	}
	return p.watch(ctx)
}

func (p *place) diskDir() string { return filepath.Join(p.dir, "disk") }

// grant makes the user of nodes and clients, with rights on each database, so that a right can be taken away from one.
func (p *place) grant(ctx context.Context, i int) (err error) {
	if p.admins[i], err = sqlx.Open("mysql", p.site.Servers[i].DSN()); err != nil {
		return err
	}
	statements := []string{"CREATE USER tocsin@'%'"}
	for _, n := range p.site.Config.Servers[i].Databases {
		statements = append(statements, fmt.Sprintf("GRANT ALL ON %s.* TO tocsin@'%%'", p.site.Config.Layout.Database(n)))
	}
	return p.exec(ctx, i, statements...)
}

// exec runs statements as root of a server.
func (p *place) exec(ctx context.Context, i int, statements ...string) error {
	for _, s := range statements {
		if _, err := p.admins[i].ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// policy is that of a callback which the receiver gets under the type's name.
func (p *place) policy(name string, number uint64, secrets ...string) biztype.Policy {
	return biztype.Policy{
		Name: name, Number: number, Timeout: biztype.Duration(2 * time.Second), Concurrency: 8, Attempts: 1000,
		Ladder:  []biztype.Duration{biztype.Duration(2 * time.Second)},
		Webhook: &biztype.Webhook{URL: p.receiver.URL + "/" + name, Allow: []string{"127.0.0.0/8"}, Secrets: secrets},
	}
}

// policies are those of all biz types but sms.secret.
func (p *place) policies() []biztype.Policy {
	mail, report := p.policy("mail.send", 4), p.policy("report.run", 6)
	mail.Group = "mail"
	report.Attempts, report.Ladder = 1, nil
	return []biztype.Policy{p.policy("coupon.ok", 1), p.policy("order.close", 2), mail, p.policy("bulk.send", 5), report}
}

func (p *place) apply(ctx context.Context, policies ...biztype.Policy) error {
	_, err := biztype.Apply(ctx, p.site.Config, policies)
	return err
}

func (p *place) receive(w http.ResponseWriter, r *http.Request) {
	switch way := p.fails.Load(); {
	case r.URL.Path == notifyPath:
		p.notify(r)
	case r.URL.Path == "/bulk.send":
		_ = loop.Wait(r.Context(), 100*time.Millisecond)
	case r.URL.Path == "/report.run", r.URL.Path == "/order.close" && way == 1:
		w.WriteHeader(http.StatusInternalServerError)
	case r.URL.Path == "/order.close" && way == 2:
		_ = loop.Wait(r.Context(), 20*time.Second)
	case r.URL.Path == "/order.close" && way == 3:
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// startNodes writes the config and starts all nodes on addresses of their own.
func (p *place) startNodes() error {
	if err := p.site.WriteConfig(p.config()); err != nil {
		return err
	}
	for i := range groups {
		p.pages[i] = fmt.Sprintf("127.0.0.1:%d", devserver.FreePort())
		if err := p.startNode(i); err != nil {
			return err
		}
	}
	return nil
}

func (p *place) config() string { return filepath.Join(p.dir, "tocsin.yaml") }

func (p *place) startNode(i int) error {
	p.procs[i] = exec.Command(p.opts.tocsin, "serve", "--config", p.config(), "--name", fmt.Sprint("n", i), "--group", groups[i], "--listen", p.pages[i])
	p.procs[i].Stderr = &p.logs[i]
	return p.procs[i].Start()
}

func (p *place) killNode(i int) error {
	err := p.procs[i].Process.Kill()
	_ = p.procs[i].Wait() // it was killed
	return err
}

// watch starts Alertmanager, and Prometheus with the shortened rules.
func (p *place) watch(ctx context.Context) (err error) {
	p.told = map[string]bool{}
	if err := p.startPager(ctx); err != nil {
		return err
	}
	if err := dashboards.CopyRules(p.opts.rules, p.dir, func(text string) string { return shorten(text, p.opts.factor, shortest) }); err != nil {
		return err
	}
	text := fmt.Sprintf("global: {scrape_interval: %s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}\nrule_files: [%q]\n"+
		"alerting: {alertmanagers: [{static_configs: [{targets: [%q]}]}]}\nscrape_configs:\n"+
		"  - job_name: tocsin\n    static_configs: [{targets: [%s], labels: {cluster: %s}}]\n",
		scrapes, filepath.Join(p.dir, "*.rules.yaml"), p.pager.Endpoint(), strings.Join(p.pages[:], ", "), cluster)
	if p.watcher, err = devserver.StartPrometheus(ctx, devserver.PrometheusConfig{Text: text}); err != nil {
		return err
	}
	client, err := api.NewClient(api.Config{Address: p.watcher.URL()})
	if err != nil {
		return err
	}
	p.prom = promv1.NewAPI(client)
	return nil
}

// add adds tasks of these biz types, which are due some seconds later, until ctx ends. A fault may refuse them.
func (p *place) add(ctx context.Context) {
	const ahead = 3 * time.Second
	for id := uint64(1); loop.Wait(ctx, every) == nil; id++ {
		for _, name := range []string{"coupon.ok", "order.close", "sms.secret", "mail.send"} {
			within, cancel := context.WithTimeout(ctx, time.Second)
			added, err := p.client.Add(within, tocsin.Define[string](name).New(id, "", tocsin.In(ahead)))
			if cancel(); err == nil {
				p.mu.Lock()
				p.tasks = append(p.tasks[max(len(p.tasks)-3000, 0):], task{added.JobID, name, time.Now().Add(ahead)})
				p.mu.Unlock()
			}
		}
	}
}

// waiting returns a task that fell due after that time, by its biz type and table.
func (p *place) waiting(after time.Time, is func(typ string, table int) bool) (tocsin.JobID, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tasks {
		if t.due.After(after) && is(t.typ, t.id.Table()) {
			return t.id, true
		}
	}
	return 0, false
}

// freeze stops a process without its knowledge, or lets it go on.
func freeze(pid int, is bool) error {
	if is {
		return syscall.Kill(pid, syscall.SIGSTOP)
	}
	return syscall.Kill(pid, syscall.SIGCONT)
}

func (p *place) stop() {
	for i := range groups {
		if p.procs[i] != nil && p.procs[i].Process != nil {
			_ = p.killNode(i)
		}
	}
	if p.client != nil {
		_ = p.client.Close()
	}
	for _, server := range []*devserver.Prometheus{p.watcher, p.pager} {
		if server != nil {
			_ = server.Stop()
		}
	}
	if p.site != nil {
		_ = p.site.Stop()
	}
	if p.receiver != nil {
		p.receiver.CloseClientConnections()
		p.receiver.Close()
	}
	if err := p.disk.Unmount(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.RemoveAll(p.dir)
}
