#!/usr/bin/env bash
# Make sure of the system libraries that SGLang's and Mooncake's compiled files ask for.
#   system_packages.sh [python]   with `python`: also a Python with venv
# Installs with apt as root or through sudo; otherwise prints the one line to run and exits 3.
set -euo pipefail

loader_knows() { { PATH="$PATH:/usr/sbin:/sbin" ldconfig -p 2>/dev/null || true; } | grep -qF "$1"; }

missing=()
# library -> Debian/Ubuntu package (newer Ubuntu names them ...t64 and still answers to these)
while read -r library package; do
    loader_knows "$library" || missing+=("$package")
done <<'TABLE'
libibverbs.so.1 libibverbs1
libnuma.so.1 libnuma1
libcurl.so.4 libcurl4
libstdc++.so.6 libstdc++6
libssl.so.3 libssl3
TABLE

if [[ ${1:-} == python ]]; then
    # Debian 12's python3 is 3.11; Ubuntu 22.04 keeps python3.11 beside its 3.10.
    if python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        missing+=(python3-venv)
    else
        missing+=(python3.11 python3.11-venv)
    fi
fi

((${#missing[@]})) || exit 0

line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
    echo "This machine lacks what the Debian packages ${missing[*]} hold, and has no apt-get: install them its own way." >&2
    exit 3
fi
if [[ $(id -u) == 0 ]]; then
    run=(env DEBIAN_FRONTEND=noninteractive)
elif command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
    run=(sudo env DEBIAN_FRONTEND=noninteractive)
else
    echo "System packages are missing and this user may not install them. Run this line as root, then try again:" >&2
    echo "  $line" >&2
    exit 3
fi
echo "System packages: ${missing[*]}"
if ! { "${run[@]}" apt-get update -qq && "${run[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; }; then
    echo "apt could not install them. Run this line as root, look at its output, then try again:" >&2
    echo "  $line" >&2
    exit 3
fi
