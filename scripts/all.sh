#!/usr/bin/env bash
# all.sh COMMAND... runs all commands, one after the other, whatever fails. Then it lists what failed, and ends with 1. Commands
# that begin with "nice" run beside the others, and what they print follows.
set -u
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
failed=()
beside=()
pids=()
for command in "$@"; do
	echo "$command"
	if [[ $command == nice\ * ]]; then
		bash -o pipefail -c "$command" >"$dir/${#beside[@]}" 2>&1 &
		beside+=("$command")
		pids+=($!)
		continue
	fi
	bash -o pipefail -c "$command" 2>&1 | tee -a "$dir/log"
	[ "${PIPESTATUS[0]}" = 0 ] || failed+=("$command")
done
for i in "${!beside[@]}"; do
	wait "${pids[i]}" || failed+=("${beside[i]}")
	printf '\n%s\n' "${beside[i]}"
	tee -a "$dir/log" <"$dir/$i"
done
[ ${#failed[@]} = 0 ] && exit 0
printf '\nfailed:\n'
grep -E '^ *--- FAIL|^FAIL[[:space:]]|^panic: ' "$dir/log"
printf '%s\n' "${failed[@]}"
exit 1
