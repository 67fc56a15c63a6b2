#!/usr/bin/env bash
# all.sh COMMAND... runs all commands, one after the other, whatever fails. Then it lists what failed, and ends with 1.
set -u
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()
for command in "$@"; do
	echo "$command"
	bash -o pipefail -c "$command" 2>&1 | tee -a "$log"
	[ "${PIPESTATUS[0]}" = 0 ] || failed+=("$command")
done
[ ${#failed[@]} = 0 ] && exit 0
printf '\nfailed:\n'
grep -E '^ *--- FAIL|^FAIL[[:space:]]|^panic: ' "$log"
printf '%s\n' "${failed[@]}"
exit 1
