#!/bin/sh
# Tags a release of the commit that is checked out: scripts/release.sh v1.2.3
#
#   v1.2.3             the library
#   cmd/tocsin/v1.2.3  the command, whose go.mod requires the library by that version instead of by its folder, since
#                      `go install github.com/tocsinhq/tocsin/cmd/tocsin@v1.2.3` refuses a replace directive
#
# The second tag is of a commit beside the branch. Nothing is pushed.
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
for tag in "$version" "cmd/tocsin/$version"; do
	! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || fail "there is a tag $tag already"
done

tmp=$(mktemp -d)
trap 'git worktree remove --force "$tmp/tree"; rm -rf "$tmp"' EXIT
git worktree add -q --detach "$tmp/tree"
GOWORK=off go -C "$tmp/tree/cmd/tocsin" mod edit -dropreplace="$module" -require="$module@$version"
git -C "$tmp/tree" commit -qam "cmd/tocsin $version requires the library of its version"
git tag "$version"
git tag "cmd/tocsin/$version" "$(git -C "$tmp/tree" rev-parse HEAD)"
echo "git push origin $version cmd/tocsin/$version"
