package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/upkeep"
)

const chart = "../../deploy/helm/tocsin"

// rendered has Helm render the chart with the values of some files: the objects by kind and name, or what Helm says against it.
func rendered(t *testing.T, files ...string) (objects map[string]map[string]any, refusal string) {
	t.Helper()
	helm := os.Getenv("TOCSIN_TEST_HELM")
	if helm == "" {
		t.Skip("needs Helm: make deploy-check")
	}
	args := []string{"template", "prod", chart, "--kube-version", "1.33.0"}
	for _, file := range files {
		args = append(args, "--values", file)
	}
	var said strings.Builder
	cmd := exec.CommandContext(t.Context(), helm, args...)
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return nil, said.String()
	}
	objects = map[string]map[string]any{}
	for part := range strings.SplitSeq(string(text), "\n---") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(part), &o); err != nil {
			t.Fatalf("%v\n%s", err, part)
		}
		if o != nil {
			objects[fmt.Sprint(o["kind"], " ", at(o, "metadata", "name"))] = o
		}
	}
	return objects, ""
}

// at walks down maps and lists; nil: there is nothing.
func at(v any, path ...any) any {
	for _, step := range path {
		switch key := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[key]
		case int:
			list, _ := v.([]any)
			if key >= len(list) {
				return nil
			}
			v = list[key]
		}
	}
	return v
}

// words makes a list of texts of a list.
func words(v any) (all []string) {
	list, _ := v.([]any)
	for _, word := range list {
		all = append(all, fmt.Sprint(word))
	}
	return all
}

func TestTheChartRunsCommandsWithAConfigThatLoads(t *testing.T) {
	t.Parallel()
	for name, files := range map[string][]string{"default": nil, "everything": {"testdata/chart/everything.yaml"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := name == "everything"
			objects, refusal := rendered(t, files...)
			for _, o := range objects {
				pod := at(o, "spec", "template", "spec")
				switch o["kind"] {
				case "ConfigMap":
					checkChartConfig(t, fmt.Sprint(at(o, "data", "tocsin.yaml")), all)
				case "CronJob":
					pod = at(o, "spec", "jobTemplate", "spec", "template", "spec")
					if _, err := upkeep.ParseTimes(fmt.Sprint(at(o, "spec", "schedule"))); err != nil {
						t.Error(err)
					}
					if args := words(at(pod, "containers", 0, "args")); slices.Contains(args, "http://push:9091") != all {
						t.Errorf("args %v", args)
					}
				case "Deployment":
					checkProbes(t, at(pod, "containers", 0))
					checkAPI(t, at(pod, "containers", 0), all)
				case "Service":
					checkService(t, o)
				}
				if pod != nil {
					checkPod(t, pod)
				}
			}
			want := []string{"ConfigMap prod-config", "CronJob prod-audit", "CronJob prod-purge", "CronJob prod-sweep", "Deployment prod-node", "NetworkPolicy prod", "PodDisruptionBudget prod-node"}
			if all {
				want = append(want, "CronJob prod-audit-outbox", "PodMonitor prod-node", "Service prod-api")
			}
			slices.Sort(want)
			if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, want) {
				t.Errorf("got %v %s", got, refusal)
			}
		})
	}
}

func checkChartConfig(t *testing.T, text string, all bool) {
	t.Helper()
	lookup := func(name string) (string, bool) {
		return "x", slices.Contains([]string{"TOCSIN_DB_USER", "TOCSIN_DB_PASSWORD"}, name)
	}
	file, err := config.Parse([]byte(text), "values.yaml", lookup)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if all != (file.Node.SecretsDir == "/var/run/tocsin/callbacks") || all != (file.Node.Status.TokenFile == "/var/run/tocsin/status/token") ||
		all != (file.Node.DrainTimeout.String() == "20s") {
		t.Errorf("node %+v", file.Node)
	}
	api := file.Node.API
	if all != (api.TokensFile == "/var/run/tocsin/api/api-tokens.yaml") || all != (api.TLS.Cert == "/var/run/tocsin/api-tls/tls.crt") ||
		all != (api.TLS.Key == "/var/run/tocsin/api-tls/tls.key") || all != (api.Limits.Rate == 50) {
		t.Errorf("API %+v", api)
	}
}

// checkAPI wants the node to listen for the API only if it is enabled, and its secrets then.
func checkAPI(t *testing.T, container any, on bool) {
	t.Helper()
	mounted := map[string]any{}
	for i := 0; at(container, "volumeMounts", i) != nil; i++ {
		mounted[fmt.Sprint(at(container, "volumeMounts", i, "mountPath"))] = at(container, "volumeMounts", i, "readOnly")
	}
	port := at(container, "ports", 1, "containerPort")
	if listens := slices.Contains(words(at(container, "args")), fmt.Sprint("0.0.0.0:", port)); listens != on {
		t.Errorf("args %v, port %v", at(container, "args"), port)
	}
	if on != (mounted["/var/run/tocsin/api"] == true) || on != (mounted["/var/run/tocsin/api-tls"] == true) {
		t.Errorf("mounts %v", mounted)
	}
}

// checkService wants the port of the container that is called api.
func checkService(t *testing.T, o map[string]any) {
	t.Helper()
	if at(o, "metadata", "name") != "prod-api" || at(o, "spec", "type") != "ClusterIP" || at(o, "spec", "ports", 0, "targetPort") != "api" ||
		fmt.Sprint(at(o, "spec", "ports", 0, "port")) != "8481" || at(o, "spec", "selector", "app.kubernetes.io/component") != "node" {
		t.Errorf("%v", o)
	}
}

