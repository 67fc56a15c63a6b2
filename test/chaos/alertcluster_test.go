package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/dashboards"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// watchedCluster is one of two servers and three nodes, which Prometheus and Alertmanager watch.
type watchedCluster struct {
	installed
	endpoint *httptest.Server // of callbacks and of what people are told
	way      atomic.Int32     // how callbacks of biz type order.close end: 0 well, 1 not, 2 they hang, 3 refused
	prom     promv1.API

	mu    sync.Mutex
	tasks []added         // the latest; guarded by mu
	told  map[string]bool // what Alertmanager has notified of since the last tellsAnew; guarded by mu
}

// added is a task that was added.
type added struct {
	id  tocsin.JobID
	typ string
	due time.Time
}

// watched starts everything.
func watched(ctx context.Context, t *testing.T) *watchedCluster {
	t.Helper()
	a := &watchedCluster{told: map[string]bool{}, installed: installed{
		program: *alertProgram, groups: map[string]string{"n1": "callback", "n2": "callback", "n3": "mail"},
	}}
	a.mountDisk(t)
	a.endpoint = httptest.NewServer(http.HandlerFunc(a.receive))
	t.Cleanup(func() { a.endpoint.CloseClientConnections(); a.endpoint.Close() })
	mail, report := a.policy("mail.send", 4), a.policy("report.run", 6)
	mail.Group = "mail"
	report.Attempts, report.Ladder = 1, nil
	a.scenario = begin(t, Options{
		Servers: 2, Nodes: 3, Idle: 3, Timing: asShipped, Layout: tocsin.Layout{Databases: 4, Tables: 4, Prefix: "faults"}, direct: true, serve: a.serve,
		servers:  []serverOptions{{args: []string{durable}}, {args: []string{durable}, disk: a.disk}},
		policies: []biztype.Policy{a.policy("coupon.ok", 1), a.policy("order.close", 2), mail, a.policy("bulk.send", 5), report},
	})
	a.config(a.sweeper, "off")
	for _, at := range a.seats {
		a.sit(at)
	}
	a.startPrometheus(ctx, a.startPager(ctx))
	return a
}

// policy is that of a callback which the endpoint gets under the type's name.
func (a *watchedCluster) policy(name string, number uint64, secrets ...string) biztype.Policy {
	return biztype.Policy{
		Name: name, Number: number, Timeout: biztype.Duration(2 * time.Second), Concurrency: 8, Attempts: 1000, Group: "callback",
		Ladder:  []biztype.Duration{biztype.Duration(2 * time.Second)},
		Webhook: &biztype.Webhook{URL: a.endpoint.URL + "/" + name, Allow: []string{"127.0.0.0/8"}, Secrets: secrets},
	}
}

// notifyPath is where Alertmanager sends what people would get.
const notifyPath = "/notify"

func (a *watchedCluster) receive(w http.ResponseWriter, r *http.Request) {
	switch way := a.way.Load(); {
	case r.URL.Path == notifyPath:
		a.notify(r)
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

// notify notes what people are told.
func (a *watchedCluster) notify(r *http.Request) {
	var said struct {
		Alerts []struct{ Labels map[string]string }
	}
	if err := json.NewDecoder(r.Body).Decode(&said); err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, is := range said.Alerts {
		a.told[is.Labels["alertname"]+", "+is.Labels["severity"]] = true
	}
}

// tellsAnew forgets what people were told, and returns it.
func (a *watchedCluster) tellsAnew() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	told := a.told
	a.told = map[string]bool{}
	return told
}

// startPager starts Alertmanager with the example of deploy/prometheus. Its group_wait (30s) and group_interval (5m) are
// divided like the rules.
func (a *watchedCluster) startPager(ctx context.Context) (address string) {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join(*alertRules, "alertmanager.example.yaml"))
	a.orFail(err)
	hook := fmt.Sprintf("\n    webhook_configs: [{url: %q, send_resolved: false}]\n", a.endpoint.URL+notifyPath)
	config := strings.NewReplacer("route:\n", "route:\n  group_wait: 1s\n  group_interval: 10s\n",
		"- name: pager\n", "- name: pager"+hook, "- name: tickets\n", "- name: tickets"+hook).Replace(string(text))
	pager, err := devserver.StartAlertmanager(ctx, devserver.PrometheusConfig{Text: config})
	a.orFail(err)
	a.t.Cleanup(func() { _ = pager.Stop() })
	return pager.Endpoint()
}

