#!/bin/sh
# Has the programs that the files of deploy/ are for look at them: systemd-analyze, Helm, and kubeconform with Kubernetes' own
# schemas. Helm and kubeconform come from the Go module proxy, and the schemas from GitHub. A tool that can't be had is named
# and left out; the tests of cmd/tocsin parse all files without any of them. Exits with 1 if a tool finds a fault.
set -u
cd "$(dirname "$0")/.."

kubeconform=github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0
helm=helm.sh/helm/v3/cmd/helm@v3.18.6
kubernetes=1.33.0
failed=0

say() { echo "check-deploy: $*"; }

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

export GOFLAGS=-mod=mod GOBIN="$work/bin"
if (cd "$work" && go install "$helm"); then
	"$work/bin/helm" lint --strict deploy/helm/tocsin || failed=1
	"$work/bin/helm" template prod deploy/helm/tocsin >"$work/chart.yaml" || failed=1
	"$work/bin/helm" template prod deploy/helm/tocsin --set secrets.callbacks=a,secrets.status=b >"$work/all.yaml" || failed=1
	if (cd "$work" && go install "$kubeconform"); then
		"$work/bin/kubeconform" -strict -summary -kubernetes-version "$kubernetes" "$work/chart.yaml" "$work/all.yaml" || failed=1
	else
		say "no kubeconform: the chart's objects were not compared with Kubernetes' schemas"
	fi
else
	say "no Helm: the chart was not linted"
fi
exit "$failed"
