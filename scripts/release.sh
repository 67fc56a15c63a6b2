#!/bin/sh
# Tags a release of the commit that is checked out: scripts/release.sh v1.2.3
#
#   v1.2.3                     the library
#   contrib/tocsinpg/v1.2.3    its module for PostgreSQL
#   contrib/tocsinotel/v1.2.3  its module for OpenTelemetry
#   contrib/tocsinkafka/v1.2.3 its module for Kafka
#   contrib/tocsinrabbitmq/v1.2.3  its module for RabbitMQ
#   contrib/tocsinnats/v1.2.3  its module for NATS
#   api/v1.2.3                 its HTTP API, for the command
#   cmd/tocsin/v1.2.3          the command
#
# All but the first require the modules before them by that version instead of by their folders: `go install
# github.com/tocsinhq/tocsin/cmd/tocsin@v1.2.3` refuses a replace directive, and nobody could get the library's v0.0.0.
# Their tags are of a commit beside the branch. Nothing is pushed.
set -eu
cd "$(dirname "$0")/.."
module=github.com/tocsinhq/tocsin
parts="contrib/tocsinpg contrib/tocsinotel contrib/tocsinkafka contrib/tocsinrabbitmq contrib/tocsinnats api" # that require the library alone

fail() {
	echo "release: $*" >&2
	exit 1
}

version=${1:-}
echo "$version" | grep -Eqx 'v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?' || fail "want a version such as v1.2.3, not '$version'"
[ -z "$(git status --porcelain)" ] || fail "commit or remove what is not committed first"
for part in "" $parts cmd/tocsin; do
	tag=${part:+$part/}$version
	! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || fail "there is a tag $tag already"
done

tmp=$(mktemp -d)
trap 'git worktree remove --force "$tmp/tree"; rm -rf "$tmp"' EXIT
git worktree add -q --detach "$tmp/tree"
for name in $parts; do
	GOWORK=off go -C "$tmp/tree/$name" mod edit -dropreplace="$module" -require="$module@$version"
done
GOWORK=off go -C "$tmp/tree/cmd/tocsin" mod edit -dropreplace="$module" -require="$module@$version"
for part in $parts; do
	case $part in contrib/tocsinotel) continue ;; esac # the command does not need it
	GOWORK=off go -C "$tmp/tree/cmd/tocsin" mod edit -dropreplace="$module/$part" -require="$module/$part@$version"
done
git -C "$tmp/tree" commit -qam "All modules of $version require the library of their version"
git tag "$version"
pushed=$version
for name in $parts cmd/tocsin; do
	git tag "$name/$version" "$(git -C "$tmp/tree" rev-parse HEAD)"
	pushed="$pushed $name/$version"
done
echo "git push origin $pushed"
