#!/usr/bin/env bash
# Run make targets one after the other, stop at the first that fails, and say how long each took.
#   test.sh TARGET...
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

summary=()
began=$SECONDS
status=0
for target in "$@"; do
    echo "== $target"
    started=$SECONDS
    "${MAKE:-make}" --no-print-directory "$target" || status=$?
    took=$((SECONDS - started))
    summary+=("$(printf '%-12s %2d min %02d s%s' "$target" $((took / 60)) $((took % 60)) "$([[ $status == 0 ]] || echo '   FAILED')")")
    [[ $status == 0 ]] || break
done
echo "== time"
printf '   %s\n' "${summary[@]}"
took=$((SECONDS - began))
printf '   %-12s %2d min %02d s\n' total $((took / 60)) $((took % 60))
exit "$status"
