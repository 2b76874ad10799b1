#!/usr/bin/env bash
# Fill .venv-engine on a machine without a GPU: torch with what it needs, then the rest of the lock as it stands.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

pip=(.venv-engine/bin/python -m pip)
lock=requirements/engine-cpu.txt
torch=$(grep '^torch==' "$lock")
index=(${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"})

if ! .venv-engine/bin/python -c 'import importlib.metadata as m, sys; sys.exit(m.version("torch").split("+")[0] != sys.argv[1])' "${torch#torch==}" 2>/dev/null; then
    report=$(mktemp)
    trap 'rm -f "$report"' EXIT
    if "${pip[@]}" install -qq --dry-run --ignore-installed -c "$lock" --report "$report" "${index[@]}" "$torch"; then
        .venv-engine/bin/python scripts/torch_download.py "$report"
    fi
    "${pip[@]}" install -qq -c "$lock" "${index[@]}" "$torch"
fi
"${pip[@]}" install -qq --no-deps -r "$lock"