// startPrometheus starts Prometheus with the shortened rules.
func (a *watchedCluster) startPrometheus(ctx context.Context, pager string) {
	a.t.Helper()
	a.orFail(dashboards.CopyRules(*alertRules, a.opts.Dir, func(text string) string { return shorten(text, *alertFactor, shortest) }))
	text := fmt.Sprintf("global: {scrape_interval: %s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}\nrule_files: [%q]\n"+
		"alerting: {alertmanagers: [{static_configs: [{targets: [%q]}]}]}\nscrape_configs:\n"+
		"  - job_name: tocsin\n    static_configs: [{targets: [%s], labels: {cluster: %s}}]\n",
		scrapes, filepath.Join(a.opts.Dir, "*.rules.yaml"), pager, a.pages(), a.opts.Layout.Prefix)
	prometheus, err := devserver.StartPrometheus(ctx, devserver.PrometheusConfig{Text: text})
	a.orFail(err)
	a.t.Cleanup(func() { _ = prometheus.Stop() })
	client, err := api.NewClient(api.Config{Address: prometheus.URL()})
	a.orFail(err)
	a.prom = promv1.NewAPI(client)
}

// pages are the addresses of all nodes, with commas.
func (a *watchedCluster) pages() string {
	return strings.Join([]string{a.seats[0].page, a.seats[1].page, a.seats[2].page}, ",")
}

// add adds tasks of four biz types, which are due some seconds later, until ctx ends. A fault may refuse them.
func (a *watchedCluster) add(ctx context.Context) {
	const every, ahead = time.Second / 10, 3 * time.Second
	for id := uint64(1); loop.Wait(ctx, every) == nil; id++ {
		for _, name := range []string{"coupon.ok", "order.close", "sms.secret", "mail.send"} {
			within, cancel := context.WithTimeout(ctx, time.Second)
			is, err := a.client.Add(within, tocsin.Define[string](name).New(id, "", tocsin.In(ahead)))
			if cancel(); err == nil {
				a.mu.Lock()
				a.tasks = append(a.tasks[max(len(a.tasks)-3000, 0):], added{is.JobID, name, time.Now().Add(ahead)})
				a.mu.Unlock()
			}
		}
	}
}

// waiting returns a task that fell due after that time, by its biz type and table.
func (a *watchedCluster) waiting(after time.Time, is func(typ string, table int) bool) (tocsin.JobID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tasks {
		if t.due.After(after) && is(t.typ, t.id.Table()) {
			return t.id, true
		}
	}
	return 0, false
}

var (
	forLine  = regexp.MustCompile(`(?m)^( +for: )(\d+[smhd])$`)
	windowOf = regexp.MustCompile(`(\[)(\d+[smhd])(\])`)
)

// shorten divides every `for` and every window in the text of rules; no window gets shorter than least. All groups are
// evaluated as often as the others.
func shorten(text string, by int, least time.Duration) string {
	text = forLine.ReplaceAllStringFunc(dashboards.AtOneInterval(text), func(found string) string {
		m := forLine.FindStringSubmatch(found)
		return m[1] + divided(m[2], by, 0)
	})
	return windowOf.ReplaceAllStringFunc(text, func(found string) string {
		m := windowOf.FindStringSubmatch(found)
		return m[1] + divided(m[2], by, least) + m[3]
	})
}

// divided divides a duration of Prometheus, in whole seconds.
func divided(text string, by int, least time.Duration) string {
	n, unit := 0, ""
	if _, err := fmt.Sscanf(text, "%d%s", &n, &unit); err != nil {
		return text
	}
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	d := max(time.Duration(n)*units[unit]/time.Duration(by), least)
	return fmt.Sprintf("%ds", int(d.Round(time.Second).Seconds()))
}

func TestRulesAreShortened(t *testing.T) {
	t.Parallel()
	const rules = `  - name: slow
    interval: 3m
    rules:
      - alert: X
        expr: max_over_time(a[2m]) > 120 and rate(b[1h]) > 0
        for: 15m
      - alert: Y
        expr: c
        for: 0m
`
	const want = `  - name: slow
    rules:
      - alert: X
        expr: max_over_time(a[8s]) > 120 and rate(b[120s]) > 0
        for: 30s
      - alert: Y
        expr: c
        for: 0s
`
	if got := shorten(rules, 30, 8*time.Second); got != want {
		t.Errorf("got\n%s", got)
	}
}
