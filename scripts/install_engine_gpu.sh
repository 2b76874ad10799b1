#!/usr/bin/env bash
# Fill .venv-engine on a machine with an NVIDIA GPU: the lock as it stands.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

.venv-engine/bin/python -m pip install --no-deps ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
    -r requirements/engine-gpu.txt
