#!/bin/sh
# Runs every fuzz target of the module, one after the other, each for the time given (1m).
set -eu
cd "$(dirname "$0")/.."
time=${1:-1m}

listed=$(go test -list '^Fuzz' work) || {
	echo "$listed" >&2
	exit 1
}
# A package's targets come before its "ok" line.
targets=$(echo "$listed" | awk '
	/^Fuzz/ { names[n++] = $1 }
	/^ok/   { for (i = 0; i < n; i++) print $2, names[i]; n = 0 }')
[ -n "$targets" ] || {
	echo "fuzz: no targets" >&2
	exit 1
}

echo "$targets" | while read -r package target; do
	echo "== $package $target"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 5s "$package" </dev/null
done
