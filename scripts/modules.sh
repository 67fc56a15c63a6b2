#!/bin/sh
# Prints what each kind of program needs: one that only adds tasks, one that traces this, one that runs a node, and the command. A line each:
# edges of the module graph, lines of go.sum after go mod tidy, modules in the binary, bytes as built and with -s -w, and
# the Go version of its go.mod.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export GOWORK=off GOFLAGS=-mod=mod

# Writes the module of $1, whose main.go is read from standard input.
program() {
	mkdir "$tmp/$1"
	cat >"$tmp/$1/main.go"
	cat >"$tmp/$1/go.mod" <<-EOF
		module example.com/$1

		go $(sed -n 's/^go //p' "$root/go.mod")

		require (
			github.com/tocsinhq/tocsin v0.0.0
			github.com/tocsinhq/tocsin/contrib/tocsinotel v0.0.0
		)

		replace github.com/tocsinhq/tocsin => $root

		replace github.com/tocsinhq/tocsin/contrib/tocsinotel => $root/contrib/tocsinotel
	EOF
	(cd "$tmp/$1" && go mod tidy 2>"$tmp/said") || { cat "$tmp/said" >&2 && exit 1; }
}

# Measures the module in folder $2 as $1.
measure() {
	cd "$2"
	go build -o "$tmp/plain" .
	go build -ldflags '-s -w' -o "$tmp/stripped" .
	printf '%-8s %5d %6d %6d %10d %10d  %s\n' "$1" "$(go mod graph | wc -l)" "$(wc -l <go.sum)" \
		"$(go version -m "$tmp/plain" | grep -c "^	dep	")" "$(wc -c <"$tmp/plain")" "$(wc -c <"$tmp/stripped")" \
		"$(sed -n 's/^go //p' go.mod)"
}

program add <<-'EOF'
	package main

	import (
		"context"

		"github.com/tocsinhq/tocsin"
	)

	func main() {
		client, err := tocsin.Open(context.Background(), tocsin.Config{})
		if err != nil {
			panic(err)
		}
		ring := tocsin.Define[string]("ring")
		_, _ = client.Add(context.Background(), ring.New(1, "", tocsin.In(0)))
	}
EOF
program traced <<-'EOF'
	package main

	import (
		"context"

		"github.com/tocsinhq/tocsin"
		"github.com/tocsinhq/tocsin/contrib/tocsinotel"
	)

	func main() {
		telemetry, err := tocsinotel.New(tocsinotel.Config{})
		if err != nil {
			panic(err)
		}
		client, err := tocsin.Open(context.Background(), tocsin.Config{Use: []func(tocsin.AddFunc) tocsin.AddFunc{telemetry.Add}})
		if err != nil {
			panic(err)
		}
		ring := tocsin.Define[string]("ring")
		_, _ = client.Add(context.Background(), ring.New(1, "", tocsin.In(0)))
	}
EOF
program node <<-'EOF'
	package main

	import (
		"context"

		"github.com/tocsinhq/tocsin"
		"github.com/tocsinhq/tocsin/node"
	)

	func main() {
		var handlers node.Handlers
		node.Handle(&handlers, tocsin.Define[string]("ring"), func(context.Context, *tocsin.Task[string]) error { return nil })
		n, err := node.New(node.Config{}, &handlers)
		if err != nil {
			panic(err)
		}
		_ = n.Run(context.Background())
	}
EOF

printf '%-8s %5s %6s %6s %10s %10s  %s\n' program graph go.sum linked bytes stripped go
measure add "$tmp/add"
measure traced "$tmp/traced"
measure node "$tmp/node"
measure command "$root/cmd/tocsin"
