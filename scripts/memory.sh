#!/bin/sh
# Prints the folder in memory, if it has 12 GB free and programs may run there; nothing else.
dir=/dev/shm
[ "$(df -Pk "$dir" 2>/dev/null | awk 'NR == 2 { print int($4 / 2 ^ 20) }')" -ge 12 ] 2>/dev/null || exit 0
probe=$(mktemp "$dir/tocsin-XXXXXX") || exit 0
trap 'rm -f "$probe"' EXIT
printf '#!/bin/sh\n' >"$probe" && chmod +x "$probe" && "$probe" 2>/dev/null && echo "$dir"
exit 0
