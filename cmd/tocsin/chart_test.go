package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/goccy/go-yaml"

	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/internal/schedule"
)

// chart renders the Helm chart with the functions that its templates use. `make deploy-check` has Helm itself do it.
type chart struct {
	t    *testing.T
	root *template.Template
	data map[string]any
}

func newChart(t *testing.T, change func(values map[string]any)) *chart {
	t.Helper()
	c := &chart{t: t}
	values, about := map[string]any{}, map[string]any{}
	for file, into := range map[string]any{"values.yaml": &values, "Chart.yaml": &about} {
		if err := yaml.Unmarshal([]byte(deployed(t, "helm/tocsin/"+file)), into); err != nil {
			t.Fatal(err)
		}
	}
	change(values)
	c.data = map[string]any{
		"Values": values, "Release": map[string]any{"Name": "prod"}, "Chart": map[string]any{"AppVersion": about["appVersion"]},
	}
	c.root = template.New("").Option("missingkey=error").Funcs(c.functions())
	files, err := filepath.Glob("../../deploy/helm/tocsin/templates/*")
	if err != nil || len(files) != 7 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.root.New(filepath.Base(path)).Parse(string(text)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *chart) functions() template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b bytes.Buffer
			err := c.root.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"toYaml": func(v any) (string, error) {
			text, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"nindent": func(n int, text string) string {
			return "\n" + strings.Repeat(" ", n) + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", n))
		},
		"quote":     func(v any) string { return fmt.Sprintf("%q", v) },
		"sha256sum": func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
		"default": func(other, v any) any {
			if v == nil || v == "" {
				return other
			}
			return v
		},
		"dict": func(pairs ...any) map[string]any {
			d := map[string]any{}
			for i := 0; i+1 < len(pairs); i += 2 {
				d[pairs[i].(string)] = pairs[i+1]
			}
			return d
		},
		"merge": merged,
		"fail":  func(why string) (string, error) { return "", errors.New(why) },
		"omit": func(from map[string]any, keys ...string) map[string]any {
			left := maps.Clone(from)
			for _, key := range keys {
				delete(left, key)
			}
			return left
		},
	}
}

// merged is into, with what only from has, at any depth.
func merged(into, from map[string]any) map[string]any {
	all := maps.Clone(from)
	for key, value := range into {
		ours, isMap := value.(map[string]any)
		theirs, isToo := all[key].(map[string]any)
		if isMap && isToo {
			value = merged(ours, theirs)
		}
		all[key] = value
	}
	return all
}

// objects renders all templates.
func (c *chart) objects() (all []map[string]any) {
	c.t.Helper()
	for _, tpl := range c.root.Templates() {
		if filepath.Ext(tpl.Name()) != ".yaml" {
			continue
		}
		var b bytes.Buffer
		if err := tpl.Execute(&b, c.data); err != nil {
			c.t.Fatal(err)
		}
		for part := range strings.SplitSeq(b.String(), "\n---") {
			if strings.TrimSpace(part) == "" {
				continue
			}
			var object map[string]any
			if err := yaml.Unmarshal([]byte(part), &object); err != nil {
				c.t.Fatalf("%s: %v\n%s", tpl.Name(), err, part)
			}
			all = append(all, object)
		}
	}
	return all
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

// everything switches on what the default values leave out.
func everything(values map[string]any) {
	secrets := values["secrets"].(map[string]any)
	secrets["callbacks"], secrets["status"] = "tocsin-callbacks", "tocsin-status"
	secrets["apiTokens"], secrets["apiTLS"] = "tocsin-api", "tocsin-api-tls"
	api := values["api"].(map[string]any)
	api["enabled"] = true
	api["service"].(map[string]any)["annotations"] = map[string]any{"a": "b"}
	values["config"].(map[string]any)["node"] = map[string]any{"drain_timeout": "20s", "api": map[string]any{"limits": map[string]any{"rate": 50}}}
	values["node"].(map[string]any)["podAnnotations"] = map[string]any{"a": "b"}
	values["jobs"].(map[string]any)["pushgateway"] = "http://push:9091"
}

func TestTheChartRunsCommandsWithAConfigThatLoads(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(map[string]any){"default": func(map[string]any) {}, "everything": everything} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kinds := map[string]int{}
			for _, o := range newChart(t, change).objects() {
				kind := fmt.Sprint(o["kind"])
				kinds[kind]++
				pod := at(o, "spec", "template", "spec")
				switch kind {
				case "ConfigMap":
					checkChartConfig(t, fmt.Sprint(at(o, "data", "tocsin.yaml")), name == "everything")
				case "CronJob":
					pod = at(o, "spec", "jobTemplate", "spec", "template", "spec")
					if _, err := schedule.Parse(fmt.Sprint(at(o, "spec", "schedule"))); err != nil {
						t.Error(err)
					}
					if args := words(at(pod, "containers", 0, "args")); slices.Contains(args, "http://push:9091") != (name == "everything") {
						t.Errorf("args %v", args)
					}
				case "Deployment":
					checkProbes(t, at(pod, "containers", 0))
					checkAPI(t, at(pod, "containers", 0), name == "everything")
				case "Service":
					checkService(t, o)
				case "NetworkPolicy":
					if (at(o, "spec", "ingress", 1) != nil) != (name == "everything") {
						t.Errorf("%v", at(o, "spec", "ingress"))
					}
				}
				if kind == "CronJob" || kind == "Deployment" {
					checkPod(t, pod)
				}
			}
			want := map[string]int{"ConfigMap": 1, "Deployment": 1, "CronJob": 3, "PodDisruptionBudget": 1, "NetworkPolicy": 1}
			if name == "everything" {
				want["Service"] = 1
			}
			if !maps.Equal(kinds, want) {
				t.Errorf("got %v", kinds)
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

func TestTheChartRefusesAnAPIWithoutTokens(t *testing.T) {
	t.Parallel()
	c := newChart(t, func(values map[string]any) { values["api"].(map[string]any)["enabled"] = true })
	err := c.root.ExecuteTemplate(io.Discard, "config.yaml", c.data)
	if err == nil || !strings.Contains(err.Error(), "api.enabled needs secrets.apiTokens") {
		t.Error(err)
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
