package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A value of the chart, and what comes of it: a line of Helm's that refuses it, or what is rendered at a path of an object.
type chartValue struct {
	about, values string
	refused       string
	object        string
	path          []any
	rendered      string
}

var (
	inPod       = []any{"spec", "template", "spec"}
	inJob       = []any{"spec", "jobTemplate", "spec"}
	chartValues = []chartValue{
		{about: "nobody may scrape", values: "networkPolicy: {scrapers: []}", object: "NetworkPolicy prod", path: []any{"spec", "ingress"}, rendered: "<nil>"},
		{about: "the same by null", values: "networkPolicy: {scrapers: null}", object: "NetworkPolicy prod", path: []any{"spec", "ingress"}, rendered: "<nil>"},
		{about: "nobody may call the API", values: "networkPolicy: {callers: []}\napi: {enabled: true}\nsecrets: {apiTokens: a}", object: "NetworkPolicy prod", path: []any{"spec", "ingress", 1}, rendered: "<nil>"},
		{about: "a peer that is nobody and everybody", values: "networkPolicy: {scrapers: [{}]}", refused: "at '/networkPolicy/scrapers/0': minProperties: got 0, want 1"},
		{about: "a PodMonitor that may not scrape", values: "networkPolicy: {scrapers: []}\npodMonitor: {enabled: true}", refused: "podMonitor.enabled, but networkPolicy.scrapers is empty: Prometheus could not reach the nodes"},
		{about: "killed while it drains", values: "config: {node: {drain_timeout: 1m}}\nnode: {terminationGracePeriodSeconds: 40}", refused: "node.terminationGracePeriodSeconds 40: at least 65, config.node.drain_timeout and 5 s; 0 computes it"},
		{about: "a long drain", values: "config: {node: {drain_timeout: 4m59.5s}}", object: "Deployment prod-node", path: append(inPod, "terminationGracePeriodSeconds"), rendered: "310"},
		{about: "a drain that the config refuses", values: "config: {node: {drain_timeout: 2h}}", refused: "config.node.drain_timeout 2h: use 1s to 3600s"},
		{about: "a sweep longer than its interval", values: "config: {sweep: {timeout: 5m}}\nsweep: {schedule: '*/5 * * * *'}", refused: `config.sweep.timeout is 300 s, but sweep.schedule "*/5 * * * *" begins a sweep every 300 s`},
		{about: "a long sweep", values: "config: {sweep: {timeout: 4m}}\nsweep: {schedule: '*/5 * * * *'}", object: "CronJob prod-sweep", path: append(inJob, "activeDeadlineSeconds"), rendered: "280"},
		{about: "a sweep cut off", values: "sweep: {deadlineSeconds: 50}", refused: "sweep.deadlineSeconds 50: at least 60, config.sweep.timeout and 10 s; 0 computes it"},
		{about: "no nodes", values: "node: {replicas: 0}", object: "Deployment prod-node", path: []any{"spec", "replicas"}, rendered: "0"},
		{about: "fewer than none", values: "node: {replicas: -1}", refused: "at '/node/replicas': minimum: got -1, want 0"},
		{about: "a negative time", values: "config: {scan: {interval: -5s}}", refused: "at '/config/scan/interval': '-5s' does not match"},
		{about: "two servers of one name", values: "config: {servers: [{name: db0, dsn: a, databases: [0]}, {name: db0, dsn: b, databases: [1-7]}]}", refused: "config.servers: two of them are named db0"},
		{about: "no Secret for a job", values: "secrets: {sweep: ''}", refused: "secrets.sweep is empty: name the Secret of the job sweep, or disable it"},
		{about: "no tokens for the API", values: "api: {enabled: true}", refused: "api.enabled needs secrets.apiTokens"},
		{about: "two tokens", values: "config: {node: {status: {token: '${T}'}}}\nsecrets: {status: a}", refused: "config.node.status has a token, and secrets.status names another: use one of them"},
		{about: "a tab", values: "config:\n\tnode: {}", refused: "line 2: found character that cannot start any token"},
		{about: "a file as text", values: "config: |\n  cluster: a", refused: "at '/config': got string, want object"},
		{about: "an unknown key", values: "node: {replica: 3}", refused: "at '/node': additional properties 'replica' not allowed"},
		{about: "an unknown key of the config", values: "config: {node: {drain_time: 3s}}", refused: "at '/config/node': additional properties 'drain_time' not allowed"},
		{about: "an account without rights", values: "serviceAccountName: tocsin", object: "CronJob prod-purge", path: append(inJob, "template", "spec", "serviceAccountName"), rendered: "tocsin"},
		{about: "nodes without etcd", values: "config: {etcd: null}", refused: "config.etcd.endpoints is empty: nodes register there, unless config.layout.ownership is rows"},
		{about: "nodes that need none", values: "config: {etcd: null, layout: {ownership: rows}}", object: "Deployment prod-node", path: []any{"spec", "replicas"}, rendered: "3"},
		{about: "three nodes of one name", values: "config: {node: {name: a}}", refused: "config.node.name: leave it out, all nodes would have it"},
		{about: "no status page", values: "config: {node: {listen: 'off'}}", refused: "config.node.listen: leave it out, the chart sets it"},
		{about: "a status page with TLS", values: "config: {node: {status: {tls: {cert: /p/a, key: /p/b}}}}", object: "Deployment prod-node", path: append(inPod, "containers", 0, "livenessProbe", "httpGet", "scheme"), rendered: "HTTPS"},
		{about: "files in the chart's folder", values: "extraVolumeMounts: [{name: a, mountPath: /etc/tocsin/pem}]", refused: "extraVolumeMounts: /etc/tocsin/pem belongs to the chart"},
		{about: "an outbox", values: "config: {outboxes: [{name: shop, dsn: a, table: b.c}]}", object: "CronJob prod-audit-outbox", path: append(inJob, "template", "spec", "containers", 0, "args"), rendered: "[audit --outbox]"},
		{about: "a PodMonitor", values: "podMonitor: {enabled: true}", object: "PodMonitor prod-node", path: []any{"spec", "podMetricsEndpoints", 0, "relabelings", 1}, rendered: "map[replacement:orders-prod targetLabel:cluster]"},
		{about: "nodes that are spread", values: "{}", object: "Deployment prod-node", path: append(inPod, "topologySpreadConstraints", 0, "topologyKey"), rendered: "kubernetes.io/hostname"},
		{about: "nodes that are not spread", values: "node: {topologySpreadConstraints: []}", object: "Deployment prod-node", path: append(inPod, "topologySpreadConstraints"), rendered: "<nil>"},
	}
)

