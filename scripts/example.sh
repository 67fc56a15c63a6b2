#!/bin/sh
# Runs examples/shop with servers of its own: two database servers with Tocsin's tables, the first of which also has the shop's
# database and its outbox. What is given as arguments goes to the shop; without any it plays a few customers and ends.
#
#   make example
#   make example ARGS="--listen 127.0.0.1:8080 --pay-in 30s"
set -eu
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'kill "$servers" 2>/dev/null || true; wait "$servers" 2>/dev/null || true; rm -rf "$dir"' EXIT
export TOCSIN_CONFIG="$dir/tocsin.yaml"

bin/tocsin dev --etcd=false --servers 2 --biz examples/shop/biz.yaml --config-out "$TOCSIN_CONFIG" >"$dir/dev.log" 2>&1 &
servers=$!
until grep -q 'tasks wait' "$dir/dev.log"; do
	kill -0 "$servers" 2>/dev/null || {
		cat "$dir/dev.log" >&2
		exit 1
	}
	sleep 0.1
done

# The shop's server is the first of the config.
dsn=$(sed -n 's/^ *dsn: //p' "$TOCSIN_CONFIG" | head -n 1)
bin/shop --dsn "$dsn" --make-tables
bin/tocsin outbox apply --dsn "$dsn" --table shop.tocsin_outbox
if [ $# -eq 0 ]; then
	set -- --demo --pay-in 5s
fi
bin/shop --dsn "$dsn" "$@"
