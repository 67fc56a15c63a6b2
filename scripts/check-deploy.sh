#!/bin/sh
# Has the programs that the files of deploy/ are for look at them: systemd-analyze and Helm. What Helm renders is decoded
# strictly into Kubernetes' own Go types, and tests of cmd/tocsin read it, and print what comes of wrong values. Helm (bin/helm)
# and the types come from the Go module proxy. A tool that can't be had is named and left out; other tests of cmd/tocsin parse
# all files but the chart's templates. Exits with 1 if a tool finds a fault.
set -u
cd "$(dirname "$0")/.."

helm=helm.sh/helm/v4/cmd/helm@v4.3.1
types=k8s.io/api@v0.37.2
monitoring=github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring@v0.95.1
yaml=sigs.k8s.io/yaml@v1.6.0
failed=0

say() { echo "check-deploy: $*"; }

# strict_program decodes each object of some files, each with the number of its objects behind it, and refuses unknown fields and
# values of a wrong type.
strict_program() {
	cat <<'GO'
package main

import (
	"bytes"
	"fmt"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	types := map[string]func() any{
		"apps/v1 Deployment":                 func() any { return &apps.Deployment{} },
		"batch/v1 CronJob":                   func() any { return &batch.CronJob{} },
		"v1 ConfigMap":                       func() any { return &core.ConfigMap{} },
		"v1 Service":                         func() any { return &core.Service{} },
		"networking.k8s.io/v1 NetworkPolicy": func() any { return &networking.NetworkPolicy{} },
		"policy/v1 PodDisruptionBudget":      func() any { return &policy.PodDisruptionBudget{} },
		"monitoring.coreos.com/v1 PodMonitor": func() any { return &monitoring.PodMonitor{} },
	}
	for i := 1; i < len(os.Args); i += 2 {
		path, want := os.Args[i], os.Args[i+1]
		text, err := os.ReadFile(path)
		check(err)
		found := 0
		for _, part := range bytes.Split(text, []byte("\n---")) {
			var kind struct{ APIVersion, Kind string }
			check(yaml.Unmarshal(part, &kind))
			if kind.Kind == "" {
				continue
			}
			name := kind.APIVersion + " " + kind.Kind
			if types[name] == nil {
				check(fmt.Errorf("unknown %s", name))
			}
			check(yaml.UnmarshalStrict(part, types[name]()))
			found++
		}
		if fmt.Sprint(found) != want {
			check(fmt.Errorf("%s has %d objects, want %s", path, found, want))
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
GO
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if command -v systemd-analyze >/dev/null; then
	# Files that a host has and this machine lacks are replaced, or verify would miss them.
	cp deploy/systemd/*.service deploy/systemd/*.timer "$work"
	sed -i "s#/usr/local/bin/tocsin#$(command -v true)#; s#^EnvironmentFile=#EnvironmentFile=-#" "$work"/*.service
	systemd-analyze verify "$work"/*.service "$work"/*.timer && say "systemd-analyze verify: no complaint" || failed=1
	for unit in "$work"/*.service; do
		systemd-analyze security --offline=true --no-pager "$unit" | tail -1
	done
	for when in $(sed -n 's/^OnCalendar=//p' deploy/systemd/*.timer | tr ' ' '_'); do
		systemd-analyze calendar "$(echo "$when" | tr '_' ' ')" >/dev/null || failed=1
	done
else
	say "no systemd-analyze: the units were not verified"
fi

chart() { bin/helm "$@" --kube-version 1.33.0; }

root=$PWD
if (cd "$work" && GOBIN="$root/bin" go install "$helm"); then
	chart lint --strict deploy/helm/tocsin || failed=1
	chart template prod deploy/helm/tocsin >"$work/chart.yaml" || failed=1
	chart template prod deploy/helm/tocsin --values cmd/tocsin/testdata/chart/everything.yaml >"$work/all.yaml" || failed=1
	TOCSIN_TEST_HELM="$root/bin/helm" go test -vet=off -count=1 -v -run '^TestTheChartR' ./cmd/tocsin >"$work/log" 2>&1 || failed=1
	grep -vE '^(===|PASS)' "$work/log"
	mkdir "$work/strict"
	strict_program >"$work/strict/main.go"
	if (cd "$work/strict" && export GOFLAGS=-mod=mod && go mod init strict && go get "$types" "$monitoring" "$yaml" && go build -o ../strict.bin .) >"$work/log" 2>&1; then
		"$work/strict.bin" "$work/chart.yaml" 7 "$work/all.yaml" 10 && say "the chart's objects are Kubernetes' types ($types)" || failed=1
	else
		cat "$work/log" >&2
		say "no Kubernetes types: the chart's objects were not decoded"
	fi
else
	say "no Helm: the chart was neither linted nor rendered"
fi
exit "$failed"