// place is where Helm's refusals begin; what follows is the line for people.
var place = regexp.MustCompile(`^(Error: execution error at \(\S+\): |Error: failed to parse \S+: |- )`)

// It prints a table.
func TestTheChartRefusesWrongValuesInOneLineOrRendersWhatIsMeant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := "\n| what | values | comes of it |\n|---|---|---|\n"
	for i, v := range chartValues {
		file := filepath.Join(dir, fmt.Sprint(i, ".yaml"))
		if err := os.WriteFile(file, []byte(v.values), 0o600); err != nil {
			t.Fatal(err)
		}
		objects, refusal := rendered(t, file)
		lines := slices.DeleteFunc(strings.Split(refusal, "\n"), func(line string) bool { return v.refused == "" || !strings.Contains(line, v.refused) })
		outcome := fmt.Sprintf("rendered: %s %s: %s", v.object, strings.Trim(fmt.Sprint(v.path), "[]"), v.rendered)
		if v.refused != "" {
			outcome = "refused: " + place.ReplaceAllString(strings.Join(lines, " "), "")
		}
		if got := fmt.Sprint(at(objects[v.object], v.path...)); v.refused != "" && len(lines) != 1 || v.refused == "" && (objects[v.object] == nil || got != v.rendered) {
			outcome = "WRONG: " + got + refusal
			t.Errorf("%s: want %s%s", v.about, v.refused, v.rendered)
		}
		table += fmt.Sprintf("| %s | `%s` | %s |\n", v.about, strings.NewReplacer("\n", "; ", "\t", `\t`).Replace(v.values), outcome)
	}
	t.Log(table)
}
