#!/usr/bin/env bash
# Run make targets one after the other, stop at the first that fails, and say how long each took.
#   test.sh TARGET...
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Minutes that each step may take on two cores, from nothing: `make test` must stay within 25.
declare -A minutes=([install]=6 [lint]=1 [types]=1 [contracts]=1 [unit]=4 [engine-test]=6)

summary=()
began=$SECONDS
status=0
for target in "$@"; do
    echo "== $target"
    started=$SECONDS
    "${MAKE:-make}" --no-print-directory "$target" || status=$?
    took=$((SECONDS - started))
    note=""
    limit=${minutes[$target]:-0}
    if ((limit)); then
        note="  of $limit"
        ((took <= limit * 60)) || note+="   OVER: mark or shorten its slowest tests"
    fi
    ((status == 0)) || note+="   FAILED"
    summary+=("$(printf '%-12s %2d min %02d s%s' "$target" $((took / 60)) $((took % 60)) "$note")")
    [[ $status == 0 ]] || break
done
echo "== time"
printf '   %s\n' "${summary[@]}"
took=$((SECONDS - began))
printf '   %-12s %2d min %02d s\n' total $((took / 60)) $((took % 60))
exit "$status"
