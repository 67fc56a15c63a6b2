package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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
