#!/usr/bin/env bash
# Install what `make serve` and `make test` need, in two environments from exact pins:
#   .venv         the toolkit and its development tools
#   .venv-engine  the unmodified SGLang engine; its pins must never own ours
# A stamp in each makes the next run instant. TOOLKIT_PYTHON chooses the interpreter, TOOLKIT_ENGINE=cpu|gpu
# the kind of engine, TORCH_INDEX an additional package index that is asked for torch only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Two `make` runs at once must not write the same environment; the lock goes with the process.
exec 9<scripts/install.sh
flock -n 9 || { echo "Another installation is running: waiting for it." && flock 9; }

say() { printf '%s\n' "$*"; }

engine_kind() {
    if [[ -n ${TOOLKIT_ENGINE:-} ]]; then
        echo "$TOOLKIT_ENGINE"
    elif command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
        echo gpu
    else
        echo cpu
    fi
}

# fingerprint VENV FILE...: what the stamp holds. The path is in it because an environment cannot be moved.
fingerprint() {
    local venv=$1
    shift
    { cat "$@" && echo "$PWD" && "$venv/bin/python" -V; } 2>/dev/null | sha256sum | cut -d' ' -f1
}

is_current() { [[ -x $1/bin/python && $(cat "$1/installed" 2>/dev/null) == "$(fingerprint "$@")" ]]; }

# make_venv VENV: a fresh environment, or the one that is already there and still fits this folder.
make_venv() {
    if [[ -L $1 ]]; then
        say "$1 is a link to $(readlink -f "$1"), the environment of another folder, which is not emptied for this one: remove the link." >&2
        exit 3
    fi
    if [[ ! -x $1/bin/python || $(cat "$1/home" 2>/dev/null || echo "$PWD") != "$PWD" ]]; then
        "$python" -m venv --clear "$1"
    fi
    echo "$PWD" >"$1/home"
    "$1/bin/python" -m pip install -qq -r requirements/pip.txt
}

seconds() { echo "$((SECONDS - $1)) s"; }

kind=$(engine_kind)
engine_lock=requirements/engine-$kind.txt
if [[ ! -f $engine_lock ]]; then
    say "TOOLKIT_ENGINE=$kind: choose cpu or gpu." >&2
    exit 2
fi
toolkit_inputs=(requirements/pip.txt requirements/toolkit.txt requirements/fast.txt requirements/locust.txt requirements/dev.txt pyproject.toml)
engine_inputs=(requirements/pip.txt "$engine_lock")

if python=$(scripts/find_python.sh); then scripts/system_packages.sh; else
    scripts/system_packages.sh python
    python=$(scripts/find_python.sh) || { say "No Python 3.11 or newer with venv was found; name one in TOOLKIT_PYTHON." >&2 && exit 3; }
fi

if ! is_current .venv "${toolkit_inputs[@]}"; then
    began=$SECONDS
    say "Toolkit environment (.venv): installing; about 600 MB, a minute or two."
    rm -f .venv/installed
    make_venv .venv
    .venv/bin/python -m pip install -qq --no-deps -r requirements/toolkit.txt -r requirements/fast.txt -r requirements/locust.txt -r requirements/dev.txt
    .venv/bin/python -m pip install -qq --no-deps -e .
    fingerprint .venv "${toolkit_inputs[@]}" >.venv/installed
    say "Toolkit environment: ready after $(seconds "$began")."
fi

# For the test of docs/deploy/nginx.conf alone, so that nothing fails for want of it.
[[ -d .venv/nginx ]] || scripts/nginx.sh .venv/nginx || { mkdir -p .venv/nginx && say "nginx: not to be had here; the test behind it is skipped."; }

if ! is_current .venv-engine "${engine_inputs[@]}"; then
    began=$SECONDS
    say "Engine environment (.venv-engine, $kind): installing; about 2 GB and three minutes without a GPU, more with one."
    rm -f .venv-engine/installed
    # The two kinds share no torch and no Mooncake: never one on top of the other.
    [[ $(cat .venv-engine/kind 2>/dev/null || echo "$kind") == "$kind" ]] || rm -rf .venv-engine
    make_venv .venv-engine
    echo "$kind" >.venv-engine/kind
    "scripts/install_engine_$kind.sh"
    fingerprint .venv-engine "${engine_inputs[@]}" >.venv-engine/installed
    say "Engine environment: ready after $(seconds "$began")."
fi
