#!/bin/sh
# Tags a release of the commit that is checked out: scripts/release.sh v1.2.3
#
#   v1.2.3                     the library
#   contrib/tocsinpg/v1.2.3    its module for PostgreSQL
#   contrib/tocsinotel/v1.2.3  its module for OpenTelemetry
#   contrib/tocsinkafka/v1.2.3 its module for Kafka
#   contrib/tocsinrabbitmq/v1.2.3  its module for RabbitMQ
#   api/v1.2.3                 its HTTP API, for the command
#   cmd/tocsin/v1.2.3          the command
#
# All but the first require the modules before them by that version instead of by their folders: `go install
# github.com/tocsinhq/tocsin/cmd/tocsin@v1.2.3` refuses a replace directive, and nobody could get the library's v0.0.0.
# Their tags are of a commit beside the branch. Nothing is pushed.
set -eu
cd "$(dirname "$0")/.."
module=github.com/tocsinhq/tocsin

fail() {
	echo "release: $*" >&2
	exit 1
}

version=${1:-}
echo "$version" | grep -Eqx 'v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?' || fail "want a version such as v1.2.3, not '$version'"
[ -z "$(git status --porcelain)" ] || fail "commit or remove what is not committed first"
for tag in "$version" "contrib/tocsinpg/$version" "contrib/tocsinotel/$version" "contrib/tocsinkafka/$version" "contrib/tocsinrabbitmq/$version" "api/$version" "cmd/tocsin/$version"; do
	! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || fail "there is a tag $tag already"
done

tmp=$(mktemp -d)
trap 'git worktree remove --force "$tmp/tree"; rm -rf "$tmp"' EXIT
git worktree add -q --detach "$tmp/tree"
for name in contrib/tocsinpg contrib/tocsinotel contrib/tocsinkafka contrib/tocsinrabbitmq api; do
	GOWORK=off go -C "$tmp/tree/$name" mod edit -dropreplace="$module" -require="$module@$version"
done
GOWORK=off go -C "$tmp/tree/cmd/tocsin" mod edit -dropreplace="$module" -require="$module@$version" \
	-dropreplace="$module/contrib/tocsinpg" -require="$module/contrib/tocsinpg@$version" \
	-dropreplace="$module/contrib/tocsinkafka" -require="$module/contrib/tocsinkafka@$version" -dropreplace="$module/api" -require="$module/api@$version"
git -C "$tmp/tree" commit -qam "cmd/tocsin, api, contrib/tocsinpg, contrib/tocsinotel, contrib/tocsinkafka and contrib/tocsinrabbitmq $version require the library of their version"
git tag "$version"
for name in contrib/tocsinpg contrib/tocsinotel contrib/tocsinkafka contrib/tocsinrabbitmq api cmd/tocsin; do
	git tag "$name/$version" "$(git -C "$tmp/tree" rev-parse HEAD)"
done
echo "git push origin $version contrib/tocsinpg/$version contrib/tocsinotel/$version contrib/tocsinkafka/$version contrib/tocsinrabbitmq/$version api/$version cmd/tocsin/$version"
