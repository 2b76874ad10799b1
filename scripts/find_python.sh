#!/usr/bin/env bash
# Print the Python that both environments are made with: $TOOLKIT_PYTHON, else 3.11, else a newer one.
# 3.11 comes first because the exact pins of the engine were taken with it.
set -euo pipefail

usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

for candidate in ${TOOLKIT_PYTHON:+"$TOOLKIT_PYTHON"} python3.11 python3.12 python3.13 python3; do
    if path=$(command -v "$candidate") && usable "$path"; then
        printf '%s\n' "$path"
        exit 0
    fi
done
exit 1