// checkPod wants a known command, the config's mount, and no root.
func checkPod(t *testing.T, pod any) {
	t.Helper()
	container := at(pod, "containers", 0)
	wantArgs(t, "chart", words(at(container, "args")))
	volumes := map[string]bool{}
	for i := 0; at(pod, "volumes", i) != nil; i++ {
		volumes[fmt.Sprint(at(pod, "volumes", i, "name"))] = true
	}
	paths := map[string]bool{}
	for i := 0; at(container, "volumeMounts", i) != nil; i++ {
		name := fmt.Sprint(at(container, "volumeMounts", i, "name"))
		paths[fmt.Sprint(at(container, "volumeMounts", i, "mountPath"))] = volumes[name]
	}
	if !paths[filepath.Dir(inContainer)] || len(paths) != len(volumes) {
		t.Errorf("mounts %v of volumes %v", paths, volumes)
	}
	if at(pod, "securityContext", "runAsNonRoot") != true || at(container, "securityContext", "readOnlyRootFilesystem") != true ||
		at(container, "envFrom", 0, "secretRef", "name") == nil || at(pod, "automountServiceAccountToken") != false {
		t.Errorf("pod %v", pod)
	}
}

// checkProbes wants probes that the status page answers though it wants a token.
func checkProbes(t *testing.T, container any) {
	t.Helper()
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		path := fmt.Sprint(at(container, probe, "httpGet", "path"))
		if code := probed(path); code != 200 || at(container, probe, "httpGet", "port") != at(container, "ports", 0, "name") {
			t.Errorf("%s of %s: code %d", probe, path, code)
		}
	}
	if port := fmt.Sprint(at(container, "ports", 0, "containerPort")); port != statusPort || !slices.Contains(words(at(container, "args")), "0.0.0.0:"+port) {
		t.Errorf("port %s, %v", port, at(container, "args"))
	}
}

// schemaNode is what the tests read of a JSON Schema.
type schemaNode struct {
	Ref        string                `json:"$ref"`
	Properties map[string]schemaNode `json:"properties"`
	Additional any                   `json:"additionalProperties"`
	Items      *schemaNode           `json:"items"`
	Defs       map[string]schemaNode `json:"$defs"`
}

func chartSchema(t *testing.T) schemaNode {
	t.Helper()
	var s schemaNode
	if err := json.Unmarshal([]byte(deployed(t, "helm/tocsin/values.schema.json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// in follows a reference of the whole schema.
func (s schemaNode) in(whole schemaNode) schemaNode {
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		return whole.Defs[name]
	}
	return s
}

func TestTheChartsSchemaHasEveryKeyOfTheConfig(t *testing.T) {
	t.Parallel()
	whole := chartSchema(t)
	sameKeys(t, whole, whole.Properties["config"], reflect.TypeFor[config.File](), "config")
}

// sameKeys wants the keys of a struct of the config, no others, and the same of the structs in it.
func sameKeys(t *testing.T, whole, s schemaNode, of reflect.Type, path string) {
	t.Helper()
	s = s.in(whole)
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct && s.Items != nil {
		s, of = s.Items.in(whole), of.Elem()
	}
	if of.Kind() != reflect.Struct || s.Properties == nil {
		return
	}
	var keys []string
	for _, field := range reflect.VisibleFields(of) {
		if key, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); key != "" {
			keys = append(keys, key)
			sameKeys(t, whole, s.Properties[key], field.Type, path+"."+key)
		}
	}
	slices.Sort(keys)
	if got := slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(got, keys) || s.Additional != false {
		t.Errorf("%s: the schema has %v, and others: %v; the config has %v", path, got, s.Additional, keys)
	}
}

// The chart's values, their schema, and the table of docs/deployment.md name the same keys, with the same defaults.
func TestTheChartsValuesAreInItsSchemaAndInTheDocs(t *testing.T) {
	t.Parallel()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(deployed(t, "helm/tocsin/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	whole := chartSchema(t)
	delete(whole.Properties, "global") // of Helm
	page := deployed(t, "../docs/deployment.md")
	values["config"] = []any{} // has a test of its own
	sameValues(t, whole, whole, values, "", page)
}

func sameValues(t *testing.T, whole, s schemaNode, values map[string]any, path, page string) {
	t.Helper()
	if got, want := slices.Sorted(maps.Keys(s.Properties)), slices.Sorted(maps.Keys(values)); !slices.Equal(got, want) {
		t.Errorf("%q: the schema has %v, values.yaml %v", path, got, want)
	}
	for key, value := range values {
		part := s.Properties[key].in(whole)
		if m, ok := value.(map[string]any); ok && part.Properties != nil {
			sameValues(t, whole, part, m, path+key+".", page)
			continue
		}
		row := fmt.Sprintf("| `%s%s` | ", path, key)
		switch value.(type) {
		case []any, map[string]any:
		case string:
			row += fmt.Sprintf("`%q` | ", value)
		default:
			row += fmt.Sprintf("`%v` | ", value)
		}
		if !strings.Contains(page, "\n"+row) {
			t.Errorf("docs/deployment.md has no row %s", row)
		}
	}
}

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
